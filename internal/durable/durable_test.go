package durable_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/syncnode/syncnode/internal/durable"
)

func TestAFileIsReplacedWholeWhoeverWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := durable.Dir(dir); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "f")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			write := []func(string, []byte, os.FileMode) error{durable.Write, durable.Replace}[i%2]
			if err := write(name, []byte(strings.Repeat(string(rune('a'+i)), 5000)), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(name)
	if err != nil || len(text) != 5000 || strings.Trim(string(text), string(text[:1])) != "" {
		t.Errorf("%d bytes, %v: a mixture", len(text), err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestALockIsHeldByOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			held, err := durable.Lock(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer held.Close()
			if inside.Add(1) != 1 {
				t.Error("two inside")
			}
			inside.Add(-1)
		})
	}
	wg.Wait()
}
