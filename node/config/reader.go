package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/syncnode/syncnode/internal/meant"
)

// maxDepth bounds how deep values lie in one another; the deepest that means anything is at 6.
const maxDepth = 12

// A reader reads one file, and notes every mistake on its way.
type reader struct {
	mistakes
	lines []string // of the source, for positions inside of a text
	notes []Note

	places map[string]string // where a key belongs that stands in the wrong map
}

// A value is a node of the file, and how it is called.
type value struct {
	*yaml.Node
	key string
}

func (r *reader) fail(v value, reason, hint string) { r.add(v.Line, v.Column, v.key, reason, hint) }

// Parse reads the text of a file; name is what its errors call it, and where its paths begin.
func Parse(name string, data []byte) (*File, error) {
	r := &reader{mistakes: mistakes{file: name}, places: places()}
	f := Defaults()
	f.dir = filepath.Dir(name)
	if root := r.document(data); root != nil {
		r.file(root, &f)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	f.Notes = r.notes
	return &f, nil
}

// document gives the one document of the text, if nothing in it is of a kind that is not read at all.
func (r *reader) document(data []byte) *yaml.Node {
	if len(data) > MaxSize {
		r.add(0, 0, "", fmt.Sprintf("is larger than %s", showSize(MaxSize)), "")
		return nil
	}
	if !utf8.Valid(data) {
		r.add(0, 0, "", "is not UTF-8", "")
		return nil
	}
	r.lines = strings.Split(string(data), "\n")
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.add(0, 0, "", "is empty", "write at least: version: 1")
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		r.add(second.Line, second.Column, "", "a second document begins here", "a node has one file with one document")
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	before := len(r.found)
	r.plainOnly(&doc, 0)
	if len(doc.Content) == 0 || len(r.found) > before {
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax tells what the YAML parser said. A tab is its commonest reason, and it never says so.
func (r *reader) syntax(err error) {
	line, reason := 0, err.Error()
	if m := yamlLine.FindStringSubmatch(reason); m != nil {
		line, _ = strconv.Atoi(m[1])
		reason = m[2]
	}
	for i, line := range r.lines[:min(line+1, len(r.lines))] {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && strings.TrimSpace(line) != "" {
			r.add(i+1, tab+1, "", "a tab indents this line", "write spaces")
			return
		}
	}
	r.add(max(line, 1), 1, "", "is not YAML: "+reason, "")
}

// plainOnly refuses what makes one thing stand for another: nothing is expanded, and a text is what is written.
func (r *reader) plainOnly(n *yaml.Node, depth int) {
	v := value{n, ""}
	switch {
	case depth > maxDepth:
		r.fail(v, fmt.Sprintf("lies more than %d deep", maxDepth), "")
		return
	case n.Kind == yaml.AliasNode:
		r.fail(v, "an alias (*) is not read", "write the value again, or use defaults")
		return
	case n.Anchor != "":
		r.fail(v, "an anchor (&) is not read", "write the value where it is used, or use defaults")
	case n.Tag == "!!merge":
		r.fail(v, "a merge key (<<) is not read", "write the keys again, or use defaults")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(v, "a tag ("+short(n.Tag)+") is not read", "leave it out; quotes make a text of anything")
	}
	for _, c := range n.Content {
		if r.full() {
			return
		}
		r.plainOnly(c, depth+1)
	}
}

// what says of which type a value is.
func what(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "the text " + short(n.Value)
	case "!!int", "!!float":
		return "the number " + short(n.Value)
	case "!!bool":
		return "the truth value " + short(n.Value)
	case "!!timestamp":
		return "the date " + short(n.Value)
	case "!!null":
		return "no value"
	}
	return "a value of type " + short(n.Tag)
}

// want notes that a value is of another type.
func (r *reader) want(v value, want, hint string) {
	if v.Tag == "!!null" {
		r.fail(v, "has no value", "give it "+want+", or leave the key out")
		return
	}
	r.fail(v, "is "+what(v.Node)+", want "+want, hint)
}

// text gives a text. What YAML reads as something else is no text unless it is quoted: it would be a guess.
func (r *reader) text(v value, want string) (string, bool) {
	if v.Kind != yaml.ScalarNode || v.Tag != "!!str" {
		hint := ""
		if v.Kind == yaml.ScalarNode {
			hint = "write " + strconv.Quote(v.Value) + " if that is meant"
		}
		r.want(v, want, hint)
		return "", false
	}
	if strings.ContainsRune(v.Value, 0) {
		r.fail(v, "holds a NUL", "")
		return "", false
	}
	return v.Value, true
}

// list gives the items of a list.
func (r *reader) list(v value, want string) ([]value, bool) {
	if v.Kind != yaml.SequenceNode {
		hint := ""
		if v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
			hint = "write [" + strconv.Quote(v.Value) + "]"
		}
		r.want(v, want, hint)
		return nil, false
	}
	items := make([]value, len(v.Content))
	for i, c := range v.Content {
		items[i] = value{c, fmt.Sprintf("%s[%d]", v.key, i)}
	}
	return items, true
}

// A pair is a key of a map with its value.
type pair struct {
	name     string
	at       value // the key
	value    value
	repeated bool
}

// pairs gives the keys of a map in their order. Keys are taken as they are written: 010 and on are names of agents.
func (r *reader) pairs(v value) []pair {
	if v.Kind != yaml.MappingNode {
		r.want(v, "a map (key: value)", "")
		return nil
	}
	seen := map[string]int{}
	var all []pair
	for i := 0; i+1 < len(v.Content) && !r.full(); i += 2 {
		k := v.Content[i]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!null" {
			r.fail(value{k, v.key}, "a key is "+what(k)+", want a name", "")
			continue
		}
		p := pair{name: k.Value, at: value{k, under(v.key, k.Value)}, value: value{v.Content[i+1], under(v.key, k.Value)}}
		if first, twice := seen[k.Value]; twice {
			r.fail(p.at, fmt.Sprintf("is there twice, first in line %d", first), "leave one of them out")
			p.repeated = true
		} else {
			seen[k.Value] = k.Line
		}
		all = append(all, p)
	}
	return all
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// under names a key inside of another.
func under(outer, name string) string {
	if !plainName.MatchString(name) {
		name = short(name)
	}
	if outer == "" {
		return name
	}
	return outer + "." + name
}

// A key is one key of a map that means a T: how it is called, explained, read and shown.
type key[T any] struct {
	name    string
	doc     string                          // units and limits
	example string                          // of those that have no default
	read    func(*reader, value, *T)        // notes its mistakes
	show    func(*T) (text string, ok bool) // on one line, as it is read; not ok: the key is left out
}

// mapping reads a map of known keys in the order of the keys, and gives those that are there.
func mapping[T any](r *reader, v value, into *T, keys []key[T]) map[string]value {
	given := map[string]value{}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	for _, p := range r.pairs(v) {
		if known := index(names, p.name); known < 0 {
			r.unknown(p, names)
		} else if !p.repeated {
			given[p.name] = p.value
		}
	}
	for _, k := range keys {
		if at, ok := given[k.name]; ok {
			k.read(r, at, into)
		}
	}
	return given
}

func index(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

// unknown notes a key that nothing reads, and what was meant by it.
func (r *reader) unknown(p pair, names []string) {
	hint := ""
	if word := meant.Word(p.name, names); word != "" {
		hint = "did you mean " + strconv.Quote(word) + "?"
	} else if place := r.places[p.name]; place != "" {
		hint = "it belongs into " + place
	} else if len(names) < 8 {
		hint = "known are " + strings.Join(names, ", ")
	}
	r.fail(p.at, "unknown key", hint)
}

// inside is the position of a byte of a text, if the text stands in the source as it is; else where it begins.
func (r *reader) inside(v value, offset int) (line, column int) {
	line, column = v.Line, v.Column
	if line < 1 || line > len(r.lines) || offset < 0 || offset > len(v.Value) {
		return line, column
	}
	source := []rune(r.lines[line-1])
	at := column - 1
	if v.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at++
	}
	head := v.Value[:offset]
	if at < 0 || at > len(source) || !strings.HasPrefix(string(source[at:]), head) {
		return line, column
	}
	return line, at + 1 + utf8.RuneCountInString(head)
}
