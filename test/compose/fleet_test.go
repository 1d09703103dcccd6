package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
)

// patience bounds the test once the image is there. Nothing is measured against it.
const patience = 3 * time.Minute

// A fleet is the compose file's three nodes under a project name of its own.
type fleet struct {
	t       *testing.T
	ctx     context.Context
	compose []string // docker-compose, or docker compose
	project string
	image   string
	files   []string          // of compose
	id      map[string]string // container by service
}

var nodes = []string{"n1", "n2", "n3"}

// newFleet skips where Docker does not run, and in a reader's five minutes. Where it runs and all is asked for, nothing is skipped:
// internal/ci/skips.txt explains a skip only where it does not.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	ctx := t.Context()
	thorough.Only(t)
	if out, err := exec.CommandContext(ctx, "docker", "version", "-f", "{{.Server.Version}}").CombinedOutput(); err != nil {
		t.Skipf("Docker does not run here: %v: %s", err, bytes.TrimSpace(out))
	}
	f := &fleet{t: t, ctx: ctx, files: []string{"docker-compose.yml"}, id: map[string]string{}}
	f.project = fmt.Sprintf("syncnodetest%d", os.Getpid())
	f.image = f.project + ":test"
	for _, c := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.CommandContext(ctx, c[0], append(c[1:len(c):len(c)], "version")...).Run() == nil {
			f.compose = c
			break
		}
	}
	if f.compose == nil {
		t.Fatal("Docker runs here, and neither docker compose nor docker-compose is installed")
	}
	return f
}

// up builds the image and starts the three nodes; the test's end takes everything away.
func (f *fleet) up() {
	f.t.Helper()
	f.t.Cleanup(f.down)
	if out, err := f.command(context.Background(), "make", "-s", "-C", "../..", "image", "IMAGE="+f.image).CombinedOutput(); err != nil {
		f.t.Fatalf("make image: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	f.t.Cleanup(cancel)
	f.ctx = ctx
	f.must(f.composed("up", "-d")...)
	for _, n := range nodes {
		f.id[n] = strings.TrimSpace(f.must(f.composed("ps", "-q", n)...))
	}
}

func (f *fleet) down() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if f.t.Failed() {
		out, _ := f.command(ctx, f.composed("logs", "--tail", "30")...).CombinedOutput()
		f.t.Logf("%s", out)
	}
	for _, id := range f.id {
		_ = f.command(ctx, "docker", "kill", "-s", "KILL", id).Run() // their data goes too: nothing is worth a stop in good order
	}
	if out, err := f.command(ctx, f.composed("down", "-v", "--remove-orphans")...).CombinedOutput(); err != nil {
		f.t.Errorf("down: %v\n%s", err, out)
	}
	if out, err := f.command(ctx, "docker", "rmi", "-f", f.image).CombinedOutput(); err != nil {
		f.t.Logf("image not removed: %v\n%s", err, out)
	}
}

func (f *fleet) composed(args ...string) []string {
	all := append([]string{}, f.compose...)
	for _, file := range f.files {
		all = append(all, "-f", "../../"+file)
	}
	return append(append(all, "-p", f.project), args...)
}

func (f *fleet) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "SYNCNODE_IMAGE="+f.image)
	return cmd
}

// must runs a command on the host and returns what it printed.
func (f *fleet) must(args ...string) string {
	f.t.Helper()
	var stderr bytes.Buffer
	cmd := f.command(f.ctx, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// in runs the program in a node's container: what it printed, and its exit code.
func (f *fleet) in(node string, args ...string) (string, int) {
	f.t.Helper()
	var stderr bytes.Buffer
	cmd := f.command(f.ctx, append([]string{"docker", "exec", f.id[node], "/syncnode"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out) + stderr.String(), 0
	case errors.As(err, &exit) && f.ctx.Err() == nil:
		return string(out) + stderr.String(), exit.ExitCode()
	}
	f.t.Fatalf("in %s: %v: %v\n%s%s", node, args, err, out, stderr.String())
	return "", 0
}

// run runs an occurrence in a node's container; its command prints a version. It says whether that ran.
func (f *fleet) run(node, occurrence string) (ran bool) {
	f.t.Helper()
	began := time.Now()
	out, code := f.in(node, "exec", "--agent", "job", "--occurrence", occurrence, "--", "/syncnode", "version")
	if code != 0 {
		f.t.Fatalf("exec of %s in %s: exit code %d\n%s", occurrence, node, code, out)
	}
	f.t.Logf("exec of %s in %s: %s", occurrence, node, time.Since(began).Round(100*time.Millisecond))
	return strings.Contains(out, "linux/")
}

// A report is what `log verify` says.
type report struct {
	Device  string `json:"device"`
	Ops     int    `json:"ops"`
	PeerOps int    `json:"peer_ops"`
	Digest  string `json:"digest"`
}

func (f *fleet) verify(node string) (report, bool) {
	f.t.Helper()
	var r report
	out, code := f.in(node, "log", "verify", "-o", "json")
	ok := code == 0 && json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &r) == nil
	return r, ok && r.Digest != ""
}

// served tells whether the lease that shows that a device is served is there and not expired, as node sees it.
func (f *fleet) served(node, device string) bool {
	f.t.Helper()
	out, code := f.in(node, "lease", "show", "node."+device, "-o", "json")
	var l struct {
		Device  string `json:"device"`
		Expired bool   `json:"expired"`
	}
	return code == 0 && json.Unmarshal([]byte(out), &l) == nil && l.Device == device && !l.Expired
}

// until waits for a condition.
func (f *fleet) until(what string, holds func() bool) {
	f.t.Helper()
	began := time.Now()
	defer func() { f.t.Logf("%s: after %s", what, time.Since(began).Round(100*time.Millisecond)) }()
	for !holds() {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-f.ctx.Done():
			f.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// converged waits until the nodes hold the same ops, at least so many, and have one digest.
func (f *fleet) converged(ops int) map[string]report {
	f.t.Helper()
	seen := map[string]report{}
	f.until(fmt.Sprintf("all nodes hold at least %d ops and have one digest", ops), func() bool {
		clear(seen)
		digests := map[string]bool{}
		for _, n := range nodes {
			r, ok := f.verify(n)
			if !ok || r.Ops+r.PeerOps < ops {
				return false
			}
			seen[n], digests[r.Digest] = r, true
		}
		return len(digests) == 1
	})
	return seen
}
