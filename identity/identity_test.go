package identity_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/ident"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var machineA = identity.Options{MachineID: "aaaa", Host: "Web_01.example.org"}

func open(t *testing.T, dir string, o identity.Options) identity.Identity {
	t.Helper()
	id, err := identity.Open(dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return id
}

func TestADirectoryHasOneDeviceHoweverManyAskFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var wg sync.WaitGroup
	ids := make([]identity.Identity, 16)
	for i := range ids {
		wg.Go(func() { ids[i], _ = identity.Open(dir, machineA) })
	}
	wg.Wait()
	for _, id := range ids {
		if id.Device != ids[0].Device || id.Incarnation != 1 || id.Notice != "" {
			t.Fatalf("got %+v and %+v", ids[0], id)
		}
	}
	if !regexp.MustCompile(`^web01-[0-9a-f]{8}$`).MatchString(ids[0].Device) || ident.Check("device", ids[0].Device) != nil {
		t.Errorf("device %q", ids[0].Device)
	}
	info, err := os.Stat(filepath.Join(dir, "device.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*tmp*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestACopiedDirectoryIsANewIncarnationAndSaysSo(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	first := open(t, one, machineA)
	if err := os.CopyFS(two, os.DirFS(one)); err != nil {
		t.Fatal(err)
	}
	second := open(t, two, machineA)
	if second.Device == first.Device || second.Incarnation != 2 || !slices.Equal(second.Previous, []string{first.Device}) {
		t.Errorf("got %+v after %+v", second, first)
	}
	if !strings.Contains(second.Notice, first.Device) || !strings.Contains(second.Notice, "copied or moved") {
		t.Errorf("notice %q", second.Notice)
	}
	if again := open(t, two, machineA); again.Device != second.Device || again.Notice != "" || again.Incarnation != 2 {
		t.Errorf("not kept: %+v", again)
	}
	if original := open(t, one, machineA); original.Device != first.Device {
		t.Errorf("the original changed: %+v", original)
	}
}

func TestAClonedMachineIsANewIncarnation(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, machineA)
	other := machineA
	other.MachineID = "bbbb"
	second := open(t, dir, other)
	if second.Device == first.Device || second.Incarnation != 2 || !strings.Contains(second.Notice, "machine") {
		t.Errorf("got %+v", second)
	}
	text, err := os.ReadFile(filepath.Join(dir, "device.json"))
	if err != nil || strings.Contains(string(text), "bbbb") {
		t.Errorf("the machine's id is in the file: %s, %v", text, err)
	}
}

func TestOneDirectoryUnderTwoNamesIsOneDevice(t *testing.T) {
	base := t.TempDir()
	dir, link := filepath.Join(base, "dir"), filepath.Join(base, "link")
	first := open(t, dir, machineA)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if second := open(t, link, machineA); second.Device != first.Device || second.Dir != first.Dir {
		t.Errorf("got %+v after %+v", second, first)
	}
}

func TestAnIDGivenByHandIsCheckedAndUsed(t *testing.T) {
	dir := t.TempDir()
	if id := open(t, dir, identity.Options{Device: "my-host"}); id.Device != "my-host" || id.Incarnation != 0 {
		t.Errorf("got %+v", id)
	}
	if _, err := identity.Open(dir, identity.Options{Device: "../x"}); !errors.Is(err, ident.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("written: %v", left)
	}
}

func TestADamagedFileIsRefusedAndNotReplaced(t *testing.T) {
	for _, text := range []string{"", "{", `{"v":2,"device":"x","incarnation":1,"dir":"/"}`, `{"v":1,"device":"../x","incarnation":1,"dir":"/"}`, `{"v":1,"device":"x"}`} {
		dir := t.TempDir()
		name := filepath.Join(dir, "device.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.Open(dir, machineA); !errors.Is(err, identity.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := os.ReadFile(name); string(got) != text {
			t.Errorf("%q was replaced by %q", text, got)
		}
	}
}

func TestAHostWithoutAUsableNameStillGetsALegalID(t *testing.T) {
	for _, host := range []string{"---", "ÄÖ", strings.Repeat("x", 300), ".", "_"} {
		id := open(t, t.TempDir(), identity.Options{Host: host, MachineID: "x"})
		if err := ident.Check("device", id.Device); err != nil {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

const genA, genB = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

func TestAnotherGenerationBehindTheSameEndpointIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := identity.OpenClusters(dir)
	bind := func(ns, gen string, endpoints ...string) error {
		return identity.OpenClusters(dir).Bind(ns, endpoints, gen)
	}
	if err := bind("default", genA, "https://e1:2379", "https://e2:2379/"); err != nil {
		t.Fatal(err)
	}
	err := bind("default", genB, "https://e3:2379", "HTTPS://E2:2379")
	m, ok := errors.AsType[*identity.MismatchError](err)
	if !ok || m.Known != genA || m.Found != genB || m.Endpoint != "https://e2:2379" {
		t.Fatalf("got %v", err)
	}
	if err := bind("default", genB, "https://e3:2379"); err != nil {
		t.Errorf("a refused Bind left a trace, or a new cluster is refused: %v", err)
	}
	if err := bind("other", genB, "https://e1:2379"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if err := bind("default", genA, "https://e1:2379", "https://e9:2379"); err != nil {
		t.Errorf("one more endpoint: %v", err)
	}
	known, err := c.Known("default")
	if err != nil || !slices.Equal(known, []string{genA, genB}) {
		t.Errorf("known %v, %v", known, err)
	}
	if c.Dir("default", genA) == c.Dir("default", genB) || filepath.Dir(c.Dir("default", genA)) != dir {
		t.Errorf("folders %s, %s", c.Dir("default", genA), c.Dir("default", genB))
	}
	if err := c.Adopt("default", []string{"https://e1:2379"}, genB); err != nil {
		t.Error(err)
	}
	if err := bind("default", genB, "https://e1:2379"); err != nil {
		t.Errorf("after Adopt: %v", err)
	}
	if was, err := c.Earlier("default", genB); err != nil || !slices.Equal(was, []string{genA}) {
		t.Errorf("adopted in the place of %v, %v", was, err)
	}
	if behind, err := c.Behind("default", []string{"HTTPS://e1:2379/", "https://e2:2379", "https://new"}); err != nil || !slices.Equal(behind, []string{genA, genB}) {
		t.Errorf("behind e1 and e2: %v, %v", behind, err)
	}
	if was, err := c.Earlier("other", genB); err != nil || len(was) != 0 {
		t.Errorf("another namespace: in the place of %v, %v", was, err)
	}
	if err := bind("../x", genA, "e"); !errors.Is(err, ident.ErrInvalid) {
		t.Errorf("hostile namespace: %v", err)
	}
}

func TestConcurrentBindsLoseNothing(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := identity.OpenClusters(dir).Bind(fmt.Sprint("ns", i), []string{"http://e"}, genA); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		if known, err := identity.OpenClusters(dir).Known(fmt.Sprint("ns", i)); err != nil || len(known) != 1 {
			t.Errorf("ns%d: %v, %v", i, known, err)
		}
	}
}

func TestTheFilesAreFrozen(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, machineA)
	open(t, dir, identity.Options{MachineID: "b", Host: "h"})
	if err := identity.OpenClusters(dir).Bind("default", []string{"http://b:2379", "http://a:2379"}, genA); err != nil {
		t.Fatal(err)
	}
	frozen(t, filepath.Join(dir, "device.json"), "device.json", true)
	frozen(t, filepath.Join(dir, "clusters.json"), "clusters.json", false)
	if err := identity.OpenClusters(dir).Adopt("default", []string{"http://a:2379"}, genB); err != nil {
		t.Fatal(err)
	}
	frozen(t, filepath.Join(dir, "clusters.json"), "adopted.json", false)
}

// frozen compares a file with its golden one, made neutral if what it holds differs from run to run.
func frozen(t *testing.T, path, name string, differs bool) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if differs {
		got = neutral(t, got)
	}
	golden := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, got, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != string(got) {
		t.Errorf("%s changed (%v):\ngot\n%swant\n%s", name, err, got, want)
	}
}

// neutral replaces what differs from run to run.
func neutral(t *testing.T, text []byte) []byte {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	out := strings.ReplaceAll(string(text), d["dir"].(string), "/data")
	return regexp.MustCompile(`-[0-9a-f]{8}"`).ReplaceAll([]byte(out), []byte(`-00000000"`))
}

func TestAFrozenIDIsRenewedOnceAndRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := identity.Options{MachineID: "m1", Host: "web01"}
	old, err := identity.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	next, err := identity.Renew(dir, old.Device, "the relay holds another chain", o)
	if err != nil {
		t.Fatal(err)
	}
	if next.Device == old.Device || next.Incarnation != 2 || len(next.Previous) != 1 || next.Previous[0] != old.Device ||
		!strings.Contains(next.Notice, "the relay holds another chain") || !strings.Contains(next.Notice, next.Device) {
		t.Errorf("renewed as %+v", next)
	}
	for what, again := range map[string]func() (identity.Identity, error){
		"renewed again": func() (identity.Identity, error) { return identity.Renew(dir, old.Device, "again", o) },
		"opened":        func() (identity.Identity, error) { return identity.Open(dir, o) },
	} {
		if got, err := again(); err != nil || got.Device != next.Device || got.Incarnation != 2 || got.Notice != "" {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if _, err := identity.Renew(dir, "someone-else", "why", o); err == nil {
		t.Error("an id was renewed that this directory never had")
	}
	if _, err := identity.Renew(dir, "mine", "why", identity.Options{Device: "mine"}); !errors.Is(err, identity.ErrGiven) {
		t.Errorf("an id given by hand: %v", err)
	}
}

func TestReadingACopiedDirectoryChangesNothingAndSaysSo(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	if _, err := identity.Read(one, machineA); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	first := open(t, one, machineA)
	if err := os.CopyFS(two, os.DirFS(one)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(two, "device.json"))
	if err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{one: "", two: "copied or moved"} {
		id, err := identity.Read(dir, machineA)
		if err != nil || id.Device != first.Device || id.Incarnation != 1 || (id.Notice != "") != (says != "") || !strings.Contains(id.Notice, says) {
			t.Errorf("%s: %+v, %v", dir, id, err)
		}
	}
	if after, err := os.ReadFile(filepath.Join(two, "device.json")); err != nil || string(after) != string(before) {
		t.Errorf("changed: %s, %v", after, err)
	}
	if err := os.Remove(filepath.Join(two, "device.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.Read(two, machineA); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no id: %v", err)
	}
}
