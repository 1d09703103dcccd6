package main

import (
	"context"
	"os"
	"sync"

	"github.com/syncnode/syncnode/internal/child"
)

// reaping does the duty of process 1, where this is it, as in a container: what its commands leave behind becomes its child, and stays in the
// process table until it is waited for. It lasts until stop is called.
func reaping() (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reaper sync.WaitGroup
	reaper.Go(func() { child.ReapOrphans(ctx) })
	return func() {
		cancel()
		reaper.Wait()
	}
}
