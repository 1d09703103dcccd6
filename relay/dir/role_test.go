package dir_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// twoReplicas is a folder in which a and b are replicas that have acked all three ops of a.
func twoReplicas(t *testing.T) (root string, all oplog.Frontier) {
	t.Helper()
	root = t.TempDir()
	a, w := relaytest.NewAuthor("a"), at(t, root)
	push(t, w, a.Write(t, 3, 60))
	all = oplog.Frontier{"a": {Seq: 2, ID: a.Ops[2].ID}}
	for _, device := range []string{"a", "b"} {
		if err := errors.Join(w.Register(t.Context(), device, relay.Replica), w.Ack(t.Context(), device, all)); err != nil {
			t.Fatal(err)
		}
	}
	return root, all
}

func stableOf(t *testing.T, r *dir.Relay) oplog.Frontier {
	t.Helper()
	roster, err := r.Roster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return relay.Stable(roster)
}

func TestAFolderInWhichNoDeviceWroteHoldsNoCollectionBack(t *testing.T) {
	root, all := twoReplicas(t)
	role := files(t, root)["devices/d-b/role.json"]
	mkdir := func(p string) error { return os.Mkdir(p, 0o700) }
	fifo := func(p string) error { return syscall.Mkfifo(p, 0o600) }
	text := func(text string) func(string) error {
		return func(p string) error { return os.WriteFile(p, []byte(text), 0o600) }
	}
	for what, made := range map[string]map[string]func(path string) error{
		"pipes":                {"role.json": fifo, "beat.json": fifo, "ack.json": fifo, "segments": fifo, "checkpoints": fifo},
		"directories":          {"role.json": mkdir, "beat.json": mkdir, "ack.json": mkdir, "segments": mkdir, "checkpoints": mkdir},
		"empty files":          {"role.json": text(""), "beat.json": text(""), "ack.json": text(""), "floor.json": text("")},
		"conflict copies":      {"role.sync-conflict-20260102-030405-ABCDEFG.json": text(role), "role (1).json": text(role)},
		"another's role":       {"role.json": text(role)},
		"half a role":          {"role.json": text(role[:len(role)/2])},
		"a link":               {"role.json": func(p string) error { return os.Symlink("../d-b/role.json", p) }},
		"pipes beside a child": {"role.json": fifo, "segments": mkdir, "segments/0000000000000000.jsonl": text("no header\n\n")},
	} {
		folder := filepath.Join(root, "devices/d-x")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(made)) {
			if err := made[name](filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		r := at(t, root)
		roster, err := r.Roster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range roster {
			if m.Device == "x" && m.Role != relay.Seen {
				t.Errorf("%s: listed as %s", what, m.Role)
			}
		}
		if got := relay.Stable(roster); !got.Equal(all) {
			t.Errorf("%s: stable is %v, expected %v", what, got, all)
		}
		if found := report(t, r); len(found.Oddities) == 0 && what != "directories" {
			t.Errorf("%s: not in the report", what)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReplicaWhoseRoleCannotBeReadHoldsCollectionBackByAnythingThatItWrote(t *testing.T) {
	whole, _ := twoReplicas(t)
	b := relaytest.NewAuthor("b")
	push(t, at(t, whole), b.Write(t, 1, 60))
	have := files(t, whole)
	segment := strings.Replace(segmentA, "d-a", "d-b", 1)
	role := have["devices/d-b/role.json"]
	for what, text := range map[string]string{"half": role[:len(role)/2], "empty": "", "another's": strings.ReplaceAll(role, `"b"`, `"a"`)} {
		for _, left := range []string{"devices/d-b/beat.json", "devices/d-b/ack.json", segment} {
			root := t.TempDir()
			for name, data := range have {
				if !strings.HasPrefix(name, "devices/d-b/") || name == left {
					put(t, filepath.Join(root, name), data)
				}
			}
			// What it has acked is out of the way, so that only its role can hold anything back.
			put(t, filepath.Join(root, "devices/d-b/ack.json"), "")
			if left == "devices/d-b/ack.json" {
				put(t, filepath.Join(root, left), strings.ReplaceAll(have[left], `"seq":2`, `"seq":0`))
			}
			put(t, filepath.Join(root, "devices/d-b/role.json"), text)
			if got := stableOf(t, at(t, root)); len(got) != 0 && got["a"].Seq != 0 {
				t.Errorf("%s, beside %s: stable is %v", what, left, got)
			}
		}
	}
	// What a newer release wrote is a role, whatever it says.
	root, _ := twoReplicas(t)
	put(t, filepath.Join(root, "devices/d-x/role.json"), `{"v":2,"device":"x","role":"replica"}`)
	if got := stableOf(t, at(t, root)); len(got) != 0 {
		t.Errorf("a role of a newer release: stable is %v", got)
	}
}

func TestARoleThatTheDiskDoesNotGiveHoldsCollectionBack(t *testing.T) {
	root, _ := twoReplicas(t)
	put(t, filepath.Join(root, "devices/d-x/role.json"), `{"v":1,"device":"x","role":"replica"}`)
	d := newDisk(t, root)
	r := open(t, dir.Config{FS: unreadable{d, "devices/d-x/role.json"}})
	if got := stableOf(t, r); len(got) != 0 {
		t.Errorf("stable is %v though a role cannot be read from the disk", got)
	}
}

// unreadable fails to open a file.
type unreadable struct {
	dir.FS
	name string
}

func (u unreadable) Open(name string, flag int) (dir.File, error) {
	if name == u.name {
		return nil, errDisk
	}
	return u.FS.Open(name, flag)
}

func TestADeviceIsToldToRegisterAgainWhileItsRoleIsDamaged(t *testing.T) {
	root, all := twoReplicas(t)
	name := filepath.Join(root, "devices/d-b/role.json")
	for _, text := range []string{"", "{", `{"v":1,"device":"a","role":"replica"}`} {
		put(t, name, text)
		r := at(t, root)
		info, err := r.Hello(t.Context(), "b")
		if err != nil || info.Role != relay.Seen {
			t.Errorf("%q: hello says %s, %v", text, info.Role, err)
		}
		if err := r.Register(t.Context(), "b", relay.Replica); err != nil {
			t.Fatal(err)
		}
		if got := stableOf(t, at(t, root)); !got.Equal(all) {
			t.Errorf("%q: after it registered again stable is %v", text, got)
		}
	}
}
