package coordtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/syncnode/syncnode/coord"
)

// A History records calls and their answers, and judges whether they are those of one ledger: whether every
// answer is the contract's, with each call carried out at one moment between its sending and its answer.
//
// Recorded are Acquire, Steal, Renew, Release, Current, Begin, Start, Cancel, Finish, Complete and Look. A call
// that failed with coord.ErrIndeterminate may have been carried out at any later moment, or never; one that
// failed with coord.ErrNotSent, and a read that failed, count as never made. What else changes an agent (Evict,
// Resolve, Permit, gates) may not be used in a history. Two processes of one device are two devices here.
//
// A History may be used by several goroutines.
type History struct {
	mu       sync.Mutex
	clock    int64
	ops      []porcupine.Operation
	names    map[string]int // small numbers for devices, runs and attempts, by kind and agent
	counts   map[string]int
	unknowns int
	broken   error
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{names: map[string]int{}, counts: map[string]int{}} }

// Len is the number of recorded calls; Unknown is how many of them have no answer.
func (h *History) Len() int     { h.mu.Lock(); defer h.mu.Unlock(); return len(h.ops) }
func (h *History) Unknown() int { h.mu.Lock(); defer h.mu.Unlock(); return h.unknowns }

// Count is the number of recorded answers of a kind, as "begin" for a yes or "begin: open" for a no.
func (h *History) Count(answer string) int { h.mu.Lock(); defer h.mu.Unlock(); return h.counts[answer] }

// Check is nil if the history is linearizable. It is an error too if that was not decided within d.
func (h *History) Check(d time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return h.broken
	}
	agents := map[string][]porcupine.Operation{}
	for _, op := range h.ops {
		id := op.Input.(input).agent
		agents[id] = append(agents[id], op)
	}
	for id, ops := range agents {
		switch result, info := porcupine.CheckOperationsVerbose(model, ops, d); result {
		case porcupine.Ok:
		case porcupine.Illegal:
			return fmt.Errorf("agent %s: the history of %d calls is not linearizable%s", id, len(ops), stuck(ops, info))
		default:
			return fmt.Errorf("agent %s: not decided within %s for %d calls", id, d, len(ops))
		}
	}
	return nil
}

// stuck tells which calls could not be placed after the longest order that could.
func stuck(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[int64]bool{}
	text := ""
	for i, op := range longest {
		placed[op.Call] = true
		if i >= len(longest)-8 {
			text += fmt.Sprintf("\n  %5d %s", op.Call, model.DescribeOperation(op.Input, op.Output))
		}
	}
	text += "\nand then none of"
	left := 8
	for _, op := range ops {
		if left > 0 && !placed[op.Call] {
			left--
			text += fmt.Sprintf("\n  %5d %s", op.Call, model.DescribeOperation(op.Input, op.Output))
		}
	}
	return ":" + text
}

func (h *History) number(kind, name string, most int) int {
	if name == "" {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := kind + "/" + name
	n, ok := h.names[key]
	if !ok {
		h.names[kind]++
		n = h.names[kind]
		h.names[key] = n
	}
	if n >= most {
		h.broken = fmt.Errorf("the history has %d of %s, at most %d can be judged", n, kind, most-1)
	}
	return n
}

func (h *History) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

// record adds a call that was sent at the time call.
func (h *History) record(call int64, in input, out output, err error) {
	out.verdict = verdictOf(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	op := porcupine.Operation{Input: in, Call: call, Output: out, Return: h.clock}
	switch out.verdict {
	case "not sent":
		return
	case "unknown":
		if in.op == "current" || in.op == "look" {
			return
		}
		h.unknowns++
		op.Output, op.Return = output{unknown: true}, math.MaxInt64
	}
	name := in.op
	if out.verdict != "" {
		name += ": " + out.verdict
	}
	h.counts[name]++
	h.ops = append(h.ops, op)
}

func verdictOf(err error) string {
	for _, v := range []struct {
		err  error
		text string
	}{
		{nil, ""}, {coord.ErrIndeterminate, "unknown"}, {coord.ErrNotSent, "not sent"}, {coord.ErrHeld, "held"}, {coord.ErrLost, "lost"},
		{coord.ErrCommitted, "committed"}, {coord.ErrClosed, "closed"}, {coord.ErrNotHeld, "not held"}, {coord.ErrStale, "not held"},
		{coord.ErrInProgress, "open"}, {coord.ErrInDoubt, "open"}, {coord.ErrFailed, "failed"},
	} {
		if errors.Is(err, v.err) {
			return v.text
		}
	}
	return err.Error() // no answer of the model: the history is refused
}

// A Recorder is a coordinator whose calls enter a history.
type Recorder struct {
	coord.Coordinator
	h    *History
	name string

	mu        sync.Mutex
	unsettled map[string]bool // agents of which a grant was asked for without an answer
}

// Record returns c with its calls recorded. name tells this process from all others, of its device too.
func (h *History) Record(name string, c coord.Coordinator) *Recorder {
	return &Recorder{Coordinator: c, h: h, name: name, unsettled: map[string]bool{}}
}

func (r *Recorder) input(op, agent string, epoch coord.Epoch) input {
	return input{op: op, agent: agent, device: r.h.number("devices", r.name, math.MaxInt), epoch: epoch}
}

// about is an input about a run.
func (r *Recorder) about(op, agent, run, attempt string) input {
	in := r.input(op, agent, 0)
	in.run = r.h.number("runs of "+agent, run, maxRuns) % maxRuns
	in.attempt = r.h.number("attempts of "+agent, attempt, maxAttempts) % maxAttempts
	return in
}

// settles reports whether an earlier request for the lease was not answered.
func (r *Recorder) settles(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsettled[agent]
}

// settled notes whether this one was.
func (r *Recorder) settled(agent string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.unsettled, agent)
	} else if errors.Is(err, coord.ErrIndeterminate) {
		r.unsettled[agent] = true
	}
}

