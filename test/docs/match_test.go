package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// tokens are what a page cannot foretell, in the order in which they are looked for: how they look on the page, and in
// what is printed. Where keep is set, one on the page is always the same one there.
var tokens = []struct {
	kind, page, there string
	keep              bool
}{
	{"run", `r1-[a-z2-7]{4}…`, `r1-[a-z2-7]{52}`, true},
	{"attempt", `\b[0-9a-f]{32}\b`, `[0-9a-f]{32}`, true},
	{"time", `\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, false},
	{"pid", `\bpid \d+ on [a-z0-9.-]+`, `pid \d+ on [A-Za-z0-9._-]+`, false},
	{"device", `\b[a-z][a-z0-9]*-[0-9a-f]{8}\b`, `[A-Za-z0-9._-]+-[0-9a-f]{8}`, true},
	{"any", `…`, `.*`, false},
}

var onPage = func() *regexp.Regexp {
	var all []string
	for _, t := range tokens {
		all = append(all, "("+t.page+")")
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}()

// names is what the ids on a page stand for.
type names map[string]string

// line matches one line, and learns the names in it.
func (n names) line(want, got string) bool {
	var pattern strings.Builder
	var on []string // the token on the page for each group
	var kinds []int
	rest := want
	for {
		at := onPage.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		pattern.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		for k := range tokens {
			if at[2+2*k] >= 0 {
				pattern.WriteString("(" + tokens[k].there + ")")
				on, kinds = append(on, rest[at[0]:at[1]]), append(kinds, k)
			}
		}
		rest = rest[at[1]:]
	}
	pattern.WriteString(regexp.QuoteMeta(rest))
	found := regexp.MustCompile("^" + pattern.String() + "$").FindStringSubmatch(got)
	if found == nil {
		return false
	}
	learned := names{}
	for i, k := range kinds {
		if !tokens[k].keep {
			continue
		}
		there := found[i+1]
		for _, known := range []names{n, learned} {
			if before, ok := known[on[i]]; ok && before != there {
				return false
			}
		}
		learned[on[i]] = there
	}
	for page, there := range learned {
		n[page] = there
	}
	return true
}

// match says whether the lines are those of the page, all of them.
func (n names) match(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == "…":
		for i := range len(got) + 1 {
			try := names{}
			for page, there := range n {
				try[page] = there
			}
			if try.match(want[1:], got[i:]) {
				for page, there := range try {
					n[page] = there
				}
				return true
			}
		}
		return false
	case len(got) == 0:
		return false
	}
	return n.line(want[0], got[0]) && n.match(want[1:], got[1:])
}

func TestAPageIsComparedWithWhatIsPrinted(t *testing.T) {
	t.Parallel()
	run := func(c string) string { return "r1-" + strings.Repeat(c, 52) }
	for _, c := range []struct {
		want, got []string
		same      bool
	}{
		{[]string{"run r1-abcd… of a"}, []string{"run " + run("z") + " of a"}, true},
		{[]string{"run r1-abcd… of a"}, []string{"run r1-zzzz of a"}, false},
		{[]string{"r1-abcd…", "r1-abcd…"}, []string{run("z"), run("z")}, true},
		{[]string{"r1-abcd…", "r1-abcd…"}, []string{run("z"), run("y")}, false},
		{[]string{"at 2026-11-29T16:57:25Z by vm-3b7ce54d"}, []string{"at 2027-01-01T00:00:00Z by my.host-00112233"}, true},
		{[]string{"at 2026-11-29T16:57:25Z by vm-3b7ce54d"}, []string{"at noon by vm-3b7ce54d"}, false},
		{[]string{"by vm-3b7ce54d and vm-3b7ce54d"}, []string{"by h-00112233 and h-44556677"}, false},
		{[]string{"(pid 7509 on vm)"}, []string{"(pid 12 on host-1)"}, true},
		{[]string{"at epoch 1"}, []string{"at epoch 2"}, false},
		{[]string{"exit 3 (a.b)"}, []string{"exit 3 (axb)"}, false},
		{[]string{"a", "…", "b"}, []string{"a", "x", "y", "b"}, true},
		{[]string{"a", "…"}, []string{"a"}, true},
		{[]string{"a", "…", "b"}, []string{"a", "x"}, false},
		{[]string{"a"}, []string{"a", "b"}, false},
		{[]string{"a", "b"}, []string{"a"}, false},
		{[]string{"from … to x"}, []string{"from here to x"}, true},
	} {
		if got := (names{}).match(c.want, c.got); got != c.same {
			t.Errorf("%q and %q: %v, want %v", c.want, c.got, got, c.same)
		}
	}
}

func TestABlockSaysWhatItIs(t *testing.T) {
	t.Parallel()
	page := "text\n```console\n$ a\nb\n$ c \\\n  d\n```\n<!-- file: f.yaml -->\n```\nx: 1\n```\n<!-- not run: no Docker -->\n```sh\ny\n```\n```sh\nz\n\n```\n"
	blocks, err := Blocks(page)
	if err != nil || len(blocks) != 4 {
		t.Fatalf("%+v, %v", blocks, err)
	}
	want := "[{3 a [b]} {5 c \\\n  d []}] [{17 z []}]"
	if got := fmt.Sprintf("%v %v", blocks[0].Steps(), blocks[3].Steps()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b := blocks[1]; b.Kind != File || b.About != "f.yaml" || b.Lines[0] != "x: 1" || blocks[2].Kind != NotRun || blocks[2].About != "no Docker" {
		t.Errorf("%+v", blocks)
	}
	for _, bad := range []string{"```\nx\n```\n", "```console\nno prompt\n```\n", "```sh\nno end\n", "<!-- not run: -->\n```\nx\n```\n", "```yaml\nx: 1\n```",
		"text\n\n    only indented\n", "<!-- not run: aa -->\n<!-- not run: bb -->\n```sh\nx\n```\n"} {
		if b, err := Blocks(bad); err == nil {
			t.Errorf("%q is %+v", bad, b)
		}
	}
}
