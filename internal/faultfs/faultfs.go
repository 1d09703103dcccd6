// Package faultfs is a disk in memory that crashes and fails as told, and the matrix that crashes at each call of a scenario.
//
// # Guarantees
//
// A Disk knows what is on stable storage: of each file, by sectors of 512 bytes, what was synced; of each directory the entries
// that were there when the directory was synced. A created, renamed or removed entry is only durable once its directory was synced,
// whatever was synced of the file. [Disk.After] is what a loss of power leaves of it. What was written and not synced may survive in
// any part and in any order, in each version that it had; a rename is one step.
//
// After a sync of a file that failed the pages that it was to write count as clean: they are read back, a later sync succeeds, and they
// are not on the disk. A sync of a directory that failed may be repeated: file systems keep their own entries in a journal, and stop
// altogether if that one fails.
//
// A [Process] is a view of the disk that can be killed. Locks belong to open files and end with their process.
//
// Not modelled: damage of what was synced, two names of one file, and links.
//
// # Concurrency
//
// Everything may be used by several goroutines. Calls come one after the other.
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/syncnode/syncnode/internal/durable"
)

// ErrKilled is the answer to every call of a process that was killed.
var ErrKilled = errors.New("faultfs: the process was killed")

// A Call is one call of a process.
type Call struct {
	N       int    // counted from 1, since Arm
	Op      string // open, create, read, write, truncate, sync, size, list, stat, mkdir, rename, remove, syncdir, lock
	Name    string // the file; of a rename the new name
	Changes bool   // it may change what a crash leaves
}

func (c Call) String() string { return fmt.Sprintf("call %d, %s %s", c.N, c.Op, c.Name) }

// A Fault is what happens in place of a call. The zero Fault is none.
type Fault struct {
	Err   error
	Short bool // a write with an error leaves half of its bytes
	Late  bool // the call is done although it says the error
	Lie   bool // the call does nothing and says that it did
}

// A Disk is the disk of one machine. Make it with New.
type Disk struct {
	mu      sync.Mutex
	freed   *sync.Cond // a lock was given back, or a process killed
	root    *node
	clock   int64 // ticks with each change, for times of files
	calls   int
	fault   func(Call) Fault
	images  []Image
	facts   []any
	records bool
	last    lastWrite
}

// A lastWrite is the sector that was written last, and what it held before.
type lastWrite struct {
	n      *node
	sector int
	before []byte
}

// New returns a disk with an empty root.
func New() *Disk {
	d := &Disk{root: newDir()}
	d.freed = sync.NewCond(&d.mu)
	return d
}

// Arm counts calls anew and asks fault before each of them; nil lets all pass. fault must not use the disk.
func (d *Disk) Arm(fault func(Call) Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.fault = 0, fault
}

// Settle puts everything on stable storage.
func (d *Disk) Settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.settle()
}

// An Image is the disk as it was during a call or when a fact was noted, and what had been noted until then.
type Image struct {
	What  string
	Facts []any
	Disk  *Disk
}

// Record keeps an image of each changing call from now on: of a sync before it, of any other call after it, since a crash may
// come while it is under way.
func (d *Disk) Record() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records, d.calls, d.images = true, 0, nil
}

// Images are those that Record kept.
func (d *Disk) Images() []Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.images)
}

// Note remembers a fact, such as an answer that was given, and keeps an image: from now on the fact has to survive.
func (d *Disk) Note(fact any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.facts = append(d.facts, fact)
	d.imageLocked(fmt.Sprintf("after call %d, when %T was noted", d.calls, fact))
}

// Facts are what was noted.
func (d *Disk) Facts() []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.facts)
}

func (d *Disk) imageLocked(what string) {
	if d.records {
		d.images = append(d.images, Image{What: what, Facts: slices.Clip(d.facts), Disk: d.cloneLocked()})
	}
}

// Clone is a copy of the disk with all that is not synced, without its locks, facts and faults: what a new process finds after
// all others were killed.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cloneLocked()
}

func (d *Disk) cloneLocked() *Disk {
	c := New()
	known := map[*node]*node{}
	c.root, c.clock = d.root.clone(known), d.clock
	if n := known[d.last.n]; n != nil {
		c.last = lastWrite{n, d.last.sector, d.last.before}
	}
	return c
}

// A Process is a view of a disk.
type Process struct {
	d    *Disk
	held map[*lock]bool
	dead bool
	left int // changing calls until it is killed; 0: it is not
}

var _ durable.FS = (*Process)(nil)

// Process is a new process on the disk.
func (d *Disk) Process() *Process { return &Process{d: d, held: map[*lock]bool{}} }

// Disk is the disk of the process.
func (p *Process) Disk() *Disk { return p.d }

// Kill gives its locks back and lets every further call fail.
func (p *Process) Kill() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.killLocked()
}

// KillAt kills the process before its k-th changing call, counted from now; 0 takes that back.
func (p *Process) KillAt(k int) { p.left = k }

func (p *Process) killLocked() {
	p.dead = true
	for l := range p.held {
		l.release()
	}
	p.d.freed.Broadcast()
}

// do makes one call. It holds the disk's lock meanwhile.
func (p *Process) do(op, name string, changes bool, fn func() error) error {
	return p.perform(op, name, changes, fn, nil)
}

