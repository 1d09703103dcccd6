package session_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A wall is a clock that the test moves.
type wall struct {
	mu  sync.Mutex
	now time.Time
}

func newWall() *wall { return &wall{now: start} }

func (w *wall) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Millisecond)
	return w.now
}

func (w *wall) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// A device is a data directory with a session on it, which can be crashed and opened again.
type device struct {
	*session.Session
	t      testing.TB
	name   string
	dir    string
	wall   *wall
	disk   *disk
	holder session.Holder
	// segment is the size of the journal's segments, 0 the usual one; plain: without checkpoints.
	segment   int64
	plain     bool
	beforeCut func(*journal.Tx, session.Facts) error
	// keys is the file of seal keys, which need not be there; policy what is sealed.
	keys   string
	policy seal.Policy
}

// store is where the device's checkpoints lie.
func (d *device) store() *checkpoint.Store {
	if d.plain {
		return nil
	}
	return &checkpoint.Store{FS: d.disk, Dir: d.dir + ".checkpoints"}
}

// config is that of the session, on a journal opened anew.
func (d *device) config() session.Config {
	return session.Config{Device: d.name, Journal: d.journal(), Now: d.wall.Now, Coordinator: d.holder, Checkpoints: d.store(), BeforeCut: d.beforeCut, Seal: d.sealer()}
}

