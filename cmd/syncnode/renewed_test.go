package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// copyTo copies the data directory of a host.
func (h host) copyTo(dir string) {
	h.t.Helper()
	must(h.t, exec.Command("cp", "-a", filepath.Join(h.dir, "syncnode"), dir).Run())
	os.Remove(nodeSocket(filepath.Join(dir, "syncnode"))) // os.CopyFS copies no sockets
}

func TestARestoredBackupGetsANewIDSaysSoOnceAndLosesNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "restored")
	a, b := fleet[0], fleet[1]
	na, nb := a.serve(), b.serve()
	a.run("r", "before the backup")
	agree(t, 2, a, b)
	was := a.verify().Device
	na.stops()
	backup := t.TempDir()
	a.copyTo(backup)
	na = a.serve()
	a.run("r", "after the backup")
	agree(t, 4, a, b)
	na.stops()

	must(t, os.RemoveAll(filepath.Join(a.dir, "syncnode")))
	must(t, os.CopyFS(a.dir, os.DirFS(backup)))
	a.run("r", "after the restore") // its record takes the place of ops that the relay holds
	long := a.start("exec", "-q", "--agent", "long", "--occurrence", "k", "--", "sh", "-c", "echo $$ >c; until test -e go; do sleep 0.2; done")
	a.pid("c")
	na = a.serve()
	na.says("this device has a new id")
	agree(t, 7, a, b)
	a.touch("go") // it began under the old id, and records its end there
	long.want(0)
	bare := b
	bare.args = []string{"--namespace", "restored"}
	v := a.verify()
	if v.Device == was || len(v.Former) != 1 || v.Former[0] != was {
		t.Errorf("the device is %s, before it was %v; want a new one after %s", v.Device, v.Former, was)
	}
	ops := bare.call("log", "show", "--peers").want(0).out.String()
	if !strings.Contains(ops, "after the backup") || !strings.Contains(ops, "after the restore") || !strings.Contains(ops, "reissue_of") {
		t.Errorf("the other device has\n%s", ops)
	}
	a.run("r", "under the new id")
	agree(t, 10, a, b) // the end of the long one too
	na.stops()
	again := a.serve()
	agree(t, 10, a, b)
	again.stops()
	nb.stops()
	log := na.log() + again.log()
	if strings.Count(log, "this device has a new id") != 1 || strings.Contains(log, "level=ERROR") || !strings.Contains(log, "written_again=3") {
		t.Errorf("want one notice, of three ops, and no error:\n%s", log)
	}
	if strings.Contains(log, "two copies") || !strings.Contains(log, "this directory is older than what the relay holds, restored from a backup or by a disk that was rolled back, and was written to since") {
		t.Errorf("want a notice that tells a restored backup, and not of two copies:\n%s", log)
	}
	for _, k := range []string{"before the backup", "after the backup", "after the restore"} {
		a.call("exec", "--agent", "r", "--occurrence", k, "--", "touch", "again").want(0, "already committed")
	}
	a.notThere("again")
}

func TestARestoredDeviceWithAGivenIDIsToldWhatToDoAndGoesOnUnderAnother(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "given")
	a, b := fleet[0].with("--device-id", "till-1"), fleet[1]
	na := a.serve()
	a.run("g", "one")
	b.serve()
	agree(t, 2, b)
	na.stops()
	must(t, os.RemoveAll(filepath.Join(a.dir, "syncnode"))) // as if it was never backed up
	a.run("g", "two")
	a.serving("--pump-every", "200ms").wait().want(1)
	a.call("serve").want(1, "device till-1", "give another --device-id")
	a.call("exec", "--agent", "g", "--occurrence", "three", "--", "true").want(0, "give another --device-id")
	next := fleet[0].with("--device-id", "till-2")
	next.serve()
	agree(t, 6, b)
	next.call("exec", "--agent", "g", "--occurrence", "three", "--", "touch", "again").want(0, "already committed")
	next.notThere("again")
}

// Two processes over one directory share its locks; a copy of the directory is another device, whatever runs beside it.
func TestACopyOfADataDirectoryBesideALivingNodeIsAnotherDevice(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "clone")
	a, clone := fleet[0], fleet[1]
	na := a.serve()
	a.run("c", "of the original")
	a.copyTo(clone.dir)
	a.call("serve").want(1, "is served already")
	together(2, func(i int) {
		h := fleet[i]
		h.run("c-"+occ(i), "both write")
	})
	nc := clone.serve()
	agree(t, 6, a, clone)
	if x, y := a.verify(), clone.verify(); x.Device == y.Device || len(y.Former) != 1 || y.Former[0] != x.Device {
		t.Errorf("devices %+v and %+v: want two, the copy after the original", x, y)
	}
	na.stops()
	nc.stops()
	if strings.Contains(na.log()+nc.log(), "new id") {
		t.Errorf("nobody wrote under the other's id, yet one is frozen:\n%s\n%s", na.log(), nc.log())
	}
}

func TestAMovedDataDirectoryOffersWhatItsFormerIDHadNotPushed(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "moved")
	a, b := fleet[0], fleet[1]
	a.run("m", "never pushed")
	was := a.verify().Device
	moved := t.TempDir()
	must(t, os.Rename(filepath.Join(a.dir, "syncnode"), filepath.Join(moved, "syncnode")))
	a.dir = moved
	na, nb := a.serve(), b.serve()
	a.run("m", "after the move")
	agree(t, 4, a, b)
	if v := a.verify(); len(v.Former) != 1 || v.Former[0] != was {
		t.Errorf("former ids %v, want %s", v.Former, was)
	}
	na.stops()
	nb.stops()
	if !strings.Contains(na.log(), "pushed what an earlier id had not") {
		t.Errorf("the node says\n%s", na.log())
	}
}
