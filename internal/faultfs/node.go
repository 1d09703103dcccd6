package faultfs

import (
	"bytes"
	"maps"
)

// Sector is how many bytes a disk writes whole or not at all.
const Sector = 512

// A node is a file or a directory, as it is seen and as it is on stable storage.
type node struct {
	dir   bool
	mtime int64
	lock  *lock

	// Of a file.
	live  []byte           // what is read
	disk  []byte           // what is on stable storage
	dirty map[int][][]byte // by sector: each content that it had since it was synced, the latest last
	sizes []int            // each size that the file had since it was synced

	// Of a directory.
	entries, kept map[string]*node // as seen, and on stable storage
	ops           []entryOp        // what was done since it was synced
}

// An entryOp is one change of a directory: a removal, an addition, or both at once.
type entryOp struct {
	remove, add string
	n           *node
}

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, kept: map[string]*node{}}
}

func (o entryOp) apply(entries map[string]*node) {
	if o.remove != "" {
		delete(entries, o.remove)
	}
	if o.add != "" {
		entries[o.add] = o.n
	}
}

func (n *node) change(o entryOp) {
	o.apply(n.entries)
	n.ops = append(n.ops, o)
}

func (n *node) syncDir() { n.kept, n.ops = maps.Clone(n.entries), nil }

// resize is a truncation, or an extension by zeros.
func (n *node) resize(size int) {
	old := len(n.live)
	if size > old {
		n.live = append(bytes.Clone(n.live), make([]byte, size-old)...)
		n.touch(old, size)
	} else {
		n.live = bytes.Clone(n.live[:size])
		for s := range n.dirty {
			if s*Sector >= size {
				delete(n.dirty, s)
			}
		}
		if size%Sector != 0 {
			n.touch(size, size+1)
		}
	}
	n.sizes = append(n.sizes, size)
}

// write puts data at an offset, after zeros if the file is shorter.
func (n *node) write(data []byte, off int) {
	end := off + len(data)
	from := min(off, len(n.live))
	grown := make([]byte, max(end, len(n.live)))
	copy(grown, n.live)
	copy(grown[off:], data)
	if end > len(n.live) {
		n.sizes = append(n.sizes, end)
	}
	n.live = grown
	n.touch(from, end)
}

// touch makes the sectors of a range dirty.
func (n *node) touch(from, to int) {
	if n.dirty == nil {
		n.dirty = map[int][][]byte{}
	}
	for s := from / Sector; s*Sector < to; s++ {
		n.dirty[s] = append(n.dirty[s], sectorOf(n.live, s))
	}
}

// sectorOf is a sector of a content, with zeros after its end.
func sectorOf(data []byte, s int) []byte {
	out := make([]byte, Sector)
	if s*Sector < len(data) {
		copy(out, data[s*Sector:])
	}
	return out
}

// sync writes what is dirty, and the size.
func (n *node) sync() {
	disk := make([]byte, len(n.live))
	copy(disk, n.disk)
	for s := range n.dirty {
		if s*Sector < len(disk) {
			copy(disk[s*Sector:], sectorOf(n.live, s))
		}
	}
	n.disk, n.dirty, n.sizes = disk, nil, nil
}

// settle syncs everything below.
func (n *node) settle() {
	if !n.dir {
		n.disk, n.dirty, n.sizes = bytes.Clone(n.live), nil, nil
		return
	}
	n.syncDir()
	for _, e := range n.entries {
		e.settle()
	}
}

func (n *node) dropCaches() {
	if n.dir {
		for _, e := range n.entries {
			e.dropCaches()
		}
		return
	}
	live := make([]byte, len(n.live))
	copy(live, n.disk)
	for s := range n.dirty {
		if s*Sector < len(live) {
			copy(live[s*Sector:], sectorOf(n.live, s))
		}
	}
	n.live = live
}

// clone copies a node and all below. Contents are never changed in place, so they are shared.
func (n *node) clone(known map[*node]*node) *node {
	if n == nil {
		return nil
	}
	if c := known[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir, mtime: n.mtime, live: n.live, disk: n.disk, sizes: append([]int(nil), n.sizes...)}
	known[n] = c
	if n.dirty != nil {
		c.dirty = make(map[int][][]byte, len(n.dirty))
		for s, versions := range n.dirty {
			c.dirty[s] = versions[:len(versions):len(versions)]
		}
	}
	if n.dir {
		c.entries, c.kept = cloneEntries(n.entries, known), cloneEntries(n.kept, known)
		for _, o := range n.ops {
			c.ops = append(c.ops, entryOp{o.remove, o.add, o.n.clone(known)})
		}
	}
	return c
}

func cloneEntries(entries map[string]*node, known map[*node]*node) map[string]*node {
	out := make(map[string]*node, len(entries))
	for name, n := range entries {
		out[name] = n.clone(known)
	}
	return out
}
