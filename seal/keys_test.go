package seal_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/seal"
)

func TestAGeneratedFileIsItsOwnersAloneAndOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.keys")
	info, err := seal.Generate(path, day)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	list := openKeys(t, path).List()
	if len(list) != 1 || list[0] != info || !info.Seals || !info.Created.Equal(day) {
		t.Errorf("list %+v, generated %+v", list, info)
	}
	before, _ := os.ReadFile(path)
	if _, err := seal.Generate(path, day); !errors.Is(err, seal.ErrExists) {
		t.Error(err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a refused Generate changed the file")
	}
}

func TestGenerateFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "seal.keys"), filepath.Join(dir, "elsewhere")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Generate(path, day); !errors.Is(err, seal.ErrExists) {
		t.Error(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the key was written elsewhere")
	}
}

func TestAfterARotationTheNewestSealsAndTheOlderOpen(t *testing.T) {
	path := keyFile(t, 1, 1)
	k := openKeys(t, path)
	s := sealer(t, k, all)
	first := mustSeal(t, s, place(), text)
	old := k.List()[0].ID
	added, err := seal.Rotate(path, day.Add(time.Hour))
	if err != nil || added.ID == old {
		t.Fatal(added, err)
	}
	if !bytes.Contains(mustSeal(t, s, place(), text), []byte(old)) {
		t.Error("a key is used before the reload")
	}
	if changed, err := k.Reload(); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if changed, err := k.Reload(); err != nil || changed {
		t.Errorf("nothing changed: %v, %v", changed, err)
	}
	if list := k.List(); len(list) != 2 || list[0].ID != old || list[0].Seals || list[1] != added {
		t.Errorf("%+v", list)
	}
	if !bytes.Contains(mustSeal(t, s, place(), text), []byte(added.ID)) {
		t.Error("the newest key does not seal")
	}
	if got, err := s.Open(place(), first); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatWasParkedOpensOnceTheKeyCame(t *testing.T) {
	theirs, ours := keyFile(t, 1, 1), filepath.Join(t.TempDir(), "seal.keys")
	e := mustSeal(t, sealer(t, openKeys(t, theirs), all), place(), text)
	k := openKeys(t, ours)
	s := sealer(t, k, all)
	if _, err := s.Read(place(), e); !errors.Is(err, seal.ErrNoKey) {
		t.Fatal(err)
	}
	if changed, err := k.Reload(); err != nil || changed {
		t.Errorf("without a file: %v, %v", changed, err)
	}
	content, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := k.Reload(); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if got, err := s.Read(place(), e); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAFailedReloadKeepsTheKeys(t *testing.T) {
	path := keyFile(t, 1, 2)
	k := openKeys(t, path)
	before := k.List()
	for name, damage := range map[string]func() error{
		"content": func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"mode":    func() error { return os.Chmod(path, 0o644) },
		"gone":    func() error { return os.Remove(path) },
	} {
		if err := damage(); err != nil && name != "mode" {
			t.Fatal(err)
		}
		if changed, err := k.Reload(); err == nil || changed {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
		if got := k.List(); len(got) != 2 || got[0] != before[0] || got[1] != before[1] {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAFileThatOthersMayTouchIsRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666} {
		path := keyFile(t, 1, 1)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.Open(path); !errors.Is(err, seal.ErrExposed) {
			t.Errorf("%04o: %v", mode, err)
		}
		if _, err := seal.Rotate(path, day); !errors.Is(err, seal.ErrExposed) {
			t.Errorf("%04o: rotate: %v", mode, err)
		}
	}
	path := keyFile(t, 1, 1)
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	openKeys(t, path)
}

func TestALinkAPipeOrAFolderIsNoKeyFile(t *testing.T) {
	dir := t.TempDir()
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(keyFile(t, 1, 1), link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, pipe, dir} {
		if _, err := seal.Open(path); !errors.Is(err, seal.ErrExposed) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAnotherUsersFileIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := keyFile(t, 1, 1)
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Skipf("this root cannot give a file away: %v", err)
	}
	if _, err := seal.Open(path); !errors.Is(err, seal.ErrExposed) {
		t.Error(err)
	}
}

func TestConcurrentRotationsLoseNoKey(t *testing.T) {
	path := keyFile(t, 1, 1)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := seal.Rotate(path, day); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(openKeys(t, path).List()); n != 11 {
		t.Errorf("%d keys, want 11", n)
	}
}

func TestOnlyOneOfConcurrentGenerationsMakesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.keys")
	ids := make(chan string, 10)
	var wg sync.WaitGroup
	for range cap(ids) {
		wg.Go(func() {
			info, err := seal.Generate(path, day)
			if err == nil {
				ids <- info.ID
			} else if !errors.Is(err, seal.ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || <-ids != openKeys(t, path).List()[0].ID {
		t.Error("more than one caller was told of a key")
	}
}

func TestRotateNeedsAFileAndLeavesNothingWithoutOne(t *testing.T) {
	dir := t.TempDir()
	if _, err := seal.Rotate(filepath.Join(dir, "seal.keys"), day); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestAFullFileTakesNoMoreKeysThanCanBeRead(t *testing.T) {
	path := keyFile(t, 1, 1)
	content, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(content, "#"+strings.Repeat("x", 65536-len(content)-2)+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Rotate(path, day); !errors.Is(err, seal.ErrKeyFile) {
		t.Error(err)
	}
	if n := len(openKeys(t, path).List()); n != 1 {
		t.Errorf("%d keys", n)
	}
}

func TestRotationKeepsComments(t *testing.T) {
	path := keyFile(t, 1, 1)
	content, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(content, "# größer als der alte\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Rotate(path, day); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(path); !bytes.Contains(after, []byte("# größer als der alte\nkey k1-")) {
		t.Errorf("%s", after)
	}
}

const goodLine = "key k1-ID 2026-11-29T01:30:00Z " // its key is 32 bytes 0x01, 0x02, …

func TestAKeyFileIsReadStrictly(t *testing.T) {
	content, err := os.ReadFile(keyFile(t, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	good := string(content)
	key := good[strings.Index(good, "\nkey ")+1:]
	if _, _, err := seal.ParseFile([]byte("syncnode-seal-keys 1\n" + key)); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":            "",
		"no header":        key,
		"comment first":    "# x\n" + good,
		"newer":            strings.Replace(good, "keys 1\n", "keys 2\n", 1),
		"padded version":   strings.Replace(good, "keys 1\n", "keys 01\n", 1),
		"no key":           "syncnode-seal-keys 1\n# x\n",
		"cut":              good[:len(good)-1],
		"cut key":          good[:len(good)-3] + "\n",
		"blank line":       good + "\n",
		"CRLF":             strings.ReplaceAll(good, "\n", "\r\n"),
		"twice":            good + key,
		"two blanks":       strings.Replace(good, "key k1", "key  k1", 1),
		"trailing blank":   strings.TrimSuffix(good, "\n") + " \n",
		"upper-case key":   good[:len(good)-65] + strings.ToUpper(good[len(good)-65:]),
		"other id":         strings.Replace(good, "k1-", "k1-0", 1),
		"other key":        good[:len(good)-2] + "1\n",
		"local time":       strings.Replace(good, "01:30:00Z", "01:30:00+01:00", 1),
		"fraction":         strings.Replace(good, "01:30:00Z", "01:30:00.5Z", 1),
		"no time":          strings.Replace(good, "2026-11-29T01:30:00Z", "yesterday", 1),
		"bad UTF-8":        good + "# \xff\n",
		"control":          good + "# \x1b[0m\n",
		"tab":              strings.Replace(good, "key k1", "key\tk1", 1),
		"too long":         good + strings.Repeat("# x\n", 65536/4),
		"text after a key": strings.TrimSuffix(good, "\n") + " # newest\n",
		"placeholder":      "syncnode-seal-keys 1\n" + goodLine + strings.Repeat("01", 32) + "\n",
	} {
		_, _, err := seal.ParseFile([]byte(bad))
		if _, typed := errors.AsType[*seal.FileError](err); !typed || !errors.Is(err, seal.ErrKeyFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASealerKnowsWhichKeysItHasAndReadsTheFileAgain(t *testing.T) {
	none := sealer(t, nil, all)
	if changed, err := none.Reload(); changed || err != nil || none.Sealing() || none.Has("k1-00000000000000000000000000000000") {
		t.Errorf("without a file: %v, %v", changed, err)
	}
	path := filepath.Join(t.TempDir(), "seal.keys")
	s := sealer(t, openKeys(t, path), all)
	info, err := seal.Generate(path, time.Now())
	if err != nil || s.Has(info.ID) || s.Sealing() {
		t.Fatalf("%v; the key is there before it was read", err)
	}
	if changed, err := s.Reload(); !changed || err != nil || !s.Has(info.ID) || !s.Sealing() {
		t.Errorf("read again: %v, %v, %v", changed, err, s.Has(info.ID))
	}
	if changed, err := s.Reload(); changed || err != nil {
		t.Errorf("nothing has changed: %v, %v", changed, err)
	}
}
