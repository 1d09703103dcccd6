package faultfs

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// A Loss is what becomes of what was not synced when the power goes.
type Loss struct {
	how  how
	seed uint64
}

type how int

const (
	nothing how = iota
	everything
	names
	data
	torn
	random
)

// Nothing unsynced survives; everything does; only the entries of directories do, or only what is in files.
var (
	Nothing    = Loss{how: nothing}
	Everything = Loss{how: everything}
	Names      = Loss{how: names}
	Data       = Loss{how: data}
)

// Torn is Everything, but that the sector which was written last is torn: it begins with the new bytes and ends with the old ones,
// or the file ends there.
func Torn(seed uint64) Loss { return Loss{torn, seed} }

// Random lets any sectors and any changes of directories survive. Of a sector that was written several times any of its contents may be
// on the disk, and of a file any of the sizes that it had.
func Random(seed uint64) Loss { return Loss{random, seed} }

func (l Loss) String() string {
	text := []string{"nothing unsynced survives", "everything survives", "names alone survive", "data alone survive", "the last sector is torn", "a random part survives"}[l.how]
	if l.how >= torn {
		text += fmt.Sprintf(" (seed %d)", l.seed)
	}
	return text
}

// After is the disk after the power came back, all of it on stable storage.
func (d *Disk) After(l Loss) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := survivor{loss: l, last: d.last, rng: rand.New(rand.NewPCG(l.seed, 11)), known: map[*node]*node{}}
	after := New()
	after.root, after.clock = s.node(d.root), d.clock+1
	return after
}

// A survivor makes what survives.
type survivor struct {
	loss  Loss
	last  lastWrite
	rng   *rand.Rand
	known map[*node]*node // a file that is reached by two names survives once
}

func (s *survivor) node(n *node) *node {
	if c := s.known[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir, mtime: n.mtime + 1}
	s.known[n] = c
	if !n.dir {
		c.live = s.content(n)
		c.disk = c.live
		return c
	}
	c.entries = map[string]*node{}
	entries := s.entries(n)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		c.entries[name] = s.node(entries[name])
	}
	c.kept = maps.Clone(c.entries)
	return c
}

func (s *survivor) entries(n *node) map[string]*node {
	switch s.loss.how {
	case everything, names, torn:
		return n.entries
	case random:
		entries := maps.Clone(n.kept)
		for _, o := range n.ops {
			if s.rng.IntN(2) == 0 {
				o.apply(entries)
			}
		}
		return entries
	}
	return n.kept
}

func (s *survivor) content(n *node) []byte {
	switch s.loss.how {
	case everything, data:
		return flushed(n)
	case torn:
		out := flushed(n)
		if s.last.n == n && n.dirty[s.last.sector] != nil {
			out = s.tear(out, len(n.disk))
		}
		return out
	case random:
		return s.some(n)
	}
	return n.disk
}

// flushed is the file with all that is still to be written.
func flushed(n *node) []byte {
	c := *n
	c.sync()
	return c.disk
}

// tear tears the last sector. A file never ends before the size that was synced.
func (s *survivor) tear(out []byte, synced int) []byte {
	out = bytes.Clone(out)
	at := s.last.sector * Sector
	end := min(at+Sector, len(out))
	if at >= end {
		return out
	}
	cut := at + s.rng.IntN(end-at)
	if s.rng.IntN(2) == 0 && synced < end {
		return out[:max(cut, synced)]
	}
	copy(out[cut:end], s.last.before[cut-at:])
	return out
}

func (s *survivor) some(n *node) []byte {
	size := len(n.disk)
	if i := s.rng.IntN(len(n.sizes) + 1); i < len(n.sizes) {
		size = n.sizes[i]
	}
	out := make([]byte, size)
	copy(out, n.disk)
	for _, sector := range slices.Sorted(maps.Keys(n.dirty)) {
		versions := n.dirty[sector]
		i := s.rng.IntN(2 * len(versions)) // half of all stay as they were
		if i < len(versions) && sector*Sector < size {
			copy(out[sector*Sector:], versions[i])
		}
	}
	return out
}
