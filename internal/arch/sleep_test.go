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

// sleeps are the functions that sleep outside the text of a synctest bubble, and why that is no waiting for things to happen.
var sleeps = map[string]string{
	"cmd/syncnode eventually":    "between two looks, with a deadline",
	"cmd/syncnode scriptUntil":   "between two looks, with a deadline",
	"cmd/syncnode scriptKill9":   "between two looks, with a deadline",
	"cmd/syncnode scriptWaiting": "between two looks, with a deadline",
	"coord pass":                 "called in a bubble",
	"coord/etcd eventually":      "between two looks, with a deadline",
	"internal/child eventually":  "between two looks, with a deadline",
	"internal/child initProcess": "between two looks, in the process that is process 1 of its namespace",
	"test/cluster parent":        "a process that is there to be killed",
	"dispatch chaos":             "called in a bubble",
	"dispatch crashed":           "called in a bubble",
	"dispatch failAt":            "called in a bubble",
	"dispatch live":              "work of a bubble's time",
	"dispatch Stop":              "work of a bubble's time",
	"dispatch work":              "a disk of a bubble's time",
	"dispatch TestALeaseLostBeforeTheEffectVoidsTheAttempt": "what its table holds is called in a bubble",
	"fence TestCheckSaysYesOnlyToTheHolderOfAnOpenAttempt":  "what its table holds is called in a bubble",
	"fence Look":  "a log of a bubble's time",
	"fence begin": "called in a bubble",
}

// TestNoTestSleepsToLetThingsHappen: where a test sleeps, time is that of a bubble and does not pass, or it is the pause between two looks.
func TestNoTestSleepsToLetThingsHappen(t *testing.T) {
	dirs, used := map[string][]*ast.FuncDecl{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		suite := strings.Contains(path, "test/") // coordtest, relaytest, foldtest, test/cluster, test/compose
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || !suite && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../../"))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				dirs[dir] = append(dirs[dir], f)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for dir, funcs := range dirs {
		bubbles := map[string]bool{"synctest.Test": true} // and the package's own functions that make one
		for _, f := range funcs {
			if calls(f, bubbles) {
				bubbles[f.Name.Name] = true
			}
		}
		for _, f := range funcs {
			if !calls(f, map[string]bool{"time.Sleep": true}) {
				continue
			}
			found++
			name := dir + " " + f.Name.Name
			used[name] = true
			if sleeps[name] == "" && !calls(f, bubbles) {
				t.Errorf("%s sleeps outside a bubble: wait for a condition with a deadline", name)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d functions of tests sleep: they were not found", found)
	}
	for name := range sleeps {
		if !used[name] {
			t.Errorf("%s does not sleep any more", name)
		}
	}
}

// calls reports whether f calls one of the functions by its name.
func calls(f *ast.FuncDecl, names map[string]bool) (yes bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			yes = yes || names[fun.Name]
		case *ast.SelectorExpr:
			if pkg, ok := fun.X.(*ast.Ident); ok {
				yes = yes || names[pkg.Name+"."+fun.Sel.Name]
			}
		}
		return true
	})
	return yes
}
