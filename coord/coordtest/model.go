package coordtest

import (
	"fmt"
	"hash/maphash"

	"github.com/anishathalye/porcupine"

	"github.com/syncnode/syncnode/coord"
)

// Limits of a history, for each agent: a state has to be small and comparable.
const (
	maxRuns     = 8
	maxAttempts = 512
)

// input is a call in a history. Runs, attempts and devices are small numbers; 0 is none.
type input struct {
	op          string
	agent       string
	device      int
	epoch       coord.Epoch // claimed, looked at, or the floor
	run         int
	attempt     int
	retry       int
	retryFailed bool
	ends        coord.State
	again       bool // an earlier request of this process for the lease was not answered
}

// output is its answer.
type output struct {
	unknown bool   // there was none: it may have happened or not
	verdict string // "" is yes
	epoch   coord.Epoch
	device  int
	held    bool
	state   coord.RunState // of Look; a run that is open counts as running
}

// state is an agent in the contract: nothing here knows of time, since expiry only permits stealing.
type state struct {
	epoch  coord.Epoch
	held   bool
	device int
	runs   [maxRuns]runState
	closed [maxAttempts / 64]uint64 // attempts that can never open again
}

type runState struct {
	open      int
	committed bool
	failed    bool
}

func (s *state) isClosed(a int) bool { return s.closed[a/64]&(1<<(a%64)) != 0 }
func (s *state) close(a int)         { s.closed[a/64] |= 1 << (a % 64) }
func (s *state) holds(i input) bool  { return s.held && s.device == i.device && s.epoch == i.epoch }

var seed = maphash.MakeSeed()

var model = func() porcupine.Model {
	m := &porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) (next []any) {
			for _, n := range step(s.(state), in.(input), out.(output)) {
				next = append(next, n)
			}
			return next
		},
		Hash:              func(s any) uint64 { return maphash.Comparable(seed, s.(state)) },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
	return m.ToModel()
}()

// step gives the states that may follow s once the call in was answered by out; none if it may not be.
func step(s state, in input, out output) []state {
	want, next := decide(s, in)
	if out.unknown {
		if next == s {
			return []state{s}
		}
		return []state{s, next}
	}
	yes := out.verdict == ""
	switch {
	case yes && in.again && (in.op == "acquire" || in.op == "steal") && s.held && s.device == in.device && s.epoch == out.epoch:
		return []state{s} // it is the grant of the earlier copy
	case yes && want.verdict == "held":
		want = output{epoch: next.epoch} // it had expired; the model knows of no time
	case out.verdict == "held":
		next = s
	case out.verdict == "open" && in.retry != 0 && s.runs[in.run].open == in.retry:
		if want.verdict == "" || want.verdict == "held" {
			return []state{s} // what it would retry was not in doubt yet
		}
	}
	if out != want {
		return nil
	}
	return []state{next}
}

// decide is the contract: the answer to a call and the state after it. For a grant of a lease that is held
// the answer is "held", and the state is that after a theft.
func decide(s state, in input) (output, state) {
	switch in.op {
	case "acquire":
		out, next := grant(s, in, in.epoch)
		if s.held {
			out = output{verdict: "held", epoch: s.epoch, device: s.device}
		}
		return out, next
	case "steal":
		if s.epoch != in.epoch {
			return output{verdict: "lost", epoch: s.epoch}, s
		}
		return grant(s, in, 0)
	case "renew":
		if !s.holds(in) {
			return output{verdict: "lost", epoch: s.epoch}, s
		}
		return output{epoch: s.epoch}, s
	case "release":
		if !s.holds(in) {
			return output{verdict: "lost", epoch: s.epoch}, s
		}
		s.held, s.device = false, 0
		return output{}, s
	case "give back": // the part of Complete: yes also if it was lost
		if s.holds(in) {
			s.held, s.device = false, 0
		}
		return output{}, s
	case "current":
		return output{epoch: s.epoch, held: s.held, device: s.device}, s
	case "begin":
		return begin(s, in)
	case "start":
		return start(s, in)
	case "cancel":
		return cancel(s, in)
	case "finish":
		return finish(s, in)
	case "look":
		return output{state: s.runs[in.run].state()}, s
	}
	panic("coordtest: no such operation: " + in.op)
}

func grant(s state, in input, floor coord.Epoch) (output, state) {
	s.epoch, s.held, s.device = max(s.epoch, floor)+1, true, in.device
	return output{epoch: s.epoch}, s
}

func begin(s state, in input) (output, state) {
	run := s.runs[in.run]
	switch {
	case run.committed:
		return output{verdict: "committed"}, s
	case run.open == in.attempt:
		return output{}, s
	case s.isClosed(in.attempt):
		return output{verdict: "closed"}, s
	case !s.holds(in):
		return output{verdict: "not held"}, s
	}
	if v := run.refuses(in); v != "" {
		return output{verdict: v}, s
	}
	return output{}, opened(s, in)
}

// refuses is what a run has against another attempt.
func (r runState) refuses(in input) string {
	switch {
	case r.open != 0 && r.open != in.retry:
		return "open"
	case r.failed && !in.retryFailed && (r.open == 0 || r.open != in.retry):
		return "failed"
	}
	return ""
}

func opened(s state, in input) state {
	run := &s.runs[in.run]
	if run.open != 0 { // the one in doubt that is retried
		s.close(run.open)
		run.failed = true
	}
	run.open = in.attempt
	return s
}

func start(s state, in input) (output, state) {
	run := s.runs[in.run]
	switch {
	case run.committed:
		return output{verdict: "committed"}, s
	case run.open == in.attempt && !(s.held && s.device == in.device):
		return output{verdict: "lost", epoch: s.epoch}, s
	case run.open == in.attempt:
		return output{epoch: s.epoch}, s
	case s.isClosed(in.attempt):
		return output{verdict: "closed"}, s
	}
	if v := run.refuses(in); v != "" {
		return output{verdict: v}, s
	}
	out, next := begun(s, in)
	if s.held {
		out = output{verdict: "held", epoch: s.epoch, device: s.device}
	}
	return out, next
}

func begun(s state, in input) (output, state) {
	out, s := grant(s, in, in.epoch)
	return out, opened(s, in)
}

func cancel(s state, in input) (output, state) {
	run := &s.runs[in.run]
	if run.open == in.attempt {
		run.open = 0
	}
	if !run.committed {
		s.close(in.attempt)
	}
	return output{}, s
}

func finish(s state, in input) (output, state) {
	run := &s.runs[in.run]
	open := run.open == in.attempt
	if open {
		run.open = 0
		s.close(in.attempt)
	}
	switch {
	case in.ends == coord.Committed:
		run.committed = true
		s.close(in.attempt)
	case in.ends == coord.Failed && open:
		run.failed = true
	}
	return output{}, s
}

func (r runState) state() coord.RunState {
	switch {
	case r.committed:
		return coord.RunCommitted
	case r.open != 0:
		return coord.RunRunning
	case r.failed:
		return coord.RunFailed
	}
	return coord.RunFree
}
