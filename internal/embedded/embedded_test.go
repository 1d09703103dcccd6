package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func open(t *testing.T, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
