package main

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asRun calls a script with what exec hands to it.
func asRun(t *testing.T, epoch, run string, cmd ...string) (int, string) {
	t.Helper()
	return code(t, []string{"SYNCNODE_RUN_AGENT=invoices", "SYNCNODE_RUN_EPOCH=" + epoch, "SYNCNODE_RUN_ID=" + run}, cmd...)
}

func code(t *testing.T, env []string, cmd ...string) (int, string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// needs skips where a program is not there.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("a program that the example calls is not installed here; .ci/run installs it: ", err)
		}
	}
}

func TestTheScriptsOfRunsPayOnceAndAnOlderEpochPaysNothing(t *testing.T) {
	needs(t, "curl", "sqlite3")
	db, file := database(t)
	service := httptest.NewServer(handler(db))
	defer service.Close()
	t.Setenv("PAYMENTS_URL", service.URL+"/payments")
	dir := t.TempDir()
	syncnode := filepath.Join(dir, "syncnode")
	if code, out := code(t, nil, "go", "build", "-C", "../..", "-o", syncnode, "./cmd/syncnode"); code != 0 {
		t.Fatal(out)
	}
	run := func(occurrence string, cmd ...string) {
		t.Helper()
		exec := append([]string{syncnode, "exec", "--data-dir", filepath.Join(dir, "data"), "--agent", "invoices", "--occurrence", occurrence, "--"}, cmd...)
		if code, out := code(t, nil, exec...); code != 0 {
			t.Fatalf("%s: code %d\n%s", occurrence, code, out)
		}
	}
	run("october", "./pay.sh", "4200")
	run("november", "./pay.sh", "4200")
	run("november", "./pay.sh", "4200") // committed: it is not run again
	run("december", "./pay-sqlite.sh", file, "4200")

	for _, c := range []struct {
		name, epoch, run string
		cmd              []string
		code             int
		says             string
	}{
		{"a late call", "1", "r1-late", []string{"./pay.sh", "4200"}, 22, `"executed":"no"`},
		{"a late transaction", "2", "r1-late", []string{"./pay-sqlite.sh", file, "4200"}, 1, "nothing was paid"},
		{"the newest again", "3", "r1-newest", []string{"./pay-sqlite.sh", file, "1"}, 0, ""},
		{"and again", "3", "r1-newest", []string{"./pay-sqlite.sh", file, "1"}, 0, ""},
		{"no number", "3", "r1-none", []string{"./pay-sqlite.sh", file, "1;DROP"}, 2, "nothing was paid"},
	} {
		if code, out := asRun(t, c.epoch, c.run, c.cmd...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: code %d, want %d\n%s", c.name, code, c.code, out)
		}
	}
	if all := epochs(t, db); !slices.Equal(all, []int64{1, 2, 3, 3}) {
		t.Errorf("payments at %v", all)
	}
}
