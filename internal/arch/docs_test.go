package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/test/docs"
)

var testNames = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)`")

// TestEveryTestThatThePromisesNameExists keeps docs/guarantees.md honest: a promise without its test is a wish.
func TestEveryTestThatThePromisesNameExists(t *testing.T) {
	page, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	names := testNames.FindAllStringSubmatch(string(page), -1)
	if len(names) < 50 {
		t.Fatalf("%d tests named: the page was lost", len(names))
	}
	sources := testSources(t)
	for _, n := range names {
		if !strings.Contains(sources, "func "+n[1]+"(") && !strings.Contains(sources, `"`+n[1]+`"`) {
			t.Errorf("docs/guarantees.md names %s, which is no test here", n[1])
		}
	}
	for i, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| promise") && !strings.HasPrefix(line, "| ---") &&
			strings.Count(line, "|") == 5 && !testNames.MatchString(line) {
			t.Errorf("docs/guarantees.md line %d has no test: %s", i+1, line)
		}
	}
}

// testSources is the text of all test files of the module, and of the conformance suites.
func testSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		suite := strings.Contains(path, "coordtest/") || strings.Contains(path, "relaytest/")
		if strings.HasSuffix(path, "_test.go") || suite && strings.HasSuffix(path, ".go") {
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(src)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

var links = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)

func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, more...), "../../README.md")
	if len(pages) < 10 {
		t.Fatalf("%d pages found: the list was lost", len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
			}
		}
	}
}

// What stands in a block is run by test/docs, or the page says why it cannot be.
func TestEveryBlockThatPeopleCopySaysWhatItIs(t *testing.T) {
	for _, page := range docs.Pages {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		if blocks, err := docs.Blocks(string(text)); err != nil {
			t.Errorf("%s: %v", page, err)
		} else if len(blocks) < 10 {
			t.Errorf("%s: %d blocks found: they were lost", page, len(blocks))
		}
	}
}
