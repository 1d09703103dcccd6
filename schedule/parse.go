package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrInvalid means that a text is no schedule, or one that never fires.
var ErrInvalid = errors.New("schedule: not valid")

// A ParseError says what is wrong with a spec, where, and what to write instead. It matches [ErrInvalid].
type ParseError struct {
	Spec   string // as given; may be hostile
	Offset int    // of what is wrong, in bytes
	Column string // "minute", …; empty if it is about the whole
	Reason string
	Hint   string // what to write instead; may be empty
}

func (e *ParseError) Error() string {
	const most = 100
	spec := strconv.Quote(e.Spec)
	if len(e.Spec) > most {
		spec = strconv.Quote(e.Spec[:most]) + "…"
	}
	where := fmt.Sprintf("at character %d", e.Offset+1)
	if e.Column != "" {
		where = e.Column + " " + where
	}
	s := fmt.Sprintf("schedule %s, %s: %s", spec, where, e.Reason)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Is reports whether target is ErrInvalid.
func (e *ParseError) Is(target error) bool { return target == ErrInvalid }

// maxSpec bounds a spec; one that lists every minute in words is shorter.
const maxSpec = 512

var nicknames = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

const shape = "write five columns: minute, hour, day of month, month, day of week"

// A parser reads one spec.
type parser struct{ spec string }

// fail is an error about what begins at an offset.
func (p parser) fail(at int, column, hint, reason string, args ...any) error {
	return &ParseError{p.spec, at, column, fmt.Sprintf(reason, args...), hint}
}

// A word is a part of the spec and where it begins.
type word struct {
	text string
	at   int
}

// cut parts a word at the first sep.
func (w word) cut(sep string) (before, after word, found bool) {
	a, b, found := strings.Cut(w.text, sep)
	return word{a, w.at}, word{b, w.at + len(a) + len(sep)}, found
}

// Parse reads a spec: five columns, or one of @hourly @daily @midnight @weekly @monthly @yearly @annually and
// @every D. It is strict: what cron programs read in different ways is an error that says what to write.
func Parse(spec string) (Spec, error) {
	p := parser{spec}
	if len(spec) > maxSpec {
		return Spec{}, p.fail(maxSpec, "", "", "is longer than %d bytes", maxSpec)
	}
	for i, r := range spec {
		if r != '\t' && (r < ' ' || r > '~') {
			return Spec{}, p.fail(i, "", "write it in plain ASCII", "has %q", r)
		}
	}
	words := p.words()
	switch {
	case len(words) == 0:
		return Spec{}, p.fail(0, "", shape, "is empty")
	case words[0].text[0] == '@':
		return p.nickname(words)
	case strings.Contains(words[0].text, "="):
		return Spec{}, p.fail(words[0].at, "", "give the zone beside the schedule: --tz, or tz", "a time zone does not belong into a schedule")
	case len(words) != len(columns):
		return Spec{}, p.count(words)
	}
	var s Spec
	for i, w := range words {
		var err error
		if s.fields[i], err = p.column(columns[i], w); err != nil {
			return Spec{}, err
		}
	}
	if !s.fires() {
		return Spec{}, p.fail(words[dayOfMonth].at, columns[dayOfMonth].name, "", "never fires: day %d comes in no month of %s",
			s.fields[dayOfMonth].least(), words[month].text)
	}
	return s, nil
}

func (p parser) words() []word {
	var words []word
	for i := 0; i < len(p.spec); {
		n := strings.IndexAny(p.spec[i:], " \t")
		if n < 0 {
			n = len(p.spec) - i
		}
		if n > 0 {
			words = append(words, word{p.spec[i : i+n], i})
		}
		i += n + 1
	}
	return words
}

// count is the error of too many or too few columns.
func (p parser) count(words []word) error {
	n := len(words)
	if n < len(columns) {
		last := words[n-1]
		return p.fail(last.at+len(last.text), "", shape, "has %d of 5 columns: the %s is missing", n, columns[n].name)
	}
	sixth := words[len(columns)]
	if strings.Trim(strings.ToLower(sixth.text), "abcdefghijklmnopqrstuvwxyz_-") == "" {
		return p.fail(sixth.at, "", "leave it out", "%q is a sixth column: the user stands in /etc/crontab only", sixth.text)
	}
	return p.fail(sixth.at, "", shape+"; @every 10s for less than a minute", "has %d columns: there is none for seconds or years", n)
}

func (p parser) nickname(words []word) (Spec, error) {
	name := strings.ToLower(words[0].text)
	five, known := nicknames[name]
	switch {
	case name == "@every":
		return p.every(words)
	case name == "@reboot":
		return Spec{}, p.fail(words[0].at, "", "use exec --occurrence with a text of your own", "@reboot is no instant that every host names alike")
	case !known:
		return Spec{}, p.fail(words[0].at, "", "there are @hourly @daily @midnight @weekly @monthly @yearly @annually and @every D", "%q is not known", words[0].text)
	case len(words) > 1:
		return Spec{}, p.fail(words[1].at, "", "write "+name+" alone", "%q is left over", words[1].text)
	}
	return Parse(five)
}

func (p parser) every(words []word) (Spec, error) {
	const hint = "write whole seconds, at least 1s, such as @every 90s, @every 15m or @every 24h"
	if len(words) == 1 {
		return Spec{}, p.fail(len(p.spec), "", hint, "@every what?")
	}
	if len(words) > 2 {
		return Spec{}, p.fail(words[2].at, "", hint, "%q is left over", words[2].text)
	}
	d, err := time.ParseDuration(words[1].text)
	switch {
	case err != nil:
		return Spec{}, p.fail(words[1].at, "", hint, "%q is no duration", words[1].text)
	case d < time.Second || d%time.Second != 0:
		return Spec{}, p.fail(words[1].at, "", hint, "%s cannot be kept", words[1].text)
	}
	return Spec{every: d}, nil
}

// column reads one column: *, */n, or a list.
func (p parser) column(c column, w word) (field, error) {
	if !strings.Contains(w.text, ",") {
		return p.item(c, w)
	}
	var list field
	for rest, more := w, true; more; {
		var one word
		one, rest, more = rest.cut(",")
		f, err := p.item(c, one)
		switch {
		case err != nil:
			return field{}, err
		case f.step == 1:
			return field{}, p.fail(one.at, c.name, "write "+one.text+" alone", "%s in a list leaves nothing to the others", one.text)
		case f.star() && c.starred:
			return field{}, p.fail(one.at, c.name, "write "+f.list().String()+" for "+one.text,
				"%s in a list: a star here says more than the values it stands for", one.text)
		}
		list.allowed |= f.allowed
	}
	return list, nil
}

// list is the field without its star.
func (f field) list() field { return field{allowed: f.allowed} }

// item reads one place of a list: *, */n, a, a-b or a-b/n.
func (p parser) item(c column, w word) (field, error) {
	switch {
	case w.text == "":
		return field{}, p.fail(w.at, c.name, "", "a place in the list is empty")
	case w.text == "*", w.text == "?" && c.days:
		return c.every(1), nil
	case w.text[0] == '?':
		return field{}, p.fail(w.at, c.name, "write *", "%s cannot stand here", w.text)
	}
	span, by, stepped := w.cut("/")
	if span.text == "*" {
		n, err := p.step(c, by, c.min, c.max)
		return c.every(n), err
	}
	low, high, ranged := span.cut("-")
	from, err := p.value(c, low, w)
	if err != nil {
		return field{}, err
	}
	to := from
	if ranged {
		if to, err = p.value(c, high, w); err != nil {
			return field{}, err
		}
		if to == 0 && from > 0 && strings.EqualFold(high.text, "SUN") {
			to = c.top // Sunday ends a week
		}
	}
	switch {
	case from > to:
		return field{}, p.fail(w.at, c.name, "write "+c.around(from, to), "%s runs backwards", span.text)
	case stepped && !ranged:
		return field{}, p.fail(w.at, c.name, fmt.Sprintf("write %s-%d/%s", span.text, c.max, by.text), "%s has no end", w.text)
	}
	n := 1
	if stepped {
		if n, err = p.step(c, by, from, to); err != nil {
			return field{}, err
		}
	}
	var f field
	for v := from; v <= to; v += n {
		f.allowed |= 1 << c.fold(v)
	}
	return f, nil
}

// fold gives the value that v is another name of: Sunday is 0 and 7.
func (c column) fold(v int) int {
	if v > c.max {
		return c.min
	}
	return v
}

// around writes a range that passes the end of its column as a list.
func (c column) around(from, to int) string {
	least := c.min
	if c.top > c.max {
		least++ // 7 was 0
	}
	list := numbers(from, c.top)
	if to >= least {
		list += "," + numbers(least, to)
	}
	return list
}

func numbers(from, to int) string {
	if from == to {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d-%d", from, to)
}

// step reads the n of …/n between two values.
func (p parser) step(c column, w word, from, to int) (int, error) {
	n, err := strconv.Atoi(w.text)
	switch {
	case err != nil || strings.Trim(w.text, "0123456789") != "" || n < 1:
		return 1, p.fail(w.at, c.name, "write a number from 1 on behind the /", "%q is no step", w.text)
	case n > to-from && n > 1:
		return 1, p.fail(w.at, c.name, fmt.Sprintf("write %d", c.fold(from)), "a step of %d from %d to %d reaches nothing but %d", n, from, to, from)
	}
	return n, nil
}

// value reads a number or a name; item is what it stands in.
func (p parser) value(c column, w, item word) (int, error) {
	if w.text == "" {
		return 0, p.fail(w.at, c.name, "", "%q lacks a value", item.text)
	}
	if strings.Trim(w.text, "0123456789") != "" {
		return p.name(c, w)
	}
	n, err := strconv.Atoi(w.text)
	switch {
	case n < c.min && err == nil:
		return 0, p.fail(w.at, c.name, fmt.Sprintf("write %d to %d", c.min, c.top), "%s is below %d", w.text, c.min)
	case n > c.top || err != nil:
		hint := fmt.Sprintf("write %d to %d", c.min, c.top)
		if n == 24 && c.name == columns[hour].name {
			hint = "write 0 for midnight"
		}
		return 0, p.fail(w.at, c.name, hint, "%s is above %d", w.text, c.top)
	}
	return n, nil
}

func (p parser) name(c column, w word) (int, error) {
	text := strings.ToUpper(w.text)
	for i, name := range c.names {
		if text == name {
			return c.min + i, nil
		}
		if strings.HasPrefix(text, name) && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			return 0, p.fail(w.at, c.name, "write "+name, "%q is not known", w.text)
		}
	}
	digits := fmt.Sprintf("write %d to %d", c.min, c.top)
	switch {
	case strings.Contains(text, "#"):
		return 0, p.fail(w.at, c.name, "let the command look at the date, or write the days: 8-14 holds the second of each weekday", "# (the nth weekday of a month) is not offered")
	case strings.Contains(text, "L") && strings.Trim(text, "0123456789L-") == "":
		return 0, p.fail(w.at, c.name, "run on 1 for what has just ended", "L (the last day) is not offered")
	case strings.Contains(text, "W") && strings.Trim(text, "0123456789LW") == "":
		return 0, p.fail(w.at, c.name, "write the weekdays MON-FRI", "W (the nearest weekday) is not offered")
	case text[0] == 'H' && strings.Trim(text, "H()0123456789-") == "":
		return 0, p.fail(w.at, c.name, "write a number of your own, the same on every host", "H (a value drawn from a name) is not offered")
	case len(c.names) > 0:
		return 0, p.fail(w.at, c.name, digits+", or "+c.names[0]+" to "+c.names[len(c.names)-1], "%q is not known", w.text)
	}
	return 0, p.fail(w.at, c.name, digits, "%q is no number", w.text)
}
