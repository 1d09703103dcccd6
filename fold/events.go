package fold

import "slices"

// blockSize bounds what an insertion in the middle moves.
const blockSize = 512

// An eventList keeps records in the order (hlc, op id), in blocks, so that a late op costs no more than any other.
type eventList struct{ blocks [][]*Record }

func (l *eventList) insert(rec *Record) {
	i := l.block(rec)
	if i < 0 {
		l.blocks = append(l.blocks, []*Record{rec})
		return
	}
	block := l.blocks[i]
	at, _ := slices.BinarySearchFunc(block, rec, (*Record).compare)
	block = slices.Insert(block, at, rec)
	l.blocks[i] = block
	if len(block) > blockSize {
		half := len(block) / 2
		if at == len(block)-1 {
			half = at // appended: leave the full block as it is
		}
		l.blocks[i] = slices.Clip(block[:half])
		l.blocks = slices.Insert(l.blocks, i+1, slices.Clone(block[half:]))
	}
}

// block is the index of the last block that begins at or before rec, 0 if there is none, -1 if the list is empty.
func (l *eventList) block(rec *Record) int {
	i, found := slices.BinarySearchFunc(l.blocks, rec, func(b []*Record, r *Record) int { return b[0].compare(r) })
	switch {
	case found:
		return i
	case len(l.blocks) == 0:
		return -1
	}
	return max(0, i-1)
}

func (l *eventList) each(yield func(*Record) bool) {
	for _, block := range l.blocks {
		for _, rec := range block {
			if !yield(rec) {
				return
			}
		}
	}
}
