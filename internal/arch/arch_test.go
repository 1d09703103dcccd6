// Package arch holds the test that keeps the picture of the house in docs/architecture.md true.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/syncnode/syncnode/"

// may lists, for each package, the packages of the module that it may import, and nothing else. What is not
// listed here yet is an arrow nobody has thought about.
var may = map[string][]string{
	// Leaves: each does one thing and knows nothing of the rest.
	"internal/bubble":   {}, // tests alone import it
	"internal/telling":  {},
	"internal/thorough": {}, // tests and their harness alone import it
	"internal/ident":    {},
	"internal/child":    {},
	"internal/meant":    {},
	"internal/wire":     {},
	"internal/durable":  {},
	"internal/embedded": {"internal/durable"},
	"internal/faultfs":  {"internal/durable", "internal/thorough"}, // tests alone import it
	"internal/proc":     {"internal/durable", "internal/ident"},
	"schedule":          {},
	"schedule/due":      {"schedule"},
	"test/cluster":      {"internal/thorough"},

	"internal/fencesock": {}, // for exec and for nodes
	"node/output":        {},
	"test/docs":          {},
	"node/effect":        {"node/config", "node/output", "dispatch", "coord", "internal/command", "internal/child", "internal/ident"},

	"oplog":         {"internal/ident"},
	"fold":          {"oplog"},
	"fold/foldtest": {"oplog"},
	"journal":       {"oplog", "internal/ident", "internal/durable"},
	"journal/index": {"journal", "oplog"},
	"identity":      {"internal/ident", "internal/durable", "internal/proc"},
	"checkpoint":    {"oplog", "fold", "journal", "internal/durable", "internal/ident"},
	"seal":          {"internal/ident", "internal/durable"},

	"coord":                {"internal/ident"},
	"coord/internal/rules": {"coord"},
	"coord/memory":         {"coord", "coord/internal/rules", "internal/ident"},
	"coord/etcd":           {"coord", "coord/internal/rules", "internal/ident"},
	"coord/remote":         {"coord", "internal/wire"},
	"coord/coordtest":      {"coord", "internal/ident"},

	"internal/recovery": {"coord", "internal/book"},
	"internal/doctor":   {"coord", "coord/etcd"}, // it tells what etcd says of itself

	"relay":           {"oplog", "internal/ident"},
	"relay/memory":    {"relay", "oplog", "internal/ident"},
	"relay/dir":       {"relay", "oplog", "internal/durable", "internal/ident"},
	"relay/etcd":      {"relay", "oplog", "internal/ident"},
	"relay/remote":    {"relay", "oplog", "internal/wire"},
	"relay/relaytest": {"relay", "oplog", "relay/memory"}, // the reference, as a shadow that never drops

	"session":          {"relay", "fold", "oplog", "journal", "checkpoint", "seal"},
	"fence":            {"coord"},
	"fence/guard":      {"internal/ident"}, // services that know nothing of leases import it
	"dispatch":         {"coord", "fence", "internal/ident"},
	"internal/command": {"dispatch", "internal/child", "internal/fencesock", "internal/ident"},
	"internal/book":    {"dispatch", "coord", "oplog", "journal", "journal/index", "internal/durable", "internal/ident"},
	"node/config":      {"schedule", "schedule/due", "dispatch", "coord", "node/output", "node/owner", "internal/ident", "internal/meant"},
	"node":             {"session", "dispatch", "coord", "relay", "oplog", "seal", "checkpoint", "internal/durable", "node/owner"},
	"node/hold":        {"coord", "dispatch"},
	"node/owner":       {"coord"},
	"node/events":      {"coord"},
	"node/claim":       {"coord", "dispatch", "node/events", "node/hold", "internal/ident"},
	"node/metrics":     {"coord", "dispatch", "node/events", "node/hold", "node/output", "oplog", "relay", "schedule/due", "seal", "session"},
	"client":           {"internal/wire"},
	"api":              {"coord", "dispatch", "node/claim", "node/events", "internal/ident", "internal/telling"},
	"node/missed":      {"oplog", "schedule", "schedule/due", "internal/ident"},
	"node/work":        {"coord", "dispatch", "schedule", "schedule/due", "node/config", "node/hold", "node/owner", "node/missed", "internal/ident"},
}

