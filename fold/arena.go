package fold

import "hash/maphash"

// blockBytes is the size of a block of the arena from the seventh on; a record lies in one block.
const blockBytes = 1 << 16

// A ref is where a packed record begins in the arena: block<<16 | offset. No record begins at 0.
type ref uint32

const gone ref = 1<<32 - 1 // in a table: an entry that was taken out

// An arena holds packed records, which have no pointers and no headers of their own.
type arena struct {
	blocks [][]byte
	bytes  int // of all records
	dead   int // of those that were let go
}

// add copies a record in, and reports false if it does not fit into a block or the arena is full.
func (a *arena) add(rec []byte) (ref, bool) {
	last := len(a.blocks) - 1
	if last < 0 || cap(a.blocks[last])-len(a.blocks[last]) < len(rec) {
		size := min(blockBytes, 1024<<min(len(a.blocks), 6))
		for size < len(rec)+1 {
			size *= 2
		}
		if size > blockBytes || len(a.blocks) == blockBytes-1 {
			return 0, false
		}
		a.blocks = append(a.blocks, make([]byte, 0, size))
		last++
		if last == 0 {
			a.blocks[0] = append(a.blocks[0], 0) // no record begins at 0
		}
	}
	at := len(a.blocks[last])
	a.blocks[last] = append(a.blocks[last], rec...)
	a.bytes += len(rec)
	return ref(last<<16 | at), true
}

// at is the arena from the beginning of a record on.
func (a *arena) at(r ref) []byte { return a.blocks[r>>16][r&(blockBytes-1):] }

// wasteful reports whether most of the arena is records that were let go.
func (a *arena) wasteful() bool { return a.dead > blockBytes && a.dead > a.bytes/2 }

// A table finds refs by the hash of a name. It holds no names: the caller compares. It is an open hash table of any
// size, so that it can grow in small steps.
type table struct {
	refs []ref
	tags []uint8
	used int // entries, those that are gone included
	live int
}

var seed = maphash.MakeSeed() // decides where entries lie in memory, and nothing that is ever shown

func hashName(name string) uint64 { return maphash.String(seed, name) }

func (t *table) home(h uint64) int { return int((h >> 32) * uint64(len(t.refs)) >> 32) }

// find is the index of the entry that match accepts, or -1.
func (t *table) find(h uint64, match func(ref) bool) int {
	if len(t.refs) == 0 {
		return -1
	}
	for i := t.home(h); t.refs[i] != 0; {
		if t.tags[i] == uint8(h) && t.refs[i] != gone && match(t.refs[i]) {
			return i
		}
		if i++; i == len(t.refs) {
			i = 0
		}
	}
	return -1
}

// add puts in an entry that is not there. hashOf is asked for the names of the others if the table has to grow.
func (t *table) add(h uint64, r ref, hashOf func(ref) uint64) {
	if (t.used+1)*8 > len(t.refs)*7 {
		t.grow(hashOf)
	}
	t.place(h, r)
}

func (t *table) grow(hashOf func(ref) uint64) {
	old := t.refs
	n := max(8, t.live*3/2)
	*t = table{refs: make([]ref, n), tags: make([]uint8, n)}
	for _, r := range old {
		if r != 0 && r != gone {
			t.place(hashOf(r), r)
		}
	}
}

func (t *table) place(h uint64, r ref) {
	i := t.home(h)
	for t.refs[i] != 0 {
		if i++; i == len(t.refs) {
			i = 0
		}
	}
	t.refs[i], t.tags[i] = r, uint8(h)
	t.used++
	t.live++
}

func (t *table) remove(i int) {
	t.refs[i] = gone
	t.live--
}

// each yields every ref, in no order that means anything.
func (t *table) each(yield func(ref) bool) {
	for _, r := range t.refs {
		if r != 0 && r != gone && !yield(r) {
			return
		}
	}
}
