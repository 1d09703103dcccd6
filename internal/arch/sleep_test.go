package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// sleeps are the functions of tests that may call time.Sleep, and why that is no waiting for things to happen.
var sleeps = map[string]string{
	"cmd/syncnode eventually":                               "between two looks, with a deadline",
	"cmd/syncnode scriptUntil":                              "between two looks, with a deadline",
	"cmd/syncnode scriptKill9":                              "between two looks, with a deadline",
	"cmd/syncnode scriptWaiting":                            "between two looks, with a deadline",
	"coord/etcd eventually":                                 "between two looks, with a deadline",
	"internal/child eventually":                             "between two looks, with a deadline",
	"internal/child initProcess":                            "between two looks, in the process that is process 1 of its namespace",
	"test/cluster parent":                                   "a process that is there to be killed",
	"dispatch chaos":                                        "many goroutines of a bubble begin at different times",
	"node/hold TestNoTwoRunsHoldAnAgentAtOnceWhateverFails": "many goroutines of a bubble begin and end at different times",
	"dispatch live":                                         "work of a bubble's time, of many goroutines",
	"dispatch Stop":                                         "work of a bubble's time, of many goroutines",
	"dispatch work":                                         "a disk of a bubble's time, of many goroutines",
	"dispatch TestAPermitIsTrustedUntilTwoThirdsOfTheLeaseAndNotBeyond": "trust has to be over at the instant itself, before any timer of that instant ran",
}

// TestNoTestSleepsToLetThingsHappen: a test waits for a condition with a deadline, or lets the time of a bubble pass by
// bubble.Pass, after which nothing is still about to happen at that instant.
func TestNoTestSleepsToLetThingsHappen(t *testing.T) {
	looked, used := 0, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		suite := strings.Contains(path, "test/") // coordtest, relaytest, foldtest, test/cluster, test/compose
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || !suite && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		looked++
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../../"))
		for _, decl := range file.Decls {
			name := dir + " a variable"
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = dir + " " + f.Name.Name
			}
			if !timeSleep(decl) {
				continue
			}
			used[name] = true
			if sleeps[name] == "" {
				t.Errorf("%s calls time.Sleep: wait for a condition with a deadline or, in a bubble, use bubble.Pass", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 200 {
		t.Errorf("%d files of tests: they were not found", looked)
	}
	for name := range sleeps {
		if !used[name] {
			t.Errorf("%s does not sleep any more", name)
		}
	}
}

// timeSleep reports whether time.Sleep is called, or handed on, within n.
func timeSleep(n ast.Node) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			pkg, ok := s.X.(*ast.Ident)
			yes = yes || ok && pkg.Name == "time"
		}
		return true
	})
	return yes
}
