package cluster

import (
	"errors"
	"os/exec"
	"runtime"
)

var (
	errClosed   = errors.New("cluster: closed")
	errNoAnswer = errors.New("cluster: the connection ended before the member answered")
)

// A spawner starts processes from one thread that lives as long as the cluster: on Linux a parent-death
// signal is tied to the thread that started the child, not to the process.
type spawner struct {
	jobs chan func()
	quit chan struct{}
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine, and its children with it
		for {
			select {
			case job := <-s.jobs:
				job()
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	err := make(chan error, 1)
	select {
	case s.jobs <- func() { err <- cmd.Start() }:
		return <-err
	case <-s.quit:
		return errClosed
	}
}

// close is called once.
func (s *spawner) close() {
	close(s.quit)
	<-s.done
}
