package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/coord"
	coordremote "github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/relay"
	relayremote "github.com/syncnode/syncnode/relay/remote"
)

// idOf is the device of a host that ran something.
func (h host) idOf() string {
	h.t.Helper()
	return h.verify().Device
}

// tokens writes a file of tokens: each grant is what stands before its sha256.
func tokens(t *testing.T, grants map[string]string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens")
	text := ""
	for token, grant := range grants {
		sum := sha256.Sum256([]byte(token))
		text += grant + " sha256=" + hex.EncodeToString(sum[:]) + "\n"
	}
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestNodesConvergeThroughTheRelayThatAnotherShares(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "shared-relay")
	a, b := fleet[0], fleet[1]
	a.run("fleet", occ(0))
	b.run("fleet", occ(1))
	grants := tokens(t, map[string]string{
		"token-of-b-0123456789abcdef0123456789":     fmt.Sprintf("name=b roles=execute agents=* devices=%s", b.idOf()),
		"token-of-other-0123456789abcdef0123456789": "name=other roles=execute agents=* devices=other",
		"token-of-some-0123456789abcdef0123456789":  "name=some roles=execute agents=x* devices=other",
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", freePorts(t, 1)[0])
	folder := filepath.Join(t.TempDir(), "folder")
	sharing := a.serve("--relay", "dir:"+folder, "--listen", url[len("http://"):], "--tokens", grants, "--share", "relay,coord")
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("token-of-b-0123456789abcdef0123456789\n"), 0o600))
	calling := b.serve("--relay", url, "--relay-token-file", file)
	converge(t, 4, a, b)
	if status := b.call("relay", "status", "--relay", url, "--relay-token-file", file).want(0); !strings.Contains(status.out.String(), a.idOf()) {
		t.Errorf("relay status shows %s", status.out.String())
	}

	as := func(token string) func() (string, error) { return func() (string, error) { return token, nil } }
	other, err := relayremote.New(relayremote.Config{URL: url, Token: as("token-of-other-0123456789abcdef0123456789")})
	must(t, err)
	if _, err := other.Hello(t.Context(), b.idOf()); !errors.Is(err, relayremote.ErrDenied) {
		t.Errorf("hello for another's device: %v", err)
	}
	if err := other.Register(t.Context(), "other", relay.Writer); err != nil {
		t.Errorf("for its own: %v", err)
	}
	some, err := relayremote.New(relayremote.Config{URL: url, Token: as("token-of-some-0123456789abcdef0123456789")})
	must(t, err)
	if _, err := some.Roster(t.Context()); !errors.Is(err, relayremote.ErrDenied) || !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("the relay of all agents with a token for some: %v", err)
	}
	nobody, err := relayremote.New(relayremote.Config{URL: url})
	must(t, err)
	if _, err := nobody.Roster(t.Context()); !errors.Is(err, relayremote.ErrDenied) || !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("without a token: %v", err)
	}

	ledger, err := coordremote.Open(t.Context(), coordremote.Config{URL: url, Token: as("token-of-some-0123456789abcdef0123456789")})
	must(t, err)
	l, err := ledger.Acquire(t.Context(), coord.Request{Agent: "x1", Device: "other", TTL: coord.DefaultTTL})
	if err != nil || l.Epoch != 1 {
		t.Errorf("acquired %+v, %v", l, err)
	}
	if _, err := ledger.Acquire(t.Context(), coord.Request{Agent: "fleet", Device: "other"}); !errors.Is(err, coordremote.ErrDenied) {
		t.Errorf("another's agent: %v", err)
	}
	if _, err := ledger.Leases(t.Context()); !errors.Is(err, coordremote.ErrDenied) {
		t.Errorf("all leases: %v", err)
	}
	if err := ledger.Pause(t.Context(), "x1", coord.Gate{By: "x", Reason: "y"}); !errors.Is(err, coordremote.ErrDenied) {
		t.Errorf("what people decide: %v", err)
	}
	must(t, ledger.Close(t.Context()))
	calling.stops()
	sharing.stops()
}

// What is not shared is not there.
func TestNothingIsSharedUnlessItIsSaid(t *testing.T) {
	t.Parallel()
	a := spaced(hosts(t, 1, common.get(t).Endpoints()), "unshared")[0]
	socket := filepath.Join(t.TempDir(), "s")
	url := fmt.Sprintf("http://127.0.0.1:%d", freePorts(t, 1)[0])
	n := a.serve("--relay", "etcd", "--listen", "unix:"+socket+","+url[len("http://"):])
	r, err := relayremote.New(relayremote.Config{URL: "unix:" + socket})
	must(t, err)
	if _, err := r.Roster(t.Context()); !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("the relay: %v", err)
	}
	if _, err := coordremote.Open(t.Context(), coordremote.Config{URL: url}); !errors.Is(err, coord.ErrNotSent) {
		t.Errorf("the coordinator: %v", err)
	}
	own, err := coordremote.Open(t.Context(), coordremote.Config{URL: "unix:" + socket}) // the owner's own verbs ask it
	must(t, err)
	must(t, own.Close(t.Context()))
	n.stops()
}

func TestWithOtherAddressesTheSocketOfTheDataDirectoryHasToBeNamed(t *testing.T) {
	t.Parallel()
	h := near(t, spaced(hosts(t, 1, common.get(t).Endpoints()), "no-own-socket")[0])
	bare, far := h, fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	bare.args = nil
	const missing = "exec, agent and run there do not find this node by themselves"
	n := h.serve("--listen", far)
	n.says(missing)
	bare.call("agent", "list").want(1, "none answers on")
	bare.call("agent", "list", "--node", "http://"+far).want(0)
	n.stops()
	n = h.serve("--listen", far, "--listen", "unix:"+h.socket())
	bare.call("agent", "list").want(0)
	n.stops()
	if strings.Contains(n.log(), missing) {
		t.Error("the socket is there, and is said to be missing")
	}
}