func (d *device) sealer() *seal.Sealer {
	d.t.Helper()
	cfg := seal.Config{Policy: d.policy}
	if d.keys != "" {
		var err error
		if cfg.Keys, err = seal.Open(d.keys); err != nil {
			d.t.Fatal(err)
		}
	}
	s, err := seal.New(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func newDevice(t *testing.T, name string) *device {
	t.Helper()
	d := &device{t: t, name: name, dir: filepath.Join(t.TempDir(), name), wall: newWall(), disk: newDisk()}
	d.open()
	return d
}

// journal opens the device's directory once more, as another process would.
func (d *device) journal() *journal.Journal {
	d.t.Helper()
	j, err := journal.Open(d.t.Context(), journal.Config{Dir: d.dir, Device: d.name, Now: d.wall.Now, FS: d.disk, SegmentBytes: d.segment})
	if err != nil {
		d.t.Fatalf("open the journal of %s: %v", d.name, err)
	}
	return j
}

// open opens the session anew from what is on the disk; memory and cursors of the one before are gone.
func (d *device) open() {
	d.t.Helper()
	s, err := session.Open(d.t.Context(), d.config())
	if err != nil {
		d.t.Fatalf("open the session of %s: %v", d.name, err)
	}
	d.Session = s
}

func (d *device) write(surface oplog.Surface, payloads ...string) []oplog.Op {
	d.t.Helper()
	drafts := make([]journal.Draft, len(payloads))
	for i, p := range payloads {
		drafts[i] = journal.Draft{Scope: oplog.Personal, Surface: surface, Payload: []byte(p)}
	}
	ops, err := d.Append(d.t.Context(), drafts...)
	if err != nil {
		d.t.Fatalf("%s: append: %v", d.name, err)
	}
	return ops
}

func (d *device) pump(r relay.Relay) session.Report {
	d.t.Helper()
	rep, err := d.Pump(d.t.Context(), r)
	if err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
	return rep
}

// lines are the op lines on the disk, in all segments.
func (d *device) lines() []string {
	d.t.Helper()
	var out []string
	files, err := filepath.Glob(filepath.Join(d.dir, "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, opLines(data)...)
	}
	return out
}

func opLines(data []byte) []string {
	var out []string
	for _, line := range bytes.Split(data, []byte("\n")) {
		if bytes.HasPrefix(line, []byte(`{"op_id":`)) {
			out = append(out, string(line))
		}
	}
	return out
}

// frontierOf is the frontier of op lines, each of which must be there once.
func frontierOf(t testing.TB, lines []string) oplog.Frontier {
	t.Helper()
	f, seen := oplog.Frontier{}, map[string]bool{}
	for _, line := range lines {
		op, err := oplog.ParseLine([]byte(line))
		if err != nil {
			t.Fatalf("line on disk: %v", err)
		}
		if seen[line] {
			t.Errorf("op %s/%d is on the disk twice", op.Device, op.Seq)
		}
		seen[line] = true
		if op.Seq >= f.Next(op.Device) {
			f[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
	}
	return f
}

// sameAsDisk checks that memory equals journal.
func (d *device) sameAsDisk() {
	d.t.Helper()
	if disk := frontierOf(d.t, d.lines()); !disk.Equal(d.HeldFrontier()) {
		d.t.Errorf("%s holds %v and has %v on its disk", d.name, d.HeldFrontier(), disk)
	}
}

// converged checks that devices have one state, and nothing twice on their disks.
func converged(t *testing.T, devices ...*device) {
	t.Helper()
	for _, d := range devices {
		d.sameAsDisk()
		if !d.FoldedFrontier().Equal(devices[0].FoldedFrontier()) {
			t.Errorf("%s has folded %v, %s %v", d.name, d.FoldedFrontier(), devices[0].name, devices[0].FoldedFrontier())
		}
		if d.Digest() != devices[0].Digest() {
			t.Errorf("%s and %s have different digests", d.name, devices[0].name)
		}
	}
}

// A disk is the real file system, with a count, a memory of what was synced, and failures.
type disk struct {
	journal.OS

	mu      sync.Mutex
	written int64
	read    int64
	synced  map[string][]byte // by name: the content at the last sync
	fail    func(op, name string) error
	fast    bool // do not wait for the real disk
}

var _ journal.FS = (*disk)(nil)

var errDisk = errors.New("injected disk error")

func newDisk() *disk { return &disk{synced: map[string][]byte{}} }

// failing sets what happens from now on to "write", "truncate", "sync", "rename", "remove" and "syncdir"; nil means nothing.
func (d *disk) failing(fail func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

func (d *disk) check(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		return nil
	}
	return d.fail(op, filepath.Base(name))
}

// traffic is how many bytes were written and read so far.
func (d *disk) traffic() (written, read int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written, d.read
}

// durable are the op lines that would survive a power cut now.
func (d *disk) durable() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for name, data := range d.synced {
		if !strings.HasSuffix(name, ".tmp") {
			out = append(out, opLines(data)...)
		}
	}
	return out
}

// OpenFile implements journal.FS.
func (d *disk) OpenFile(name string, flag int, perm fs.FileMode) (journal.File, error) {
	f, err := d.OS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d, name: name}, nil
}

// SyncDir implements journal.FS.
func (d *disk) SyncDir(name string) error {
	if err := d.check("syncdir", name); err != nil {
		return err
	}
	if d.fast {
		return nil
	}
	return d.OS.SyncDir(name)
}

// Rename implements journal.FS.
func (d *disk) Rename(from, to string) error {
	if err := d.check("rename", to); err != nil {
		return err
	}
	return d.OS.Rename(from, to)
}

// Remove implements journal.FS.
func (d *disk) Remove(name string) error {
	if err := d.check("remove", name); err != nil {
		return err
	}
	return d.OS.Remove(name)
}

type diskFile struct {
	journal.File
	disk *disk
	name string
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.check("write", f.name); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	n, err := f.File.WriteAt(p, off)
	f.disk.mu.Lock()
	f.disk.written += int64(n)
	f.disk.mu.Unlock()
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	if err := f.disk.check("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.disk.mu.Lock()
	f.disk.read += int64(n)
	f.disk.mu.Unlock()
	return n, err
}

func (f *diskFile) Sync() error {
	if err := f.disk.check("sync", f.name); err != nil {
		return err
	}
	if f.disk.fast {
		return nil
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	data, err := os.ReadFile(f.name)
	if err != nil {
		return err
	}
	f.disk.mu.Lock()
	f.disk.synced[f.name] = data
	f.disk.mu.Unlock()
	return nil
}
