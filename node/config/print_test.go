package config_test

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"

	"github.com/syncnode/syncnode/node/config"
)

// same says whether two files mean the same; notes stand in other lines.
func same(a, b *config.File) bool {
	x, y := *a, *b
	x.Notes, y.Notes = nil, nil
	x.Agents, y.Agents = nil, nil
	if len(a.Agents) != len(b.Agents) || !reflect.DeepEqual(x, y) {
		return false
	}
	for i := range a.Agents {
		p, q := a.Agents[i], b.Agents[i]
		if (p.Schedule == nil) != (q.Schedule == nil) || p.Schedule != nil && p.Schedule.String() != q.Schedule.String() {
			return false
		}
		p.Schedule, q.Schedule = nil, nil
		if !reflect.DeepEqual(p, q) {
			return false
		}
	}
	return true
}

func TestThePrintedDefaultsReadAsTheDefaultsAndExplainEveryKey(t *testing.T) {
	want, err := config.Parse("f", []byte("version: 1"))
	if err != nil {
		t.Fatal(err)
	}
	defaults := config.Defaults()
	text := string(config.Print(&defaults))
	got, err := config.Parse("f", []byte(text))
	if err != nil || !same(got, want) {
		t.Errorf("%v\n%+v\n%+v\n%s", err, got, want, text)
	}
	lines := strings.Split(text, "\n")
	key := regexp.MustCompile(`^ *[a-z_]+:`)
	for i, l := range lines {
		if key.MatchString(l) && l != "agents: {}" && !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
			t.Errorf("nothing is said of %s", l)
		}
	}
	// The agent that is there as a comment reads, too.
	text = strings.Replace(text, "agents: {}\n", "agents:\n", 1)
	head, tail, _ := strings.Cut(text, "agents:\n")
	f, err := config.Parse("f", []byte(head+"agents:\n"+strings.ReplaceAll("\n"+tail, "\n#", "\n")))
	if err != nil || len(f.Agents) != 1 || f.Agents[0].Schedule == nil || len(f.Agents[0].Command) != 2 {
		t.Errorf("%v %+v\n%s", err, f, tail)
	}
}

func TestWhatIsPrintedReadsTheSame(t *testing.T) {
	for _, text := range []string{whole, "version: 1",
		"version: 1\ndefaults: {on_doubt: probe, probe: [p], on_failure: {command: [x]}}\nagents: {a: {}, b: {on_doubt: hold, on_failure: {}}}",
		"version: 1\ncatchup_rate: none\ndefaults: {catchup: all, catchup_limit: 9, retry: {exit_codes: [3]}}\n" +
			"agents: {a: {command: [\"\\e\\x7f\\u2028\\U0001F600\"], retry: {exit_codes: []}}, h: {http: {url: 'http://h', headers: {}}}}",
	} {
		f, err := config.Parse("conf/f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		printed := config.Print(f)
		again, err := config.Parse("conf/f.yaml", printed)
		if err != nil || !same(f, again) {
			t.Errorf("%v\n%+v\n%+v\n%s", err, f, again, printed)
		}
	}
}

// A file is from a person, or from whoever can write where one is looked for.
func TestAHostileFileIsRefusedInBoundedTimeAndWords(t *testing.T) {
	bomb := "version: 1\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), c-1)
	}
	many := func(line string) string {
		var s strings.Builder
		s.WriteString("version: 1\nagents:\n")
		for i := 0; s.Len() < 200_000; i++ {
			fmt.Fprintf(&s, "  a%d: "+line+"\n", i)
		}
		return s.String()
	}
	for name, text := range map[string]string{
		"alias bomb":     bomb,
		"self":           "version: &v [*v]",
		"deep lists":     "version: 1\nagents: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deeper":         "version: " + strings.Repeat("[", 100_000),
		"deep maps":      "version: " + strings.Repeat("{a: ", 1000) + strings.Repeat("}", 1000),
		"deep dashes":    strings.Repeat("- ", 100_000),
		"questions":      strings.Repeat("? ", 100_000),
		"unknown keys":   many("{nope: 1, nopf: 2}"),
		"unknown zones":  many("{tz: Mars/Olympus}"),
		"aliases":        many("*x"),
		"bad ids":        strings.ReplaceAll(many("{}"), "  a", "  -"),
		"one long key":   "version: 1\n" + strings.Repeat("k", 300_000) + ": 1",
		"one long list":  "version: 1\nagents: {a: {command: [" + strings.Repeat("1,", 100_000) + "]}}",
		"one long spec":  "version: 1\nagents: {a: {command: [x], schedule: '" + strings.Repeat("*/1,", 200_000) + "'}}",
		"one long value": "version: 1\ndrain: " + strings.Repeat("9", 300_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(text))
			if !errors.Is(err, config.ErrInvalid) {
				t.Fatal(err)
			}
			all, _ := errors.AsType[*multierror.Error](err)
			if all == nil || len(all.Errors) > 100 || len(err.Error()) > 60_000 {
				t.Errorf("%d bytes: %.500s", len(err.Error()), err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	defaults := config.Defaults()
	for _, s := range []string{whole, string(config.Print(&defaults)), "version: 1\nagents: {a: {schedule: '0 24 * * *', tz: x}}", "version: &a [*a]",
		"version: 1\n? [a]\n: b\n", "version: 1\nagents:\n\ta: 1", "version: 1\n---\n...", "%YAML 1.1\n---\nversion: 1\n", "version: 1\nagents: {\"a\\u0000\": {}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := config.Parse("f", []byte(text))
		if err != nil {
			all, ok := errors.AsType[*multierror.Error](err)
			if !ok || !errors.Is(err, config.ErrInvalid) || len(all.Errors) == 0 {
				t.Fatalf("%v", err)
			}
			for _, err := range all.Errors {
				e, ok := errors.AsType[*config.Error](err)
				if !ok || e.Reason == "" || e.Line < 0 || e.Line > strings.Count(text, "\n")+strings.Count(text, "\r")+2 {
					t.Fatalf("%#v", err)
				}
			}
			return
		}
		printed := config.Print(read)
		again, err := config.Parse("f", printed)
		if err != nil || !same(read, again) {
			t.Fatalf("%v\n%s", err, printed)
		}
	})
}