// perform is do, with what a call does that fails.
func (p *Process) perform(op, name string, changes bool, fn func() error, failed func(Fault)) error {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if changes && p.left > 0 {
		if p.left--; p.left == 0 {
			p.killLocked()
		}
	}
	if p.dead {
		return &fs.PathError{Op: op, Path: name, Err: ErrKilled}
	}
	d.calls++
	call := Call{N: d.calls, Op: op, Name: name, Changes: changes}
	var f Fault
	if d.fault != nil {
		f = d.fault(call)
	}
	syncs := op == "sync" || op == "syncdir"
	if changes && syncs {
		d.imageLocked("before " + call.String())
	}
	var err error
	switch {
	case f.Lie:
		return nil
	case f.Err == nil, f.Late:
		if err = fn(); err == nil {
			err = f.Err
		}
	default:
		err = f.Err
		if failed != nil {
			failed(f)
		}
	}
	if changes && !syncs {
		d.imageLocked("in " + call.String())
	}
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); !ok && !errors.Is(err, io.EOF) {
			err = &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return err
}

// DropCaches makes what is read back what is on the disk, where the disk thinks that it is: pages whose sync failed are gone.
func (d *Disk) DropCaches() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.dropCaches()
}

// find is the node of a name.
func (d *Disk) find(name string) (*node, error) {
	n := d.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		if part == "" || part == "." {
			continue
		}
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next := n.entries[part]
		if next == nil {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

// parent is the directory in which a name stands or would, and its last part.
func (d *Disk) parent(name string) (*node, string, error) {
	name = filepath.Clean(name)
	dir, err := d.find(filepath.Dir(name))
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, filepath.Base(name), err
}

func (d *Disk) tick(n *node) {
	d.clock++
	n.mtime = d.clock
}

// OpenFile implements durable.FS.
func (p *Process) OpenFile(name string, flag int, _ fs.FileMode) (durable.File, error) {
	return p.Open(name, flag)
}

// Open is OpenFile with a File that can do more.
func (p *Process) Open(name string, flag int) (*File, error) {
	p.d.mu.Lock()
	_, err := p.d.find(name)
	p.d.mu.Unlock()
	op := "open"
	changes := flag&os.O_CREATE != 0 && errors.Is(err, fs.ErrNotExist) || flag&os.O_TRUNC != 0
	if changes {
		op = "create"
	}
	var f *File
	err = p.do(op, name, changes, func() error {
		dir, base, err := p.d.parent(name)
		if err != nil {
			return err
		}
		n := dir.entries[base]
		switch {
		case n == nil && flag&os.O_CREATE == 0:
			return fs.ErrNotExist
		case n != nil && flag&os.O_EXCL != 0:
			return fs.ErrExist
		case n != nil && n.dir:
			return syscall.EISDIR
		case n == nil:
			n = &node{}
			dir.change(entryOp{add: base, n: n})
			p.d.tick(dir)
			p.d.tick(n)
		case flag&os.O_TRUNC != 0:
			n.resize(0)
			p.d.tick(n)
		}
		f = &File{p: p, n: n, name: name, writes: flag&(os.O_WRONLY|os.O_RDWR) != 0, reads: flag&os.O_WRONLY == 0}
		return nil
	})
	return f, err
}

// ReadDir implements durable.FS.
func (p *Process) ReadDir(name string) (names []string, err error) {
	err = p.do("list", name, false, func() error {
		n, err := p.d.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		for e := range n.entries {
			names = append(names, e)
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

// Exists implements durable.FS.
func (p *Process) Exists(name string) (there bool, err error) {
	err = p.do("stat", name, false, func() error {
		_, err := p.d.find(name)
		there = err == nil
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return there, err
}

// MkdirAll implements durable.FS.
func (p *Process) MkdirAll(name string, _ fs.FileMode) error {
	return p.do("mkdir", name, true, func() error { return p.d.mkdirAll(filepath.Clean(name)) })
}

func (d *Disk) mkdirAll(name string) error {
	switch n, err := d.find(name); {
	case err == nil && !n.dir:
		return syscall.ENOTDIR
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := d.mkdirAll(filepath.Dir(name)); err != nil {
		return err
	}
	return d.mkdir(name)
}

func (d *Disk) mkdir(name string) error {
	dir, base, err := d.parent(name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return fs.ErrExist
	}
	n := newDir()
	dir.change(entryOp{add: base, n: n})
	d.tick(dir)
	d.tick(n)
	return nil
}

// Mkdir is os.Mkdir.
func (p *Process) Mkdir(name string) error {
	return p.do("mkdir", name, true, func() error { return p.d.mkdir(name) })
}

// Rename implements durable.FS, within one directory.
func (p *Process) Rename(from, to string) error {
	return p.do("rename", to, true, func() error {
		dir, old, err := p.d.parent(from)
		if err != nil {
			return err
		}
		other, base, err := p.d.parent(to)
		if err != nil {
			return err
		}
		n := dir.entries[old]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case dir != other:
			return syscall.EXDEV
		case dir.entries[base] != nil && dir.entries[base].dir != n.dir:
			return syscall.EEXIST
		case old != base:
			dir.change(entryOp{remove: old, add: base, n: n})
			p.d.tick(dir)
		}
		return nil
	})
}

// Remove implements durable.FS.
func (p *Process) Remove(name string) error {
	return p.do("remove", name, true, func() error {
		dir, base, err := p.d.parent(name)
		if err != nil {
			return err
		}
		switch n := dir.entries[base]; {
		case n == nil:
			return fs.ErrNotExist
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		}
		dir.change(entryOp{remove: base})
		p.d.tick(dir)
		return nil
	})
}

// SyncDir implements durable.FS.
func (p *Process) SyncDir(name string) error {
	return p.do("syncdir", name, true, func() error {
		n, err := p.d.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		n.syncDir()
		return nil
	})
}