// granted is the answer of a call about a lease.
func (r *Recorder) granted(l coord.Lease, err error) output {
	if held, ok := errors.AsType[*coord.HeldError](err); ok {
		return output{epoch: held.Holder.Epoch, device: r.holder(held.Holder)}
	}
	if lost, ok := errors.AsType[*coord.LostError](err); ok {
		return output{epoch: lost.Current}
	}
	return output{epoch: l.Epoch}
}

// holder is the number of the process that was granted the lease.
func (r *Recorder) holder(l coord.Lease) int { return r.h.number("devices", l.Note, math.MaxInt) }

// Acquire is recorded.
func (r *Recorder) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	req.Note = r.name
	in, at := r.input("acquire", req.Agent, req.Floor), r.h.now()
	in.again = r.settles(req.Agent)
	l, err := r.Coordinator.Acquire(ctx, req)
	r.settled(req.Agent, err)
	r.h.record(at, in, r.granted(l, err), err)
	return l, err
}

// Steal is recorded.
func (r *Recorder) Steal(ctx context.Context, t coord.Theft) (coord.Lease, error) {
	t.Note = r.name
	in, at := r.input("steal", t.Agent, t.Epoch), r.h.now()
	in.again = r.settles(t.Agent)
	l, err := r.Coordinator.Steal(ctx, t)
	r.settled(t.Agent, err)
	r.h.record(at, in, r.granted(l, err), err)
	return l, err
}

// Renew is recorded.
func (r *Recorder) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	in, at := r.input("renew", agent, epoch), r.h.now()
	l, err := r.Coordinator.Renew(ctx, agent, device, epoch, ttl)
	r.h.record(at, in, r.granted(l, err), err)
	return l, err
}

// Release is recorded, unless it gives up: then nothing may be under way any more.
func (r *Recorder) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	in, at := r.input("release", agent, epoch), r.h.now()
	err := r.Coordinator.Release(ctx, agent, device, epoch)
	if epoch > 0 {
		r.h.record(at, in, r.granted(coord.Lease{}, err), err)
	}
	return err
}

// Current is recorded.
func (r *Recorder) Current(ctx context.Context, agent string) (coord.Lease, bool, error) {
	in, at := r.input("current", agent, 0), r.h.now()
	in.device = 0
	l, held, err := r.Coordinator.Current(ctx, agent)
	out := output{epoch: l.Epoch, held: held}
	if held {
		out.device = r.holder(l)
	}
	r.h.record(at, in, out, err)
	return l, held, err
}

// Begin is recorded.
func (r *Recorder) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	in := r.begins("begin", b.Lease.Agent, b)
	in.epoch = b.Lease.Epoch
	at := r.h.now()
	a, err := r.Coordinator.Begin(ctx, b)
	r.h.record(at, in, output{}, err)
	return a, err
}

// Start is recorded.
func (r *Recorder) Start(ctx context.Context, req coord.Request, b coord.Begin) (coord.Lease, coord.Attempt, error) {
	req.Note = r.name
	in := r.begins("start", req.Agent, b)
	in.epoch = req.Floor
	at := r.h.now()
	l, a, err := r.Coordinator.Start(ctx, req, b)
	r.settled(req.Agent, err)
	r.h.record(at, in, r.granted(l, err), err)
	return l, a, err
}

func (r *Recorder) begins(op, agent string, b coord.Begin) input {
	in := r.about(op, agent, b.Run, b.Attempt)
	in.retryFailed = b.RetryFailed
	in.retry = r.h.number("attempts of "+agent, b.Retry, maxAttempts) % maxAttempts
	return in
}

// Cancel is recorded.
func (r *Recorder) Cancel(ctx context.Context, b coord.Begin) error {
	in := r.about("cancel", b.Lease.Agent, b.Run, b.Attempt)
	at := r.h.now()
	err := r.Coordinator.Cancel(ctx, b)
	r.h.record(at, in, output{}, err)
	return err
}

// Finish is recorded.
func (r *Recorder) Finish(ctx context.Context, o coord.Outcome) error {
	in := r.about("finish", o.Agent, o.Run, o.Attempt.ID)
	in.ends = o.Attempt.State
	at := r.h.now()
	err := r.Coordinator.Finish(ctx, o)
	r.h.record(at, in, output{}, err)
	return err
}

// Complete is recorded as two calls: each part has its own verdict.
func (r *Recorder) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	in := r.about("finish", o.Agent, o.Run, o.Attempt.ID)
	in.ends = o.Attempt.State
	back := r.input("give back", l.Agent, l.Epoch)
	at, too := r.h.now(), r.h.now()
	finished, released = r.Coordinator.Complete(ctx, o, l)
	r.h.record(at, in, output{}, finished)
	r.h.record(too, back, output{}, released)
	return finished, released
}

// Look is recorded.
func (r *Recorder) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	in := r.about("look", q.Agent, q.Run, "")
	in.device = 0
	at := r.h.now()
	v, err := r.Coordinator.Look(ctx, q)
	out := output{state: v.State}
	if v.State == coord.RunInDoubt {
		out.state = coord.RunRunning
	}
	r.h.record(at, in, out, err)
	return v, err
}
