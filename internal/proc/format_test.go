package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/internal/proc"
)

// The lock file of docs/formats/journal.md, byte for byte.
func TestALockFileIsAsTheFormatSays(t *testing.T) {
	dir := t.TempDir()
	l, err := proc.Open(dir, "0123-15")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got, err := os.ReadFile(filepath.Join(dir, "proc", "0123-15.lock"))
	want := fmt.Sprintf(`{"v":1,"pid":%d,"boot":"%s"}`+"\n", os.Getpid(), proc.BootID())
	if err != nil || string(got) != want {
		t.Errorf("the file holds %q, %v; want %q", got, err, want)
	}
}
