package fencesock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/fencesock"
)

func TestOnlyAYesIsAYes(t *testing.T) {
	t.Parallel()
	var verdict error
	s, err := fencesock.Listen(t.Context(), func(context.Context) error { return verdict })
	if err != nil {
		t.Fatal(err)
	}
	if err := fencesock.Ask(t.Context(), s.Path()); err != nil {
		t.Errorf("a yes came as %v", err)
	}
	verdict = errors.New("a newer epoch is there")
	if err := fencesock.Ask(t.Context(), s.Path()); err == nil || err.Error() != verdict.Error() {
		t.Errorf("a no came as %v", err)
	}
	s.Close()
	if err := fencesock.Ask(t.Context(), s.Path()); err == nil {
		t.Error("nobody is there, and it was a yes")
	}
	if _, err := os.Stat(filepath.Dir(s.Path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory is still there: %v", err)
	}
}

func TestNonsenseAndSilenceAreNo(t *testing.T) {
	t.Parallel()
	for what, said := range map[string]string{"nonsense": "yes\n", "half a line": `{"ok":true}`, "nothing": "", "silence": "-"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if said == "-" {
					<-done
					return
				}
				conn.Write([]byte(said))
			}()
			defer close(done)
			if err := fencesock.Ask(t.Context(), l.Addr().String()); err == nil {
				t.Errorf("%s was a yes", what)
			}
		})
	}
}

func TestOnlyThisUserMayAsk(t *testing.T) {
	t.Parallel()
	s, err := fencesock.Listen(t.Context(), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, want := range map[string]os.FileMode{s.Path(): 0o600, filepath.Dir(s.Path()): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", path, info, err, want)
		}
	}
}

// A temporary directory with a long name is no reason not to run.
func TestALongTemporaryDirectoryDoesNotMatter(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	s, err := fencesock.Listen(t.Context(), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := fencesock.Ask(t.Context(), s.Path()); err != nil {
		t.Error(err)
	}
}
