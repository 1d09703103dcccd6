package journal

import (
	"errors"
	"fmt"
	"maps"
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
// chain of every peer, but for breaks that were accepted. It changes nothing and takes no lock. It fails with ErrCorrupt and the place, ErrVersion,
// ErrLost or an I/O error, and with ErrAnchored if the journal begins at a checkpoint. fsys nil is OS.
func Verify(dir string, fsys FS) (Report, error) { return VerifyFrom(dir, fsys, Cut{}) }

// VerifyFrom is Verify for a journal that begins at a checkpoint: the cut has to say what that checkpoint says of itself. Every
// chain has to continue it.
func VerifyFrom(dir string, fsys FS, cut Cut) (Report, error) {
	if fsys == nil {
		fsys = OS{}
	}
	v := verifier{report: Report{Frontier: oplog.Frontier{}}, cut: cut}
	if err := v.anchor(dir, fsys); err != nil {
		return Report{}, err
	}
	for _, s := range []Series{Own, Peers} {
		numbers, err := segments(fsys, dir, s)
		if err != nil {
			return Report{}, err
		}
		if len(numbers) == 0 {
			if h, ok := cut.head(v.report.Device); ok && s == Own {
				return v.report, fmt.Errorf("%w: checkpoint %s covers own op %d and the journal has none", ErrLost, cut.Checkpoint, h.Seq)
			}
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
	cut    Cut
	chains map[string]*oplog.Chain
	// accepted are the breaks in chains of peers that a person let pass.
	accepted []Acceptance
}

// anchor compares the cut on the disk with the one given.
func (v *verifier) anchor(dir string, fsys FS) error {
	j := &Journal{cfg: Config{Dir: dir, ReadOnly: true, FS: fsys}}
	r, _, err := j.readCut()
	if err != nil {
		return err
	}
	if r.Checkpoint != v.cut.Checkpoint {
		return &AnchorError{Checkpoint: r.Checkpoint, Given: v.cut.Checkpoint}
	}
	v.report.Device = r.Device
	c := r.cut()
	if !maps.Equal(c.Heads, v.cut.Heads) || !maps.Equal(c.Closed, v.cut.Closed) {
		return &CorruptError{File: cutName, Err: errors.New("heads are not those of the checkpoint")}
	}
	for _, heads := range []oplog.Heads{v.cut.Heads, v.cut.Closed} {
		for device, h := range heads {
			v.report.Frontier[device] = h.Pos()
		}
	}
	return nil
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
	if v.accepted, err = (&Journal{cfg: Config{Dir: dir, Device: device, FS: fsys}}).Accepted(); err != nil {
		return err
	}
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
	if s == Own {
		if err := j.holdsOwn(&v.cut); err != nil {
			return err
		}
	}
	v.chains = map[string]*oplog.Chain{}
	for e, err := range j.Kept(v.cut.Checkpoint, s) {
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
	corrupt := func(err error) error {
		return &CorruptError{File: segmentName(s, e.Next.Segment), Offset: e.Next.Offset, Err: err}
	}
	if s == Own {
		v.report.Ops++
	} else {
		v.report.PeerOps++
	}
	if v.cut.covers(op) {
		if h, _ := v.cut.head(op.Device); h.Seq == op.Seq && h.ID != op.ID && !parted(v.accepted, op.Device) {
			return corrupt(&oplog.ForkError{Device: op.Device, Seq: op.Seq, Have: h.ID, Got: op.ID})
		}
		return nil
	}
	if s == Peers {
		c := v.chain(op.Device)
		_, err := c.Admit(op, op.HLC.WallMS)
		if err != nil && relink(v.accepted, &c, op) {
			_, err = c.Admit(op, op.HLC.WallMS)
			v.chains[op.Device] = c
		}
		switch {
		case err != nil && parted(v.accepted, op.Device) && op.Check() == nil:
			return nil // it is of the branch that was left
		case err != nil:
			return corrupt(err)
		}
	}
	v.report.Frontier[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	return nil
}

// chain is the verified chain of a peer, from the cut on.
func (v *verifier) chain(device string) *oplog.Chain {
	c := v.chains[device]
	if c == nil {
		c = oplog.NewChain(device)
		if h, ok := v.cut.head(device); ok {
			c = oplog.ResumeChain(device, h)
		}
		v.chains[device] = c
	}
	return c
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
