package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// sayTime is how long a word on the way to an effect may take. A pipe that nobody reads holds up no lease.
const sayTime = time.Second

var brokenPipes = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

// outliveReaders makes a write to a standard error that nobody reads any more an error instead of this process's death:
// it would end a command in the midst of its work, or leave a doubt about one that never started. A child is not
// touched: its SIGPIPE is what it always was. It lasts until the process ends.
func outliveReaders() { brokenPipes() }

// mention says something and goes on after sayTime if nobody takes it.
func (x *execution) mention(format string, args ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		x.say(format, args...)
	}()
	select {
	case <-said:
	case <-time.After(sayTime):
	}
}
