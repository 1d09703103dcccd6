package checkpoint_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/faultfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTheBytesOfACheckpointAreFrozen(t *testing.T) {
	c := sampled(t)
	store := checkpoint.Store{Dir: t.TempDir()}
	meta := checkpoint.Meta{Parent: checkpoint.Hash(strings.Repeat("0a", 32)), Author: "laptop", WallMS: 1_700_000_000_009}
	if err := store.Save(c, meta); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(store.Dir, string(c.Hash)+".checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/checkpoint.golden"
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the bytes changed:\ngot\n%s\nwant\n%s", got, want)
	}
	back, gotMeta, err := store.Load(c.Hash)
	if err != nil || gotMeta != meta || back.Digest != c.Digest || back.State.Digest() != c.Digest || !back.All().Equal(c.All()) {
		t.Errorf("loaded %+v %+v: %v", back, gotMeta, err)
	}
	header, gotMeta, err := store.Header(c.Hash)
	if err != nil || gotMeta != meta || header.Hash != c.Hash || header.Digest != c.Digest || !header.Frontier().Equal(c.Frontier()) || !slices.Equal(header.Scopes, c.Scopes) {
		t.Errorf("header %+v %+v: %v", header, gotMeta, err)
	}
}

func TestAuthorParentAndTimeDoNotEnterTheName(t *testing.T) {
	store := checkpoint.Store{Dir: t.TempDir()}
	for _, meta := range []checkpoint.Meta{{Author: "a"}, {Author: "b", WallMS: 5}} {
		if err := store.Save(sampled(t), meta); err != nil {
			t.Fatal(err)
		}
	}
	hashes, err := store.List()
	if err != nil || len(hashes) != 1 {
		t.Errorf("%v %v", hashes, err)
	}
	if _, meta, err := store.Load(hashes[0]); err != nil || meta.Author != "a" {
		t.Errorf("the first author is %q: %v", meta.Author, err)
	}
	if err := store.Save(sampled(t), checkpoint.Meta{Author: "a\n"}); err == nil {
		t.Error("an author with a line break is saved")
	}
}

