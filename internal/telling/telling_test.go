package telling

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	multierror "github.com/hashicorp/go-multierror"
)

func TestAMessageDoesNotSayWhichGoPackageAnErrorIsOf(t *testing.T) {
	for in, want := range map[string]string{
		"no etcd endpoint answers: coord: not sent, nothing happened: dial":           "no etcd endpoint answers: not sent, nothing happened: dial",
		"relay: relay: full\njournal: poisoned":                                       "full; poisoned",
		"coord/etcd: coord: invalid request: no client":                               "invalid request: no client",
		"pump: relay: coord: x (seal: no key)":                                        "pump: x (no key)",
		"the other relay: gone":                                                       "the other relay: gone",
		"was not run: agent relay: busy":                                              "was not run: agent relay: busy",
		"open: " + multierror.Append(errors.New("claim: a"), errors.New("b")).Error(): "open: 2 errors occurred: a; b",
		// Words of people and keys of the configuration stay; so does an ordinary word.
		`not run: coord: agent is paused: by ada: "client: wrong build"`:            `not run: agent is paused: by ada: "client: wrong build"`,
		`coord: agent is paused: by ada: "a \"b: relay: c\\\": coord: d"; coord: x`: `agent is paused: by ada: "a \"b: relay: c\\\": coord: d"; x`,
		`coord: recovery gate is set: by ada: "seal: broken:\n* (relay: x)"`:        `recovery gate is set: by ada: "seal: broken:\n* (relay: x)"`,
		"f.yaml:5:3: output: per_run is below 32KiB\nf.yaml:7:1: relay: unknown":    "f.yaml:5:3: output: per_run is below 32KiB; f.yaml:7:1: relay: unknown",
		"f.yaml:5:3: agents.a.cron: schedule: not valid: x":                         "f.yaml:5:3: agents.a.cron: not valid: x",
		"/etc/x: config: permission denied":                                         "/etc/x: config: permission denied",
		"ask: dial 10.0.0.1:2379: coord: not sent":                                  "ask: dial 10.0.0.1:2379: not sent",
		"api: config: not valid":                                                    "not valid",
		"a 5\" disk: coord: full":                                                   "a 5\" disk: full",
		"fence: work: no such agent in this node's configuration; work: not begun":  "no such agent in this node's configuration; work: not begun",
		"":      "",
		"a\n\n": "a",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q is told as %q, want %q", in, got, want)
		}
	}
}

// texts are the string literals of a file, and whether they are of its variables: those of errors that others wrap.
func texts(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	var end token.Pos // of the variable
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			end = token.NoPos
		case *ast.ValueSpec:
			end = n.End()
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				all[s] = all[s] || n.Pos() < end
			}
		}
		return true
	})
	return all
}

func TestEveryPackageWhoseErrorsBearItsNameIsKnown(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != "../.." && (strings.HasPrefix(name, ".") || nested == nil || strings.HasSuffix(name, "test") || name == "faultfs" || name == "cmd") {
				return filepath.SkipDir // tests alone import them, or it is the program's own name
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir, _ := filepath.Rel("../..", filepath.Dir(path))
		for text, wrapped := range texts(t, path) {
			for _, own := range []string{dir, filepath.Base(dir)} {
				if after, ok := strings.CutPrefix(text, own+": "); ok {
					if seen++; Text(text) != Text(after) || wrapped && Text("x: "+text) != "x: "+Text(after) {
						t.Errorf("%s: %q is told as %q", path, text, Text(text))
					}
				}
			}
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d messages were found: %v", seen, err)
	}
}
