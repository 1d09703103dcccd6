package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	relaydir "github.com/syncnode/syncnode/relay/dir"
)

// chain gives ops of a device, the first at the given time, after those that are there.
func chain(t *testing.T, device string, at time.Time, word string, before []oplog.Op, n int) []oplog.Op {
	t.Helper()
	ops := append([]oplog.Op(nil), before...)
	for range n {
		prev := oplog.OpID("")
		if len(ops) > 0 {
			prev = ops[len(ops)-1].ID
		}
		stamp := oplog.HLC{WallMS: at.UnixMilli(), Counter: uint32(len(ops)), Device: device}
		op, err := oplog.New(device, uint64(len(ops)), prev, stamp, oplog.Personal, oplog.Knowledge, []byte(`{"id":"`+word+occ(len(ops))+`"}`))
		must(t, err)
		ops = append(ops, op)
	}
	return ops
}

func pushTo(t *testing.T, folder, namespace string, ops []oplog.Op) {
	t.Helper()
	r, err := relaydir.Open(relaydir.Config{Path: folder, Namespace: namespace})
	must(t, err)
	if _, err := r.Push(t.Context(), ops[0].Device, ops); err != nil {
		t.Fatal(err)
	}
}

func TestAPersonAcceptsAChainThatWaitsAndOneThatParted(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "accepts")[0]
	bare := h
	bare.args = []string{"--namespace", "accepts"}
	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	now := time.Now()
	pushTo(t, before, "accepts", chain(t, "far", now.Add(1000*time.Hour), "far", nil, 2))
	common := chain(t, "split", now, "common", nil, 1)
	pushTo(t, before, "accepts", chain(t, "split", now, "here", common, 1))
	pushTo(t, after, "accepts", chain(t, "split", now, "there", common, 3))
	verify := func() logReport { return decode[logReport](t, bare.call("log", "verify", "-o", "json").want(0)) }

	n := h.serve("--relay", "dir:"+before)
	eventually(t, "both chains", func() bool { return verify().Known == 4 })
	if p := verify().Parked; len(p) != 1 || p[0].Device != "far" || p[0].Ops != 2 {
		t.Errorf("parked %+v, want two ops of far", p)
	}
	bare.call("log", "accept", "far").want(2, "--reason TEXT is missing")
	bare.call("log", "accept", "nobody", "--relay", "dir:"+before, "--reason", "r").want(1, "nothing to decide")
	bare.call("log", "accept", "far", "--relay", "dir:"+before, "--reason", "its clock was wrong").want(0).prints("its clock was wrong")
	eventually(t, "the ack of what was accepted", func() bool {
		s := decode[relayReport](t, bare.call("relay", "status", "--relay", "dir:"+before, "-o", "json").want(0))
		return s.of(s.Device).Lacks == 0
	})
	if p := verify().Parked; len(p) != 0 {
		t.Errorf("parked %+v after it was accepted", p)
	}
	n.stops()

	n = h.serve("--relay", "dir:"+after)
	eventually(t, "a quarantined chain, beside the node", func() bool { return len(verify().Quarantined) == 1 })
	if q := verify().Quarantined[0]; q.Device != "split" || !q.Permanent || q.Seq != 2 {
		t.Errorf("quarantined %+v, want split from op 2 on", q)
	}
	bare.call("log", "verify").want(0).prints("`syncnode log accept split --reason TEXT`")
	bare.call("relay", "status", "--relay", "dir:"+after).want(0).prints("quarantined  split")
	row := decode[acceptedRow](t, bare.call("log", "accept", "split", "--relay", "dir:"+after, "--reason", "the folder is right", "-o", "json").want(0))
	if !row.Break || row.Seq != 2 || row.Reason != "the folder is right" {
		t.Errorf("accepted %+v", row)
	}
	eventually(t, "the rest of the chain", func() bool {
		v := verify()
		return v.Frontier["split"].Seq == 3 && len(v.Quarantined) == 0
	})
	n.stops()
}