// why says, for an arrow that people are tempted to draw, what it would break.
var why = map[string]string{
	"oplog":        "oplog is pure: no clock, I/O or goroutine, so that any host folds the same bytes",
	"schedule":     "a schedule is a pure function of spec, zone and time: what names an occurrence asks nobody",
	"schedule/due": "what is due is decided over readings and records; the node asks the clocks and the ledger",
	"fold":         "fold is pure, and knows nothing of where ops come from",
	"coord":        "the contract knows no implementation; no etcd type crosses it",
	"relay":        "the contract knows no implementation; a relay never sees a fold",
	"fence":        "the fence needs small interfaces, not an adapter",
	"session":      "a session must work over any relay: wiring chooses one",
	"api":          "HTTP stands before a node and knows no flag and no store",
	"dispatch":     "the one path of a run decides over contracts; wiring chooses the adapters",
}

// wiring may import everything.
var wiring = []string{"cmd/", "test/compose", "examples/", "bench", "internal/arch", "internal/ci"}

type listed struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

func isWiring(pkg string) bool {
	return slices.ContainsFunc(wiring, func(w string) bool { return strings.HasPrefix(pkg, w) })
}

func TestPackagesImportOnlyWhatThePictureShows(t *testing.T) {
	packages := list(t, module+"...")
	if len(packages) < 10 {
		t.Fatalf("%d packages found: the list was lost", len(packages))
	}
	for _, p := range packages {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if isWiring(pkg) {
			continue
		}
		allowed, known := may[pkg]
		if !known {
			t.Errorf("package %s is not in the picture: add it to docs/architecture.md and to this test", pkg)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, which the picture does not show. %s", pkg, to, why[pkg])
			}
		}
	}
}

// foreign are imports that only the named packages may have.
var foreign = []struct {
	prefix, why string
	only        []string
}{
	{"go.etcd.io/etcd/client", "only the etcd adapters speak to etcd; everything else speaks to a contract",
		[]string{"coord/etcd", "relay/etcd", "internal/embedded", "test/cluster"}},
	{"go.etcd.io/etcd/server", "only the embedded wiring and the test harness carry a server",
		[]string{"internal/embedded", "test/cluster"}},
	{"go.yaml.in", "what is read from YAML is read strictly, in one place", []string{"node/config"}},
	{"github.com/danielgtaylor/huma", "only the API describes itself", []string{"api"}},
	{"github.com/prometheus", "only one package knows how figures are shown", []string{"node/metrics"}},
	{"github.com/spf13", "flags belong to the program", nil},
	{"go.etcd.io/bbolt", "only the derived index is a bbolt file", []string{"journal/index"}},
}

func TestForeignCodeStaysInItsPlace(t *testing.T) {
	for _, p := range list(t, module+"...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if isWiring(pkg) {
			continue
		}
		for _, imp := range p.Imports {
			for _, f := range foreign {
				if strings.HasPrefix(imp, f.prefix) && !slices.Contains(f.only, pkg) {
					t.Errorf("%s imports %s: %s", pkg, imp, f.why)
				}
			}
		}
	}
}

func TestPurePackagesHaveNoClockFilesOrGoroutines(t *testing.T) {
	for _, p := range list(t, module+"oplog", module+"fold", module+"schedule") {
		for _, imp := range p.Imports {
			for _, no := range []string{"os", "net", "sync", "context", "math/rand", "math/rand/v2"} {
				if imp == no {
					t.Errorf("%s imports %s: it must give the same answer everywhere", p.ImportPath, imp)
				}
			}
		}
	}
}

// clocks are the functions of package time that ask what time it is, or wait.
var clocks = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)\b`)

func TestPurePackagesAskNoClock(t *testing.T) {
	for _, dir := range []string{"../../oplog", "../../fold", "../../schedule"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if hit := clocks.Find(src); hit != nil {
				t.Errorf("%s uses %s: it must give the same answer everywhere", f, hit)
			}
		}
	}
}

// An image from nothing but the program has no zones of its own.
func TestTheProgramCarriesTimeZones(t *testing.T) {
	for _, p := range list(t, "-deps", module+"cmd/syncnode") {
		if p.ImportPath == "time/tzdata" {
			return
		}
	}
	t.Error("cmd/syncnode does not import time/tzdata: --tz would be refused in a container")
}
