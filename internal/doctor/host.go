package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	leastFree        = 256 << 20 // bytes
	leastFreePercent = 5
)

func (v *visit) journal(ctx context.Context) {
	if v.cfg.Journal == nil {
		v.add("journal", Note, "", "not looked at: %s", v.cfg.NoJournal)
		return
	}
	j, err := v.cfg.Journal(ctx)
	if err != nil {
		v.add("journal", Problem, "syncnode log verify says where; keep the directory as it is, and let the device run under another --data-dir until it is mended", "%v", err)
		return
	}
	if j.Frozen != "" {
		v.add("journal", Warning, "start syncnode serve: it takes a new id by itself; see docs/operations.md, restored backups and clones", "device %s: %s; nothing more is pushed under this id", j.Device, j.Frozen)
	}
	for _, q := range j.Quarantined {
		v.add("journal", Warning, "see docs/operations.md, a chain that stands still", "a chain is quarantined: %s", q)
	}
	for _, p := range j.Parked {
		v.add("journal", Note, "", "a chain waits: %s", p)
	}
	checked := "every byte was checked"
	if !j.Whole {
		checked = "only its end was checked, it is large: syncnode log verify checks all"
	}
	v.add("journal", OK, "", "device %s, %d ops; %s", j.Device, j.Ops, checked)
}

// files judges who else may read or change what this device keeps.
func (v *visit) files() {
	if v.cfg.DataDir == "" {
		return
	}
	before := len(v.Findings)
	v.private(v.cfg.DataDir, Warning)
	for _, secret := range v.cfg.Secrets {
		v.private(secret, Problem)
	}
	for _, name := range []string{"device.json", "clusters.json", "node.sock"} {
		v.private(filepath.Join(v.cfg.DataDir, name), Warning)
	}
	if len(v.Findings) == before {
		v.add("files", OK, "", "nobody else may read or change %s", v.cfg.DataDir)
	}
	v.room()
}

// private says if others may look at a file or change it; level is how bad it is that everybody may read it. One that is not there is none.
func (v *visit) private(name string, level Level) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		v.add("files", Problem, "give it back to the user that syncnode runs as", "%v", err)
		return
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err == nil && int(st.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		v.add("files", Warning, "chown it to the user that syncnode runs as", "%s belongs to user %d, and this is user %d", name, st.Uid, os.Geteuid())
	}
	mode, do := info.Mode().Perm(), fmt.Sprintf("chmod go-rwx %s", name)
	switch {
	case mode&0o022 != 0:
		v.add("files", Problem, do, "%s has mode %04o: others may change it", name, mode)
	case mode&0o005 != 0:
		v.add("files", level, do, "%s has mode %04o: everybody may read it", name, mode)
	case mode&0o050 != 0:
		v.add("files", Warning, do, "%s has mode %04o: its group may read it", name, mode)
	}
}

func (v *visit) room() {
	var st unix.Statfs_t
	if unix.Statfs(v.cfg.DataDir, &st) != nil || st.Blocks == 0 {
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	percent := int64(st.Bavail) * 100 / int64(st.Blocks)
	if free < leastFree || percent < leastFreePercent {
		v.add("files", Warning, "make room: without it no run can be recorded, and then none begins", "%s has %d MiB free (%d %%)", v.cfg.DataDir, free>>20, percent)
	}
}

// zoneDirs are where hosts keep their zones.
var zoneDirs = []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}

func (v *visit) zones() {
	places := map[string]fs.FS{}
	if v.cfg.Zones != nil {
		places["the host"] = v.cfg.Zones
	} else {
		for _, dir := range append([]string{os.Getenv("ZONEINFO")}, zoneDirs...) {
			if dir != "" {
				places[dir] = os.DirFS(dir)
			}
		}
	}
	for _, dir := range sortedKeys(places) {
		if _, err := fs.Stat(places[dir], "Europe/Berlin"); err == nil {
			release := ""
			if text, err := fs.ReadFile(places[dir], "+VERSION"); err == nil {
				release = ", release " + strings.TrimSpace(string(text))
			} else if text, err := fs.ReadFile(places[dir], "tzdata.zi"); err == nil {
				line, _, _ := strings.Cut(string(text), "\n")
				release = strings.Replace(line, "# version", ", release", 1)
			}
			v.add("zones", OK, "", "time zones of %s are used%s; keep them alike on all hosts", dir, release)
			return
		}
	}
	v.add("zones", Note, "", "this host has no time zones: the program's own copy is used; hosts that disagree on an offset name two runs")
}
