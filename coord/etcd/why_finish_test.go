package etcd

import (
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// rewriting is the content that a rule makes of a run now.
func rewriting(t testing.TB, c *Coordinator, agent, run string, make rule) proposal {
	t.Helper()
	st, err := c.look(bounded(t), "write", agent, run)
	must(t, err)
	f, err := c.facts(st, agent, run)
	must(t, err)
	e, changed, err := make(f)
	must(t, err)
	if !changed {
		t.Fatal("nothing to write")
	}
	return c.rewrite("write", e, st)
}

func TestCancelAndFinishCompareTheEntry(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	first, second := question(l, "1"), question(l, "1")
	cancel := rewriting(t, w.a, "a", first.Run, func(f rules.Facts) (coord.Entry, bool, error) {
		return rules.Cancel(f, first, l.Since)
	})
	_, err := w.a.Begin(bounded(t), first)
	must(t, err)
	late(t, w.a, cancel, w.a.keys.run("a", first.Run))

	finish := rewriting(t, w.a, "a", first.Run, joinOf(outcome(first, coord.Failed)))
	must(t, w.a.Finish(bounded(t), outcome(first, coord.Failed)))
	second.RetryFailed = true
	_, err = w.a.Begin(bounded(t), second)
	must(t, err)
	late(t, w.a, finish, w.a.keys.run("a", first.Run)) // it would forget the attempt that is open now
	if got := attempts(t, w.a, first); got != "failed open" {
		t.Errorf("attempts are %q", got)
	}
}

func TestCancelAndFinishOfAnAbsentEntryCompareTheBucket(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b := question(l, "1")
	cancel := rewriting(t, w.a, "a", b.Run, func(f rules.Facts) (coord.Entry, bool, error) { return rules.Cancel(f, b, l.Since) })
	finish := rewriting(t, w.a, "a", b.Run, joinOf(outcome(b, coord.Committed)))
	must(t, w.a.Finish(bounded(t), outcome(question(l, "1"), coord.Committed)))
	sweep(t, w.a, "a", 0, b.Run)
	late(t, w.a, cancel, w.a.keys.bucket("a", b.Run, 0))
	late(t, w.a, finish, w.a.keys.bucket("a", b.Run, 0))
}

func TestFinishIsWrittenAlthoughTheLeaseWasLost(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b := question(l, "1")
	_, err := w.a.Begin(bounded(t), b)
	must(t, err)
	expire(t, w.admin, w.a)
	next := acquire(t, w.b, "d2")
	finished, released := w.a.Complete(bounded(t), outcome(b, coord.Committed), l)
	must(t, finished)
	must(t, released)
	if got := attempts(t, w.b, b); got != "committed" {
		t.Errorf("attempts are %q", got)
	}
	if seen, held, err := w.b.Current(bounded(t), "a"); err != nil || !held || seen.Handle != next.Handle {
		t.Errorf("the next holder was disturbed: %+v, %v, %v", seen, held, err)
	}
}
