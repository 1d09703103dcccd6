package embedded

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func open(t *testing.T, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func dial(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLeasesOfEarlierProcessesAreRevokedAndDataSurvives(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	c := dial(t, s)
	grant, err := c.Grant(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "leased", "1", clientv3.WithLease(grant.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "kept", "1"); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = open(t, Config{Dir: dir})
	defer s.Close()
	c = dial(t, s)
	for key, want := range map[string]int64{"leased": 0, "kept": 1} {
		got, err := c.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if got.Count != want {
			t.Errorf("%s: %d keys, want %d", key, got.Count, want)
		}
	}
}

func TestABusyDirectoryNamesPidAndAgent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Agent: "nightly"})
	_, err := Open(t.Context(), Config{Dir: dir})
	var busy *BusyError
	if !errors.As(err, &busy) || !errors.Is(err, ErrBusy) {
		t.Fatalf("second open: %v, want a BusyError", err)
	}
	if busy.Owner.PID != os.Getpid() || busy.Owner.Agent != "nightly" {
		t.Errorf("owner %+v, want pid %d and agent nightly", busy.Owner, os.Getpid())
	}
	if owner, ok := FindOwner(dir); !ok || owner.Endpoint != s.Endpoint() {
		t.Errorf("FindOwner = %+v, %v; want endpoint %s", owner, ok, s.Endpoint())
	}
	s.Close()
	if _, ok := FindOwner(dir); ok {
		t.Error("a closed directory still names an owner")
	}
}

func TestAWaitThatIsNotShortTellsWhoIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Config{Dir: dir, Agent: "nightly"})
	told, opened := make(chan *BusyError, 2), make(chan error, 1)
	go func() {
		s, err := Open(t.Context(), Config{Dir: dir, Wait: time.Hour, Busy: func(busy *BusyError) { told <- busy }})
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	select {
	case busy := <-told:
		if busy.Owner.PID != os.Getpid() || busy.Owner.Agent != "nightly" {
			t.Errorf("told of %+v, want pid %d and agent nightly", busy.Owner, os.Getpid())
		}
	case err := <-opened:
		t.Fatalf("open ended with %v and told nobody that it waits", err)
	case <-time.After(time.Minute):
		t.Fatal("nobody was told who is waited for")
	}
	first.Close()
	if err := <-opened; err != nil {
		t.Errorf("open after the directory was free: %v", err)
	}
}

func TestAWaitingOpenGetsTheDirectoryWhenItIsFree(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Config{Dir: dir})
	opened := make(chan error, 1)
	go func() {
		s, err := Open(t.Context(), Config{Dir: dir, Wait: time.Minute})
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	first.Close()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}

func TestALongPathStillGetsASocketOfItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	s := open(t, Config{Dir: dir})
	c := dial(t, s)
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Dir(s.socket))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory has mode %v, want 0700", info.Mode().Perm())
	}
	s.Close()
	if _, err := os.Stat(filepath.Dir(s.socket)); !os.IsNotExist(err) {
		t.Errorf("socket directory is still there: %v", err)
	}
}

func TestOnlyTheOwnerMayEnterTheDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	defer s.Close()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, want 0700", info.Mode().Perm())
	}
}

func TestAFirstStartThatWasCutShortIsBegunAnewAndNeverHangs(t *testing.T) {
	for name, cut := range map[string]func(t *testing.T, dir string){
		"given up before it served": func(t *testing.T, dir string) {
			ctx, giveUp := context.WithCancel(t.Context())
			giveUp()
			if s, err := Open(ctx, Config{Dir: dir}); err == nil {
				s.Close()
				t.Fatal("it was opened although its context had ended")
			}
		},
		"killed after its files were begun": func(t *testing.T, dir string) {
			for name, text := range map[string]string{unmade: "", "member/member/wal/0.tmp": "half", "member/member/snap/db": ""} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etcd")
			cut(t, dir)
			if _, err := os.Stat(filepath.Join(dir, unmade)); err != nil {
				t.Fatalf("nothing says that the member never served: %v", err)
			}
			for round, want := range []int64{0, 1} {
				s := open(t, Config{Dir: dir})
				if _, err := os.Stat(filepath.Join(dir, unmade)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("it serves, and is still said to be unmade: %v", err)
				}
				c := dial(t, s)
				got, err := c.Get(t.Context(), "kept")
				if err != nil || got.Count != want {
					t.Errorf("round %d: %d keys, %v; want %d", round, got.Count, err, want)
				}
				if _, err := c.Put(t.Context(), "kept", "1"); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// The lock file of docs/formats/journal.md, byte for byte.
func TestALockFileSaysWhoHoldsItAsTheFormatSays(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := &Server{lock: file}
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		owner Owner
		want  string
	}{
		{Owner{PID: 7, Agent: "a", Since: since, Endpoint: "unix:///run/etcd.sock"}, `{"pid":7,"agent":"a","since":"2026-03-01T12:00:00Z","endpoint":"unix:///run/etcd.sock"}` + "\n"},
		{Owner{PID: 8, Since: since}, `{"pid":8,"since":"2026-03-01T12:00:00Z"}` + "\n"},
	} {
		if err := s.sign(c.owner); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file.Name()); err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
	}
}
