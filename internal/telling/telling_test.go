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
		"":      "",
		"a\n\n": "a",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q is told as %q, want %q", in, got, want)
		}
	}
}

// texts are the string literals of a file.
func texts(t *testing.T, path string) (all []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, s)
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
		for _, text := range texts(t, path) {
			for _, own := range []string{dir, filepath.Base(dir)} {
				if after, ok := strings.CutPrefix(text, own+": "); ok {
					if seen++; Text("x: "+text) != "x: "+Text(after) {
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
