package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
)

// A broken seal waits for no key and for no person, and nobody is told to bring or to decide anything.
func TestWhatNoKeyOpensIsShownAsUnreadableAndIsNothingToDecide(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "unreadable")[0]
	bare := h
	bare.args = nil
	bare.call("key", "generate").want(0)
	keys, err := seal.Open(h.keys())
	must(t, err)
	sealer, err := seal.New(seal.Config{Keys: keys, Policy: seal.Policy{Scopes: []string{seal.Every}}})
	must(t, err)
	stamp := oplog.HLC{WallMS: time.Now().UnixMilli(), Device: "forged"}
	swapped, err := sealer.Seal(seal.Header{Device: "another", Wall: stamp.WallMS, Stamper: "another", Scope: string(oplog.Personal), Surface: string(oplog.Knowledge)},
		[]byte(`{"id":"secret"}`))
	must(t, err)
	forged, err := oplog.New("forged", 0, "", stamp, oplog.Personal, oplog.Knowledge, swapped)
	must(t, err)
	folder := filepath.Join(t.TempDir(), "shared")
	pushTo(t, folder, "unreadable", []oplog.Op{forged})

	n := h.serve("--relay", "dir:"+folder, "--seal", "*")
	defer n.stops()
	bare.args = []string{"--namespace", "unreadable"}
	eventually(t, "the chain is held", func() bool {
		return decode[logReport](t, bare.call("log", "verify", "-o", "json").want(0)).Known == 1
	})
	shown := bare.call("log", "verify").want(0)
	shown.prints("unreadable   forged: 1 ops from op 0 on: ")
	shown.prints("the seal is broken")
	bare.call("log", "accept", "forged", "--relay", "dir:"+folder, "--reason", "r").want(1, "by no key and no decision", "the seal is broken")
}
