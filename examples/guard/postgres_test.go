package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver

	"github.com/syncnode/syncnode/fence/guard"
)

// postgres starts a server on a socket, where there is one to start.
func postgres(t *testing.T) *sql.DB {
	t.Helper()
	bin := func(name string) string {
		found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // where Debian keeps them out of PATH
		if path, errPath := exec.LookPath(name); errPath == nil {
			return path
		}
		if err != nil || len(found) == 0 {
			t.Skip("PostgreSQL is not installed here (no " + name + "); .ci/run installs it")
		}
		return found[len(found)-1]
	}
	initdb, server := bin("initdb"), bin("postgres")
	dir, err := os.MkdirTemp("", "pg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // which PostgreSQL refuses
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Skip("PostgreSQL refuses to run as root, and this system has no other user: ", err)
		}
		uid, errU := strconv.Atoi(u.Uid)
		gid, errG := strconv.Atoi(u.Gid)
		if err := errors.Join(errU, errG, os.Chown(dir, uid, gid)); err != nil {
			t.Fatal(err)
		}
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	command := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, name, args...)
		c.Dir, c.SysProcAttr = dir, as
		return c
	}
	if out, err := command(t.Context(), initdb, "-D", dir+"/data", "-A", "trust", "-U", "guard", "-N", "--no-locale", "-E", "UTF8").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	run := command(context.WithoutCancel(t.Context()), server, "-D", dir+"/data", "-k", dir, "-F", "-c", "listen_addresses=")
	run.Stdout, run.Stderr = log, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // immediate: its children go with it
		_ = run.Process.Signal(syscall.SIGQUIT)
		_ = run.Wait()
	})
	db, err := sql.Open("postgres", "host="+dir+" user=guard dbname=postgres sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	until(t, func() bool { return db.PingContext(t.Context()) == nil })
	if _, err := db.ExecContext(t.Context(), guard.TableSQL); err != nil {
		t.Fatal(err)
	}
	return db
}

// until looks until yes says so.
func until(t *testing.T, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(2 * time.Minute); !yes(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it did not come")
		}
	}
}

func TestPostgreSQLReadsTheStatementAlike(t *testing.T) {
	db := postgres(t)
	admit := func(x guard.Execer, epoch int64, want error) {
		t.Helper()
		if err := guard.In(x).Admit(t.Context(), "invoices", epoch); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("epoch %d: got %v, want %v", epoch, err, want)
		}
	}
	begin := func(level sql.IsolationLevel) *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	waits := func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n == 1
	}
	commit := func(tx *sql.Tx) {
		t.Helper()
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
	admit(db, 3, nil)
	admit(db, 3, nil)
	admit(db, 2, guard.ErrStale)

	// A newer one waits for the effect of an older one, and an older one for the effect of a newer.
	for _, c := range []struct {
		first, second int64
		want          error
	}{{4, 5, nil}, {7, 6, guard.ErrStale}} {
		first, second, done := begin(sql.LevelDefault), begin(sql.LevelDefault), make(chan bool)
		admit(first, c.first, nil)
		go func() {
			defer close(done)
			admit(second, c.second, c.want)
		}()
		until(t, waits)
		commit(first)
		<-done
		commit(second)
	}

	// What was rolled back was not seen.
	undone := begin(sql.LevelDefault)
	admit(undone, 99, nil)
	if err := undone.Rollback(); err != nil {
		t.Error(err)
	}
	admit(db, 7, nil)

	// Above READ COMMITTED it is an error of the database, and no admission.
	strict := begin(sql.LevelSerializable)
	var n int
	if err := strict.QueryRowContext(t.Context(), `SELECT count(*) FROM syncnode_guard`).Scan(&n); err != nil { // its snapshot
		t.Fatal(err)
	}
	admit(db, 8, nil)
	if err := guard.In(strict).Admit(t.Context(), "invoices", 7); err == nil || errors.Is(err, guard.ErrStale) {
		t.Errorf("a snapshot from before the newer epoch: %v", err)
	}
	if err := strict.Rollback(); err != nil {
		t.Error(err)
	}
}
