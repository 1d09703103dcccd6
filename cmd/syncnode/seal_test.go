package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// keys is where a host's key file lies if nobody says otherwise.
func (h host) keys() string { return filepath.Join(h.dir, "syncnode", "seal.keys") }

// giveKeys copies the key file of one host to another.
func (h host) giveKeys(to host) {
	h.t.Helper()
	text, err := os.ReadFile(h.keys())
	must(h.t, err)
	must(h.t, os.MkdirAll(filepath.Dir(to.keys()), 0o700))
	must(h.t, os.WriteFile(to.keys(), text, 0o600))
}

// writes adds payloads to the host's journal as another process of the device does, sealed with the host's keys.
func (h host) writes(texts ...string) {
	h.t.Helper()
	keys, err := seal.Open(h.keys())
	must(h.t, err)
	sealer, err := seal.New(seal.Config{Keys: keys, Policy: seal.Policy{Scopes: []string{seal.Every}}})
	must(h.t, err)
	j, err := journal.Open(h.t.Context(), journal.Config{Dir: filepath.Join(h.device(), "journal"), Device: h.verify().Device, SegmentBytes: 2000})
	must(h.t, err)
	defer j.Close()
	s, err := session.Open(h.t.Context(), session.Config{Device: j.Device(), Journal: j, Seal: sealer,
		Checkpoints: &checkpoint.Store{Dir: filepath.Join(h.device(), "checkpoints")}})
	must(h.t, err)
	for i, text := range texts {
		_, err := s.Append(h.t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"%d","text":"%s"}`, i, text)})
		must(h.t, err)
	}
}

// shows reports whether any file below a folder holds the text, and how many bytes they hold.
func shows(t *testing.T, root, text string) (found []string, size int) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			return nil // replaced meanwhile
		}
		if size += len(data); bytes.Contains(data, []byte(text)) {
			found = append(found, name)
		}
		return err
	}))
	return found, size
}

func TestNodesSealWhatTheyShareAndOneWithoutTheKeyHoldsItUntilItComes(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	const secret = "hush-7f1c"
	folder := filepath.Join(t.TempDir(), "shared")
	place := []string{"--relay", "dir:" + folder}
	fleet := spaced(hosts(t, 3, common.get(t).Endpoints()), "sealed")
	a, b, c := fleet[0], fleet[1], fleet[2]
	bare := a
	bare.args = nil
	bare.call("key", "generate").want(0)
	a.giveKeys(b)
	nodes := make([]server, 3)
	together(3, func(i int) {
		nodes[i] = fleet[i].serve([]string{"--relay", "dir:" + folder, "--seal", "*", "--checkpoint-every", "0", "--segment-bytes", "2000"}...)
	})
	nodes[2].says("no seal key: what is sealed waits here")
	a.run("job", "one")
	var texts []string
	for range 20 {
		texts = append(texts, secret)
	}
	a.writes(texts...)
	b.run("job", "two")
	const ops = 20 + 4
	agree(t, ops, a, b)

	status := func(h host) relayReport {
		return decode[relayReport](t, h.call(append([]string{"relay", "status", "-o", "json"}, place...)...).want(0))
	}
	ida, idc := a.verify().Device, c.verify().Device
	eventually(t, "the node without the key holds everything", func() bool { return c.verify().Known == ops })
	report := c.verifies()
	if len(report.Parked) != 1 || report.Parked[0].Device != ida || report.Parked[0].From != 2 || report.Parked[0].Ops != 20 || !strings.Contains(report.Parked[0].Reason, "the key is missing") {
		t.Errorf("log verify without the key says %+v", report)
	}
	if v := c.verify(); v.Digest == a.verify().Digest {
		t.Error("without the key it has the digest of the others")
	}
	nodes[2].says("a chain cannot be read on")
	eventually(t, "an ack of what comes before it", func() bool { return status(c).of(idc).Acked[ida].Seq == 1 })

	// A checkpoint of what all have: the sealed ops are not in it yet.
	made := decode[publishedRow](t, a.call(append([]string{"relay", "checkpoint", "--seal", "*", "-o", "json"}, place...)...).want(0))
	if !made.New || made.Covered != 4 {
		t.Errorf("made %+v, want one of the 4 ops that all have folded", made)
	}
	a.giveKeys(c) // no restart
	agree(t, ops, a, b, c)
	eventually(t, "an ack of all", func() bool { s := status(c); return s.of(idc).Lacks == 0 && s.Missing == 0 })
	var last *process
	eventually(t, "a checkpoint of all", func() bool {
		last = a.call(append([]string{"relay", "checkpoint", "--seal", "*", "-o", "json"}, place...)...).want(0)
		return decode[publishedRow](t, last).Covered == ops
	})
	if found, size := shows(t, folder, secret); len(found) != 0 || size < 20*200 {
		t.Errorf("%d bytes in the folder; what is sealed is in %v", size, found)
	}
	if found, _ := shows(t, filepath.Join(a.device(), "journal"), secret); len(found) != 0 {
		t.Errorf("what is sealed is in the journal: %v", found)
	}
	agree(t, ops, a, b, c)

	// After a rotation on one host the others wait for the new key.
	bare.call("key", "rotate").want(0)
	a.writes(secret + " again")
	eventually(t, "an op under the new key, held and not read", func() bool {
		r := b.verifies()
		return len(r.Parked) == 1 && r.Parked[0].Ops == 1
	})
	a.giveKeys(b)
	a.giveKeys(c)
	agree(t, ops+1, a, b, c)
	together(3, func(i int) { nodes[i].stops() })
}

// verifies is all that log verify says.
func (h host) verifies() logReport {
	h.t.Helper()
	bare := h
	bare.args = []string{"--namespace", h.namespace()}
	return decode[logReport](h.t, bare.call("log", "verify", "-o", "json").want(0))
}

func TestABadKeyFileIsRefusedByANodeAndStopsNoJobAndNoVerification(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "badkeys")[0]
	h.run("job", "one")
	bare := h
	bare.args = nil
	bare.call("key", "generate").want(0)
	must(t, os.Chmod(h.keys(), 0o644))
	h.call("serve").want(1, "mode 0644", "chmod 600")
	h.run("job", "two")
	if v := h.verify(); v.Known != 4 {
		t.Errorf("verified %+v", v)
	}
	if r := h.verifies(); !strings.Contains(r.Keys, "mode 0644") {
		t.Errorf("log verify says %+v of the key file", r)
	}
	h.call("serve", "--seal", "everything").want(2, "unknown scope")
	h.call("exec", "--seal", "shared:", "--agent", "job", "--occurrence", "three", "--", "touch", "ran").want(125, "unknown scope")
	h.notThere("ran")
}
