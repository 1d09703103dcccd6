package main

import (
	"context"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/test/cluster"
)

// A lazyCluster is started by the first test that needs it.
type lazyCluster struct {
	turn sync.Mutex // of the test that has it alone
	once sync.Once
	c    *cluster.Cluster
	err  error
}

var (
	common lazyCluster // for tests that leave it alone, at the same time
	lone   lazyCluster // for tests that break it or count, one after the other
)

// get has long ticks: what is tested here is the program, and a busy machine shall not elect all the time.
func (l *lazyCluster) get(t *testing.T) *cluster.Cluster {
	t.Helper()
	l.once.Do(func() {
		l.c, l.err = cluster.Start(context.Background(), cluster.Config{TickMS: 50, ElectionMS: 500, NoFsync: true})
	})
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.c
}

// alone gives it to one test after the other, side by side with those of the other cluster.
func (l *lazyCluster) alone(t *testing.T) *cluster.Cluster {
	t.Helper()
	t.Parallel()
	l.turn.Lock()
	t.Cleanup(l.turn.Unlock)
	return l.get(t)
}

func closeShared() {
	for _, l := range []*lazyCluster{&common, &lone} {
		if l.c != nil {
			l.c.Close()
		}
	}
}
