package journal

import (
	"fmt"
	"path/filepath"

	"github.com/syncnode/syncnode/oplog"
)

// A Report is what Verify found in an intact journal.
type Report struct {
	Device   string
	Segments int
	Ops      uint64 // own
	PeerOps  uint64
	// Frontier has the last op of every device, the own one included.
	Frontier oplog.Frontier
	// Torn is how many bytes at the ends the next Open will cut or close: a crash left them, no op was acknowledged there.
	Torn int64
}

// Verify reads the whole journal in a directory and checks every byte: ids, links, stamps, segment borders, and the
// chain of every peer. It changes nothing and takes no lock. It fails with ErrCorrupt and the place, ErrVersion,
// ErrLost or an I/O error. fsys nil is OS.
func Verify(dir string, fsys FS) (Report, error) {
	if fsys == nil {
		fsys = OS{}
	}
	v := verifier{report: Report{Frontier: oplog.Frontier{}}}
	for _, s := range []Series{Own, Peers} {
		numbers, err := segments(fsys, dir, s)
		if err != nil {
			return Report{}, err
		}
		if len(numbers) == 0 {
			continue
		}
		v.report.Segments += len(numbers)
		if err := v.series(fsys, dir, s, numbers); err != nil {
			return v.report, err
		}
	}
	return v.report, nil
}

type verifier struct {
	report Report
	chains map[string]*oplog.Chain
}

func (v *verifier) series(fsys FS, dir string, s Series, numbers []uint64) error {
	device, err := deviceOf(fsys, dir, s, numbers[0])
	if err != nil {
		return err
	}
	if v.report.Device != "" && v.report.Device != device {
		return &DeviceError{File: segmentName(s, numbers[0]), Have: device, Want: v.report.Device}
	}
	v.report.Device = device
	j := &Journal{cfg: Config{Dir: dir, Device: device, ReadOnly: true, FS: fsys}}
	fill(&j.cfg)
	t := tail{at: position{series: s, device: device}}
	if t, err = j.enter(t, numbers[len(numbers)-1]); err != nil {
		return err
	}
	if err := v.ending(j, &t); err != nil {
		return err
	}
	j.own, j.peers = t, t
	v.chains = map[string]*oplog.Chain{}
	for e, err := range j.Read(s, Cursor{}) {
		if err != nil {
			return err
		}
		if err := v.admit(s, e); err != nil {
			return err
		}
	}
	return nil
}

// ending moves t to the last whole group and counts what is after it, reading the last segment from its start.
func (v *verifier) ending(j *Journal, t *tail) error {
	name := segmentName(t.at.series, t.seg)
	f, err := j.openSegment(t.at.series, t.seg)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, size-t.end)
	if _, err := f.ReadAt(buf, t.end); err != nil && len(buf) > 0 {
		return fmt.Errorf("read %s: %w", name, err)
	}
	sc, err := scan(name, buf, t.end, t.at)
	if err != nil {
		return err
	}
	v.report.Torn += size - sc.closed
	t.end, t.at = sc.closed, sc.at
	return nil
}

func (v *verifier) admit(s Series, e Entry) error {
	op := e.Op
	if s == Own {
		v.report.Ops++
	} else {
		v.report.PeerOps++
		c := v.chains[op.Device]
		if c == nil {
			c = oplog.NewChain(op.Device)
			v.chains[op.Device] = c
		}
		if _, err := c.Admit(op, op.HLC.WallMS); err != nil {
			return &CorruptError{File: segmentName(s, e.Next.Segment), Offset: e.Next.Offset, Err: err}
		}
	}
	v.report.Frontier[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	return nil
}

func deviceOf(fsys FS, dir string, s Series, number uint64) (string, error) {
	name := segmentName(s, number)
	f, err := fsys.OpenFile(filepath.Join(dir, name), 0, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, _, err := readHeader(f, name, s, number, "")
	return h.Device, err
}