// A damage is told apart from the others, and nothing is removed for it.
func TestErrorsSayHowACheckpointIsDamaged(t *testing.T) {
	c := sampled(t)
	other := checkpoint.Of(folded(sample(t).ops[:2]))
	text := func(c *checkpoint.Checkpoint) []byte {
		store := checkpoint.Store{Dir: t.TempDir()}
		if err := store.Save(c, checkpoint.Meta{}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(store.Dir, string(c.Hash)+".checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := text(c)
	lying := bytes.Replace(body(t, c), []byte(c.Digest), []byte(strings.Repeat("0a", 32)), 1)
	lie := checkpoint.Hash(sha(lying))
	later := bytes.Replace(body(t, c), []byte(`{"fold":1`), []byte(`{"fold":2`), 1)
	kinds := []error{checkpoint.ErrUnreadable, checkpoint.ErrHash, checkpoint.ErrDigest, checkpoint.ErrName, fs.ErrNotExist}
	for _, d := range []struct {
		name string
		hash checkpoint.Hash
		text []byte
		want error
	}{
		{"whole", c.Hash, good, nil},
		{"empty", c.Hash, nil, checkpoint.ErrUnreadable},
		{"cut", c.Hash, good[:len(good)-1], checkpoint.ErrUnreadable},
		{"without its end", c.Hash, body(t, c), checkpoint.ErrUnreadable},
		{"no JSON", c.Hash, bytes.Replace(good, []byte(`"v":"blue"`), []byte(`"v":"bl"ue`), 1), checkpoint.ErrUnreadable},
		{"of another version", c.Hash, append(later, good[len(body(t, c)):]...), fold.ErrVersion},
		{"another value", c.Hash, bytes.Replace(good, []byte(`"v":"blue"`), []byte(`"v":"grey"`), 1), checkpoint.ErrHash},
		{"a digest that is not its state's", lie, append(bytes.Clone(lying), `{"hash":"`+string(lie)+"\"}\n"...), checkpoint.ErrDigest},
		{"another checkpoint", c.Hash, text(other), checkpoint.ErrName},
		{"another hash at the end", c.Hash, bytes.Replace(good, []byte(`{"hash":"`+c.Hash), []byte(`{"hash":"`+other.Hash), 1), checkpoint.ErrHash},
		{"missing", other.Hash, nil, fs.ErrNotExist},
	} {
		store := checkpoint.Store{Dir: t.TempDir()}
		path := filepath.Join(store.Dir, string(d.hash)+".checkpoint")
		if d.want != fs.ErrNotExist {
			if err := os.WriteFile(path, d.text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := store.Load(d.hash)
		if !errors.Is(err, d.want) {
			t.Errorf("%s: got %v, want %v", d.name, err, d.want)
		}
		for _, kind := range kinds {
			if errors.Is(err, kind) && kind != d.want && d.want != fold.ErrVersion {
				t.Errorf("%s: also matches %v", d.name, kind)
			}
		}
		if b, err := os.ReadFile(path); d.want != fs.ErrNotExist && (err != nil || !bytes.Equal(b, d.text)) {
			t.Errorf("%s: the file was touched", d.name)
		}
	}
}

// Every flipped bit and every cut of a file is noticed.
func TestNoDamagedByteIsOverlooked(t *testing.T) {
	p := faultfs.New().Process()
	store := checkpoint.Store{FS: p, Dir: "/c"}
	c := sampled(t)
	if err := store.Save(c, checkpoint.Meta{}); err != nil {
		t.Fatal(err)
	}
	name := "/c/" + string(c.Hash) + ".checkpoint"
	good, err := durable.ReadFrom(p, name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		_, damaged := f.WriteAt([]byte{good[i] ^ 1<<(i%8)}, int64(i))
		if _, _, err := store.Load(c.Hash); err == nil || damaged != nil {
			t.Fatalf("byte %d: %v", i, damaged)
		}
		cut := f.Truncate(int64(i))
		if _, _, err := store.Load(c.Hash); !errors.Is(err, checkpoint.ErrUnreadable) || cut != nil {
			t.Fatalf("cut at %d: %v, %v", i, err, cut)
		}
		if _, err := f.WriteAt(good[i:], int64(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSavingOnceMoreMakesDurableWhatAnotherLeftUnsynced(t *testing.T) {
	d := faultfs.New()
	store := checkpoint.Store{FS: d.Process(), Dir: "/c"}
	renamed := false
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		renamed = renamed || c.Op == "rename"
		if renamed && c.Op == "syncdir" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	c := sampled(t)
	if err := store.Save(c, checkpoint.Meta{}); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	d.Arm(nil)
	if err := store.Save(c, checkpoint.Meta{}); err != nil {
		t.Fatal(err)
	}
	after := checkpoint.Store{FS: d.After(faultfs.Nothing).Process(), Dir: "/c"}
	if _, _, err := after.Load(c.Hash); err != nil {
		t.Error(err)
	}
}

func TestSaveTouchesNoTemporaryFileOfAnother(t *testing.T) {
	store := checkpoint.Store{Dir: t.TempDir()}
	c := sampled(t)
	tmp := filepath.Join(store.Dir, string(c.Hash)+".checkpoint-0.tmp")
	if err := os.WriteFile(tmp, []byte("under way"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(c, checkpoint.Meta{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(tmp); err != nil || string(b) != "under way" {
		t.Errorf("%q %v", b, err)
	}
}

func TestTheNewestGoodOneIsFoundAndTheBadOnesAreNamed(t *testing.T) {
	var log bytes.Buffer
	store := checkpoint.Store{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := store.Newest(nil); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
	ops := sample(t).ops
	var all []checkpoint.Hash
	for _, n := range []int{2, 7, 4} {
		c := checkpoint.Of(folded(ops[:n]))
		all = append(all, c.Hash)
		if err := store.Save(c, checkpoint.Meta{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes.txt", "x.checkpoint", string(all[0]) + " (1).checkpoint"} {
		if err := os.WriteFile(filepath.Join(store.Dir, name), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := store.Newest(nil)
	if err != nil || found.Hash != all[1] || len(found.Skipped) != 0 {
		t.Fatalf("%v %v", found, err)
	}
	path := filepath.Join(store.Dir, string(all[1])+".checkpoint")
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged = bytes.Replace(damaged, []byte("blue"), []byte("grey"), 1)
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err = store.Newest(nil)
	if err != nil || found.Hash != all[2] || !errors.Is(found.Skipped[all[1]], checkpoint.ErrHash) {
		t.Errorf("%v %v", found, err)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), string(all[1])) {
		t.Errorf("nobody was told: %s", log.String())
	}
	refused := errors.New("what it does not cover is not held")
	found, err = store.Newest(func(h *checkpoint.Header) error {
		if h.Hash == all[2] {
			return refused
		}
		return nil
	})
	if err != nil || found.Hash != all[0] || !errors.Is(found.Skipped[all[2]], refused) {
		t.Errorf("%v %v", found, err)
	}
	if err := store.Prune(all[2], all[1]); !errors.Is(err, checkpoint.ErrHash) {
		t.Errorf("pruning down to a damaged one: %v", err)
	}
	if err := store.Prune(); err == nil {
		t.Error("pruning down to nothing")
	}
	if left, err := store.List(); err != nil || len(left) != 3 {
		t.Errorf("%v %v: something was removed", left, err)
	}
	if err := store.Save(checkpoint.Of(folded(ops)), checkpoint.Meta{}); err != nil {
		t.Error(err)
	}
	if _, _, err := store.Load(all[1]); err != nil {
		t.Errorf("saving did not repair a damaged one: %v", err)
	}
}
