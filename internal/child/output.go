package child

import (
	"errors"
	"io"
	"os"
	"time"
)

// childFiles are the three descriptors of a child, and those of them that are ours to close.
type childFiles struct {
	child [3]*os.File
	ours  []*os.File
}

func (f *childFiles) close() {
	for _, file := range f.ours {
		file.Close()
	}
}

// output copies what does not go to a file of the caller's.
type output struct {
	streams []stream
	ended   chan error // one per stream
}

type stream struct {
	from *os.File
	to   io.Writer
}

func openFiles(s Spec) (files childFiles, out *output, err error) {
	out = &output{}
	defer func() {
		if err != nil {
			files.close()
			out.abandon()
		}
	}()
	if files.child[0] = s.Stdin; s.Stdin == nil {
		if err = files.null(0, os.O_RDONLY); err != nil {
			return files, out, err
		}
	}
	for fd, w := range map[int]io.Writer{1: s.Stdout, 2: s.Stderr} {
		if fd == 2 && same(s.Stdout, s.Stderr) {
			continue
		}
		if err = files.open(fd, w, out); err != nil {
			return files, out, err
		}
	}
	if same(s.Stdout, s.Stderr) {
		files.child[2] = files.child[1]
	}
	return files, out, nil
}

func (f *childFiles) open(fd int, w io.Writer, out *output) error {
	switch w := w.(type) {
	case nil:
		return f.null(fd, os.O_WRONLY)
	case *os.File:
		f.child[fd] = w
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	f.child[fd] = write
	f.ours = append(f.ours, write)
	out.streams = append(out.streams, stream{read, w})
	return nil
}

func (f *childFiles) null(fd, flag int) error {
	file, err := os.OpenFile(os.DevNull, flag, 0)
	if err != nil {
		return err
	}
	f.child[fd] = file
	f.ours = append(f.ours, file)
	return nil
}

// same says whether both are one writer; writers of a type without equality are not.
func same(a, b io.Writer) (equal bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}

func (o *output) run() {
	o.ended = make(chan error, len(o.streams))
	for _, s := range o.streams {
		go func() { o.ended <- s.copy() }()
	}
}

// copy goes on reading when the writer fails: a full disk under a log must not end the command.
func (s stream) copy() error {
	defer s.from.Close()
	w := &sticky{to: s.to}
	_, err := io.Copy(w, s.from)
	if errors.Is(err, os.ErrClosed) {
		err = nil // by finish
	}
	return errors.Join(w.err, err)
}

// sticky accepts everything, and keeps the first error of its writer.
type sticky struct {
	to  io.Writer
	err error
}

func (w *sticky) Write(b []byte) (int, error) {
	if w.err != nil {
		return len(b), nil
	}
	n, err := w.to.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.err = err
	return len(b), nil
}

// finish waits for the copies, for the given time at most, and ends those that are still waiting for bytes
// then. One that is held up by its writer is left behind after as long again.
func (o *output) finish(limit time.Duration) (open bool, err error) {
	waiting := len(o.streams)
	for range 2 {
		timer := time.NewTimer(limit)
		for waiting > 0 && timer != nil {
			select {
			case e := <-o.ended:
				err = errors.Join(err, e)
				waiting--
			case <-timer.C:
				timer = nil
			}
		}
		if waiting == 0 {
			return open, err
		}
		open = true
		o.abandon()
	}
	return open, err
}

func (o *output) abandon() {
	for _, s := range o.streams {
		s.from.Close()
	}
}
