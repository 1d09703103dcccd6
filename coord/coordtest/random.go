package coordtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/syncnode/syncnode/coord"
)

var histories = []test{
	{"a history of many processes is linearizable", func(e *env) { e.history(0) }},
	{"a history with lost, doubled and late calls is linearizable", func(e *env) { e.history(6) }},
}

const (
	clients     = 5
	historyRuns = maxRuns - 2
	patience    = time.Minute
	// mostUnknown is how many calls of a history may have no answer. Each of them may have been carried out at any
	// later moment: with many of them the search for an order is not over in a minute.
	mostUnknown = 8
)

// telling are the answers without which a history shows little.
var telling = []string{"acquire", "release", "begin", "finish", "look", "current"}

// history lets processes act at random on one agent; percent of their calls suffer a fault.
func (e *env) history(percent int) {
	s := [2]uint64{rand.Uint64(), rand.Uint64()}
	e.Logf("seed %d %d", s[0], s[1])
	h := NewHistory()
	lacks := func() (missing []string) {
		for _, must := range telling {
			if h.Count(must) == 0 {
				missing = append(missing, must+" that succeeded")
			}
		}
		if percent > 0 && h.Unknown() == 0 {
			missing = append(missing, "call without an answer")
		}
		return missing
	}
	var unknown atomic.Int64
	var wg sync.WaitGroup
	for n := range clients {
		device := fmt.Sprintf("d%d", n%3) // some are twins
		rnd := rand.New(rand.NewPCG(s[0], s[1]+uint64(n)))
		plan := rand.New(rand.NewPCG(s[1], s[0]+uint64(n)))
		inner := e.process(device)
		flaky := Faulty(inner, func(op string) Fault {
			if plan.IntN(100) >= percent {
				return Fine
			}
			f := Fault(1 + plan.IntN(int(Late)))
			if read := op == "Current" || op == "Look"; !read && (f == After || f == Late) && unknown.Add(1) > mostUnknown {
				return Twice
			}
			return f
		})
		a := &actor{e: e, rnd: rnd, inner: inner, flaky: flaky, c: h.Record(fmt.Sprintf("p%d", n), flaky), device: device, lacks: lacks}
		wg.Go(a.act)
	}
	wg.Wait()
	if err := h.Check(patience); err != nil {
		e.Error(err)
	}
	e.Logf("%d calls, %d unknown; answers %v", h.Len(), h.Unknown(), h.counts)
	for _, missing := range lacks() {
		e.Errorf("the history has no %s among %d calls: it shows little", missing, h.Len())
	}
}

// An actor is one process that acts at random.
type actor struct {
	e      *env
	rnd    *rand.Rand
	inner  coord.Coordinator // without faults, for what the backend does to it
	flaky  *Flaky
	c      *Recorder
	device string
	lacks  func() []string // what the history has not shown yet

	lease coord.Lease
	begun []coord.Begin // whose attempts may be open
}

// act takes its steps, and then goes on for as long as the history lacks something: what it lacks is up to chance.
func (a *actor) act() {
	for n := 0; a.e.ctx.Err() == nil && (n < a.e.Steps || n < 10*a.e.Steps && len(a.lacks()) > 0); n++ {
		switch p := a.rnd.IntN(100); {
		case p < 4:
			a.e.Expire(a.e.T, a.inner)
		case p < 8:
			a.flaky.Deliver()
		case p < 16:
			_, _, _ = a.c.Current(a.e.ctx, agent)
		case p < 26:
			_, _ = a.c.Look(a.e.ctx, coord.Question{Agent: agent, Run: runID(a.rnd.IntN(historyRuns))})
		case a.lease.Epoch == 0:
			a.seek()
		default:
			a.use()
		}
	}
	a.flaky.Deliver()
}

// seek tries to get the lease.
func (a *actor) seek() {
	switch p := a.rnd.IntN(100); {
	case p < 15:
		b := a.question(coord.Lease{Agent: agent, Device: a.device})
		l, _, err := a.c.Start(a.e.ctx, a.e.request(a.device), b)
		if err == nil {
			a.lease, b.Lease = l, l
		}
		if err == nil || errors.Is(err, coord.ErrIndeterminate) {
			a.begun = append(a.begun, b)
		}
	case p < 25:
		l, _, err := a.c.Current(a.e.ctx, agent)
		if err != nil {
			return
		}
		theft := a.e.theft(a.device, l.Epoch)
		theft.Force = true
		if l, err := a.c.Steal(a.e.ctx, theft); err == nil {
			a.lease = l
		}
	default:
		if l, err := a.c.Acquire(a.e.ctx, a.e.request(a.device)); err == nil {
			a.lease = l
		}
	}
}

// use acts as the holder, which it may not be any more.
func (a *actor) use() {
	switch p := a.rnd.IntN(100); {
	case p < 15:
		if _, err := a.c.Renew(a.e.ctx, agent, a.device, a.lease.Epoch, a.e.TTL); errors.Is(err, coord.ErrLost) {
			a.lease = coord.Lease{}
		}
	case p < 30:
		err := a.c.Release(a.e.ctx, agent, a.device, a.lease.Epoch)
		if err == nil || errors.Is(err, coord.ErrLost) {
			a.lease = coord.Lease{}
		}
	case p < 55 || len(a.begun) == 0:
		b := a.question(a.lease)
		_, err := a.c.Begin(a.e.ctx, b)
		if err == nil || errors.Is(err, coord.ErrIndeterminate) {
			a.begun = append(a.begun, b)
		}
	default:
		a.end()
	}
}

// question asks for a random run, with random permissions.
func (a *actor) question(l coord.Lease) coord.Begin {
	n := a.rnd.IntN(historyRuns)
	b := question(l, n)
	b.RetryFailed = a.rnd.IntN(2) == 0
	if a.rnd.IntN(3) == 0 {
		v, err := a.c.Look(a.e.ctx, coord.Question{Agent: agent, Run: runID(n)})
		if open, ok := v.Entry.Last(func(a coord.Attempt) bool { return a.State == coord.Open }); err == nil && ok {
			b.Retry = open.ID
		}
	}
	return b
}

// end settles, ends or gives up what it began.
func (a *actor) end() {
	i := a.rnd.IntN(len(a.begun))
	b := a.begun[i]
	done := true
	switch p := a.rnd.IntN(100); {
	case p < 15:
		_, _ = a.c.Begin(a.e.ctx, b)
		done = false
	case p < 35:
		done = a.c.Cancel(a.e.ctx, b) == nil
	case p < 45:
		finished, _ := a.c.Complete(a.e.ctx, ended(b, coord.Failed), a.lease)
		done, a.lease = finished == nil, coord.Lease{}
	default:
		s := []coord.State{coord.Committed, coord.Failed, coord.Failed, coord.Failed, coord.Void, coord.Void}[a.rnd.IntN(6)]
		done = a.c.Finish(a.e.ctx, ended(b, s)) == nil
	}
	if done {
		a.begun = append(a.begun[:i], a.begun[i+1:]...)
	}
}
