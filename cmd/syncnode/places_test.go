package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// Two nodes meet at two relays, and a third knows one of them only, which is away for a while.
func TestANodeMeetsItsPeersAtSeveralRelaysAndOneThatFailsStopsNoOther(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 3, common.get(t).Endpoints()), "relays")
	folder := filepath.Join(t.TempDir(), "shared")
	dir := []string{"--pump-every", "200ms", "--relay", "dir:" + folder}
	both := append(slices.Clone(dir), "--relay", "etcd")
	nodes := []server{fleet[0].serve(both...), fleet[1].serve(both...), fleet[2].serve(dir...)}
	for i, h := range fleet {
		h.run("fleet", occ(i))
	}
	converge(t, 6, fleet...)

	devices, away := filepath.Join(folder, "n-relays", "devices"), filepath.Join(folder, "away")
	must(t, os.Rename(devices, away))
	must(t, os.WriteFile(devices, nil, 0o600)) // so that nobody makes it anew
	for i, h := range fleet {
		h.run("fleet", occ(3+i))
	}
	converge(t, 10, fleet[:2]...)
	nodes[0].says(`msg="pump failed`)
	must(t, os.Remove(devices))
	must(t, os.Rename(away, devices))
	converge(t, 12, fleet...)
	if log := nodes[0].log(); strings.Contains(log, "lost ops") {
		t.Errorf("a relay is said to have lost what it never had:\n%s", log)
	}
	for _, n := range nodes {
		n.stops()
	}
}

func TestPlacesThatMakeNoSenseAreRefusedBeforeAnythingIsDone(t *testing.T) {
	h := hosts(t, 1, nil)[0]
	for _, c := range []struct{ places, says string }{
		{"etcd,etcd", "--relay etcd is given twice"},
		{"etcd,none", "--relay none goes with no other place"},
		{"", "--relay is empty"},
		{"etcd,s3://b", `--relay "s3://b": want etcd, dir:PATH, https://HOST:PORT, http://HOST:PORT or unix:PATH, or none`},
		{"dir:", `--relay "dir:": want etcd`},
	} {
		h.call("serve", "--relay", c.places).want(2, c.says)
	}
	left, err := os.ReadDir(h.dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left of what was refused", left, err)
	}
}
