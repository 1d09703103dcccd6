package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// maxNoted bounds how many forks of a device are kept.
const maxNoted = 16

// An Oddity is something in the folder that does not count, and why. Nothing is ever done to it.
type Oddity struct {
	Path   string // from the folder's root
	Reason string
	Count  int // of lines, if it is about lines; else 0
}

// A Fork is two ops at one seq of a device's chain. Counts is the one that this handle saw first.
type Fork struct {
	Device        string
	Seq           uint64
	Counts, Other oplog.OpID
}

// A Waiting chain has files that cannot be read on yet: an op before them is missing, or has not arrived.
type Waiting struct {
	Device string
	Next   uint64 // the op that is missing
	Ahead  uint64 // ops up to this seq are there; 0 if that is not known
}

// A Report says what in the folder does not count, or not yet.
type Report struct {
	Oddities []Oddity // by path
	Forks    []Fork
	Waiting  []Waiting
	Lost     map[string]int // devices of which ops were gone that had been there, and how often
}

// Report looks at the whole folder.
func (r *Relay) Report(ctx context.Context) (Report, error) {
	if err := alive(ctx); err != nil {
		return Report{}, err
	}
	devices, odd, err := r.devices()
	if err != nil {
		return Report{}, err
	}
	books, err := r.books(ctx, false)
	if err != nil {
		return Report{}, err
	}
	out := Report{Oddities: append(odd, books.odd...), Lost: map[string]int{}}
	for _, name := range devices {
		d := r.device(name)
		if err := d.enter(ctx); err != nil {
			return Report{}, err
		}
		d.row()
		_ = d.judge(books.seed(name)) // in the report
		d.report(&out)
		d.leave()
	}
	slices.SortFunc(out.Oddities, func(a, b Oddity) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Reason, b.Reason))
	})
	return out, nil
}

func (d *device) report(out *Report) {
	c := d.chain
	out.Oddities = append(append(out.Oddities, d.odd...), c.names...)
	out.Forks = append(out.Forks, c.forks...)
	if c.lost > 0 {
		out.Lost[d.name] = c.lost
	}
	if c.err != nil {
		out.Oddities = append(out.Oddities, Oddity{Path: segmentDir(d.name), Reason: c.err.Error()})
	}
	waits := c.stuck()
	for _, base := range c.bases {
		s := c.segs[base]
		out.Oddities = append(out.Oddities, s.oddities(d.name)...)
		waits = waits || base > c.next()
	}
	if waits {
		out.Waiting = append(out.Waiting, Waiting{Device: d.name, Next: c.next(), Ahead: c.ahead})
	}
}

func (s *segment) oddities(device string) []Oddity {
	name := segmentFile(device, s.base)
	var out []Oddity
	note := func(is bool, count int, reason string) {
		if is {
			out = append(out, Oddity{Path: name, Reason: reason, Count: count})
		}
	}
	note(s.newer, 0, errVersion.Error())
	note(s.bad > 0, s.bad, "lines that are no ops")
	note(s.foreign > 0, s.foreign, "ops of another device")
	note(s.repeated > 0, s.repeated, "ops that stand there already")
	note(s.size > maxSegment, 0, fmt.Sprintf("%d bytes, only the first %d are read", s.size, maxSegment))
	note(s.size <= maxSegment && s.end < s.size, 0, "an unfinished group at the end")
	note(s.size == 0 && !s.mtime.IsZero(), 0, "empty")
	return out
}

// nameReason says why a name does not count. right means that only what bears the name is wrong.
func nameReason(e fs.DirEntry, right bool) string {
	name := e.Name()
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		return "symbolic link, never followed"
	case right && e.IsDir():
		return "a directory named like a file"
	case right:
		return "not a regular file"
	case strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, "~"), strings.HasPrefix(name, "~"):
		return "temporary file"
	case strings.Contains(name, "sync-conflict"), strings.Contains(name, " "):
		return "conflict copy"
	}
	return "unknown name"
}

// devices lists the devices that have a folder, and what else is there.
func (r *Relay) devices() ([]string, []Oddity, error) {
	entries, err := r.fs.ReadDir(devicesDir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = r.fs.Stat("."); err == nil {
			return nil, nil, nil
		}
	}
	if err != nil {
		return nil, nil, r.unsent("list the devices", err)
	}
	var names []string
	var odd []Oddity
	for _, e := range entries {
		device, ok := folderDevice(e.Name())
		if !ok || !e.IsDir() {
			odd = append(odd, Oddity{Path: path.Join(devicesDir, e.Name()), Reason: nameReason(e, ok && !e.IsDir())})
			continue
		}
		names = append(names, device)
	}
	slices.Sort(names)
	return names, odd, nil
}
