package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/relay"
	relaydir "github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func decode[T any](t *testing.T, p *process) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(p.out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %v in %q", p.cmd.Args, err, p.out.String())
	}
	return v
}

func (r relayReport) of(device string) relayDevice {
	for _, d := range r.Devices {
		if d.Device == device {
			return d
		}
	}
	return relayDevice{}
}

func TestAPersonMakesACheckpointCollectsAndRetiresADeviceThatReturnsUnderANewID(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "person")
	a, b := fleet[0], fleet[1]
	na, nb := a.serve("--checkpoint-every", "0"), b.serve("--checkpoint-every", "0")
	a.run("p", "one")
	b.run("p", "two")
	agree(t, 4, a, b)
	ida, idb := a.verify().Device, b.verify().Device
	var s relayReport
	eventually(t, "acks of both", func() bool {
		s = decode[relayReport](t, a.call("relay", "status", "-o", "json").want(0))
		return s.of(ida).Lacks == 0 && s.of(idb).Lacks == 0
	})
	if s.Checkpoint != nil || s.Unpushed != 0 || s.Missing != 0 || s.Digest != a.verify().Digest || s.of(idb).Role != "replica" || s.of(idb).Kept != 2 || s.of(idb).Because != "no checkpoint" {
		t.Errorf("before the checkpoint: %+v", s)
	}
	if made := decode[publishedRow](t, a.call("relay", "checkpoint", "-o", "json").want(0)); !made.New || made.Covered != 4 || made.Uncovered != 0 {
		t.Errorf("made %+v, want a new one of 4 ops", made)
	}
	a.call("relay", "gc").want(0).prints("THE REST IS KEPT BECAUSE")
	if s = decode[relayReport](t, b.call("relay", "status", "-o", "json").want(0)); s.Checkpoint == nil || s.Checkpoint.Covers != 4 || s.of(ida).Floor == nil || s.of(ida).Kept != 0 {
		t.Errorf("after the collection: %+v", s)
	}

	nb.stops()
	b.run("p", "while it is away")
	if retired := decode[publishedRow](t, a.call("relay", "checkpoint", "--retire", idb, "-o", "json").want(0)); len(retired.Closed) != 1 {
		t.Errorf("retired %+v, want it closed", retired)
	}
	a.call("relay", "status").want(0).prints("closed")
	a.call("relay", "checkpoint", "--retire", ida).want(2, "is this device")
	nb = b.serve("--checkpoint-every", "0")
	nb.says("this device has a new id")
	agree(t, 6, a, b)
	nb.stops()
	na.stops()
	if log := nb.log(); !strings.Contains(log, "has closed the chain of this id as retired") || !strings.Contains(log, "written_again=2") {
		t.Errorf("the retired device says\n%s", log)
	}
}

func TestARelayInAFolderIsShownWithoutEtcd(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "shown")[0]
	folder := filepath.Join(t.TempDir(), "shared")
	n := h.serve("--relay", "dir:"+folder)
	h.run("d", "k")
	bare := h
	bare.args = []string{"--namespace", "shown"}
	var last *process
	eventually(t, "two ops in the folder", func() bool {
		last = bare.call("relay", "status", "--relay", "dir:"+folder, "-o", "json").want(0)
		s := decode[relayReport](t, last)
		return len(s.Devices) == 1 && s.Devices[0].Kept == 2 && s.Unpushed == 0
	})
	if made := decode[publishedRow](t, bare.call("relay", "checkpoint", "--relay", "dir:"+folder, "-o", "json").want(0)); !made.New || made.Covered != 2 {
		t.Errorf("made %+v, want a checkpoint of two ops beside the node", made)
	}
	bare.call("relay", "gc", "--relay", "dir:"+folder).want(0).prints("GONE UP TO")
	h.run("d", "after the checkpoint")
	eventually(t, "what the running node wrote since", func() bool {
		s := decode[relayReport](t, bare.call("relay", "status", "--relay", "dir:"+folder, "-o", "json").want(0))
		return s.Checkpoint != nil && s.Checkpoint.Covers == 2 && s.Devices[0].Head.Seq == 3
	})
	retireInAFolder(bare, folder)
	n.stops()
	bare.call("relay", "status", "--relay", "pigeon").want(2, "want etcd, dir:PATH")
	if bytes.Contains(last.out.Bytes(), []byte("committed")) {
		t.Errorf("status shows payloads: %s", last.out.String())
	}
}

// retireInAFolder retires a device whose last contact was its only one: nobody but itself writes into its folder.
func retireInAFolder(h host, folder string) {
	t := h.t
	r, err := relaydir.Open(relaydir.Config{Path: folder, Namespace: "shown"})
	must(t, err)
	defer r.Close()
	scrapped := relaytest.NewAuthor("scrapped")
	_, err = r.Push(t.Context(), "scrapped", scrapped.Write(t, 3, 60))
	must(t, errors.Join(err, r.Register(t.Context(), "scrapped", relay.Replica), r.Register(t.Context(), "idle", relay.Replica)))
	devices := filepath.Join(folder, "n-shown", "devices")
	must(t, os.MkdirAll(filepath.Join(devices, "d-junk", "role.json"), 0o700))
	eventually(t, "the ops of scrapped with the node", func() bool {
		s := decode[relayReport](t, h.call("relay", "status", "--relay", "dir:"+folder, "-o", "json").want(0))
		held := s.of("scrapped").Held
		if junk := s.of("junk"); junk.Role != "seen" || junk.LastSeen != nil {
			t.Errorf("a folder of nothing is shown as %+v", junk)
		}
		return held != nil && held.Seq == 2
	})
	before := filesIn(t, devices, "d-scrapped", "d-idle", "d-junk")
	h.call("relay", "checkpoint", "--relay", "dir:"+folder, "--retire", "skrapped").want(1, "nothing was retired", "relay status")
	tried := h.call("relay", "checkpoint", "--relay", "dir:"+folder, "--retire", "idle,scrapped").want(0)
	tried.prints("not closed    scrapped")
	tried.prints("no chain      idle: no op of it is there, so nothing is to be closed; it counts until it was silent for 30 days, or until its folder under devices")
	must(t, os.RemoveAll(filepath.Join(devices, "d-idle")))
	delete(before, filepath.Join(devices, "d-idle", "beat.json"))
	delete(before, filepath.Join(devices, "d-idle", "role.json"))
	eventually(t, "the end of scrapped, which every replica has", func() bool {
		done := decode[publishedRow](t, h.call("relay", "checkpoint", "--relay", "dir:"+folder, "--retire", "scrapped", "-o", "json").want(0))
		return slices.Equal(done.Closed, []string{"scrapped"})
	})
	if after := filesIn(t, devices, "d-scrapped", "d-junk"); !maps.Equal(before, after) {
		t.Errorf("files of other devices were\n%v\nand are\n%v", before, after)
	}
}

// filesIn is what the files of some folders hold.
func filesIn(t *testing.T, dir string, folders ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		must(t, filepath.WalkDir(filepath.Join(dir, folder), func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(name)
			all[name] = string(data)
			return err
		}))
	}
	return all
}
