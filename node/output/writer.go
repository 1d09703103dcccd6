package output

import (
	"io"
	"sync"
	"time"
)

// DefaultPatience is Config.Patience if that is zero.
const DefaultPatience = 2 * time.Second

const (
	piece  = 32 << 10 // what goes to the disk at once
	queued = 4        // pieces on their way
)

// A Writer keeps what an attempt prints. It always takes all that it is given.
type Writer struct {
	s      *Store
	pieces chan chunk
	done   chan struct{}
	free   sync.Pool

	mu     sync.Mutex // held over a Write: one comes after the other
	closed bool
	stuck  bool  // the disk took nothing for Config.Patience
	lost   int64 // since the last piece that was queued
}

var _ io.WriteCloser = (*Writer)(nil)

// A chunk is a piece on its way, and how much before it could not be taken.
type chunk struct {
	lost int64
	data []byte
}

// Writer returns the writer of an attempt, or of another thing of a run that has a name of its own, such as the attempt's
// probe. It must be closed. A record of the same name is begun anew.
func (s *Store) Writer(run, attempt string) *Writer {
	w := &Writer{s: s, pieces: make(chan chunk, queued), done: make(chan struct{})}
	w.free.New = func() any { b := make([]byte, piece); return &b }
	go w.keep(key{run, attempt})
	return w
}

// keep is the one goroutine that touches the files.
func (w *Writer) keep(k key) {
	defer close(w.done)
	r := begin(w.s, k)
	for c := range w.pieces {
		if c.lost > 0 {
			r.lose(c.lost, errSlow)
		}
		r.write(c.data)
		data := c.data[:cap(c.data)]
		w.free.Put(&data)
	}
	w.mu.Lock()
	lost := w.lost
	w.mu.Unlock()
	if lost > 0 {
		r.lose(lost, errSlow)
	}
	r.end()
}

// Write hands b on. It has no error: see the package's guarantees.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := b; len(rest) > 0; {
		n := min(len(rest), piece)
		w.handOnLocked(rest[:n])
		rest = rest[n:]
	}
	return len(b), nil
}

func (w *Writer) handOnLocked(b []byte) {
	if w.closed {
		w.s.lost.Add(int64(len(b)))
		return
	}
	buffer := w.free.Get().(*[]byte)
	c := chunk{lost: w.lost, data: (*buffer)[:copy(*buffer, b)]}
	select {
	case w.pieces <- c:
		w.lost, w.stuck = 0, false
		return
	default:
	}
	if !w.stuck {
		timer := time.NewTimer(w.s.patience)
		defer timer.Stop()
		select {
		case w.pieces <- c:
			w.lost = 0
			return
		case <-timer.C:
			w.stuck = true
		}
	}
	w.free.Put(buffer)
	w.lost += int64(len(b))
	w.s.lost.Add(int64(len(b)))
}

// Close ends the record. What is on its way to the disk is waited for, for Config.Patience at most. It may be called again; what
// is written after it is lost.
func (w *Writer) Close() error {
	patience := time.NewTimer(w.s.patience)
	defer patience.Stop()
	w.end()
	select {
	case <-w.done:
	case <-patience.C:
	}
	return nil
}

// end says that nothing more comes.
func (w *Writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.pieces)
	}
}
