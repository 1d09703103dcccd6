package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/syncnode/syncnode/coord"
)

func TestAwaitFreeEndsWhenTheAgentIsReleasedOrItsHolderIsGone(t *testing.T) {
	w := newWorld(t)
	must(t, w.b.AwaitFree(bounded(t), "a")) // never held
	for _, free := range []func(coord.Lease){
		func(l coord.Lease) { release(t, w.a, l) },
		func(coord.Lease) { expire(t, w.admin, w.a) },
	} {
		l := acquire(t, w.a, "d1")
		waited := make(chan error, 1)
		go func() { waited <- w.b.AwaitFree(bounded(t), "a") }()
		free(l)
		must(t, <-waited)
	}
}

func TestAwaitFreeSaysWhoHoldsWhenItsContextEnds(t *testing.T) {
	w := newWorld(t)
	acquire(t, w.a, "d1")
	ctx, cancel := context.WithCancelCause(bounded(t))
	waited := make(chan error, 1)
	go func() { waited <- w.b.AwaitFree(ctx, "a") }()
	cancel(errGaveUp)
	err := <-waited
	if !errors.Is(err, errGaveUp) || !errors.Is(err, coord.ErrHeld) && !errors.Is(err, coord.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsAwaitFree(t *testing.T) {
	w := newWorld(t)
	acquire(t, w.a, "d1")
	waited := make(chan error, 1)
	go func() { waited <- w.b.AwaitFree(bounded(t), "a") }()
	must(t, w.b.Close(bounded(t)))
	wantErr(t, <-waited, coord.ErrNotSent)
}
