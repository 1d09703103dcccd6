package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/fence"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/internal/ident"
)

const agent = "invoices"

var (
	occurrence, _ = ident.KeyOccurrence("2026-11")
	run           = ident.RunID("test", agent, occurrence)
)

// A scene is a ledger, and the attempt of a device in it.
type scene struct {
	t     *testing.T
	store *memory.Store
	c     *memory.Coordinator // of the attempt's process
	lease coord.Lease
	a     coord.Attempt
	deny  error // what Finish says instead
	asked int   // how often Finish was asked
}

func (s *scene) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	return s.store.Process(coord.Process{}).Look(ctx, q)
}

func (s *scene) Finish(ctx context.Context, o coord.Outcome) error {
	s.asked++
	if s.deny != nil {
		return s.deny
	}
	return s.store.Process(coord.Process{}).Finish(ctx, o)
}

func inScene(t *testing.T, f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, store: memory.New(memory.Config{})}
		s.c = s.store.Process(coord.Process{Host: "h"})
		f(t, s)
	})
}

// begin opens an attempt of a device; with dead its process dies and its liveness runs out.
func (s *scene) begin(device string, dead bool) {
	s.t.Helper()
	var err error
	s.lease, s.a, err = s.c.Start(s.t.Context(), coord.Request{Agent: agent, Device: device, TTL: coord.DefaultTTL},
		coord.Begin{Run: run, Occurrence: occurrence, Attempt: coord.NewNonce(), Request: coord.NewNonce()})
	if err != nil {
		s.t.Fatal(err)
	}
	if dead {
		s.c.Crash()
		bubble.Pass(coord.DefaultTTL + time.Second)
	}
}

func (s *scene) fence(change ...func(*fence.Config)) *fence.Fence {
	s.t.Helper()
	cfg := fence.Config{Attempts: s, Device: "me"}
	for _, f := range change {
		f(&cfg)
	}
	f, err := fence.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

func ask(records ...coord.Record) fence.Ask {
	return fence.Ask{Agent: agent, Run: run, Occurrence: occurrence, Records: records}
}

func (s *scene) record(author string, state coord.State) coord.Record {
	return coord.Record{Run: run, Attempt: s.a.ID, Device: s.a.Device, Author: author, Epoch: s.a.Epoch, State: state, Cause: coord.CauseExit, Exit: 1}
}

// ledger is the state of the attempt there.
func (s *scene) ledger() coord.State {
	v, err := s.Look(context.Background(), coord.Question{Agent: agent, Run: run})
	if err != nil {
		s.t.Fatal(err)
	}
	a, _ := v.Entry.Find(s.a.ID)
	return a.State
}

func TestVerdictsFollowTheTableAndFactsAreSettledFirst(t *testing.T) {
	for _, c := range []struct {
		name    string
		device  string // of the attempt; empty: none
		dead    bool
		author  string // of the record; empty: none
		state   coord.State
		verdict error
		ledger  coord.State
		repairs int
	}{
		{"absent, nothing", "", false, "", "", nil, "", 0},
		{"open, alive", "other", false, "", "", coord.ErrInProgress, coord.Open, 0},
		{"open, dead, nothing", "other", true, "", "", coord.ErrInDoubt, coord.Open, 0},
		{"open, dead, pending", "other", true, "other", coord.Open, coord.ErrInDoubt, coord.Open, 0},
		{"open, dead, committed by its device", "other", true, "other", coord.Committed, coord.ErrCommitted, coord.Committed, 1},
		{"open, dead, failed by its device", "other", true, "other", coord.Failed, coord.ErrFailed, coord.Failed, 1},
		{"open, dead, void by its device", "other", true, "other", coord.Void, nil, coord.Void, 1},
		{"open, dead, committed by another", "other", true, "third", coord.Committed, coord.ErrInDoubt, coord.Open, 0},
		{"open, dead, void by another", "other", true, "third", coord.Void, coord.ErrInDoubt, coord.Open, 0},
		{"open, alive, committed by its device", "other", false, "other", coord.Committed, coord.ErrCommitted, coord.Committed, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inScene(t, func(t *testing.T, s *scene) {
				var records []coord.Record
				if c.device != "" {
					s.begin(c.device, c.dead)
				}
				if c.author != "" {
					records = append(records, s.record(c.author, c.state))
				}
				f := s.fence()
				dry := ask(records...)
				dry.ReadOnly = true
				if _, err := f.Verdict(t.Context(), dry); !errors.Is(err, c.verdict) || (err == nil) != (c.verdict == nil) {
					t.Errorf("read only: got %v, want %v", err, c.verdict)
				}
				if s.asked != 0 {
					t.Error("a read wrote")
				}
				_, err := f.Verdict(t.Context(), ask(records...))
				if !errors.Is(err, c.verdict) || (err == nil) != (c.verdict == nil) {
					t.Errorf("got %v, want %v", err, c.verdict)
				}
				if got := s.ledger(); got != c.ledger || s.asked != c.repairs {
					t.Errorf("the ledger says %q after %d repairs; want %q, %d", got, s.asked, c.ledger, c.repairs)
				}
			})
		})
	}
}

func TestARepairThatFailsIsNoVerdict(t *testing.T) {
	for _, state := range []coord.State{coord.Committed, coord.Failed, coord.Void} {
		inScene(t, func(t *testing.T, s *scene) {
			s.begin("other", true)
			s.deny = fmt.Errorf("finish: %w", coord.ErrIndeterminate)
			if _, err := s.fence().Verdict(t.Context(), ask(s.record("other", state))); !errors.Is(err, coord.ErrIndeterminate) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestACommitThatTheLedgerLostIsRecreated(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.a = coord.Attempt{ID: coord.NewNonce(), Device: "me", Epoch: 4}
		if _, err := s.fence().Verdict(t.Context(), ask(s.record("me", coord.Committed))); !errors.Is(err, coord.ErrCommitted) {
			t.Errorf("got %v", err)
		}
		if s.ledger() != coord.Committed {
			t.Errorf("the ledger says %q", s.ledger())
		}
	})
}

func TestACommitByAnotherDeviceThatTheLedgerLostIsDisputed(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.a = coord.Attempt{ID: coord.NewNonce(), Device: "other", Epoch: 4}
		_, err := s.fence().Verdict(t.Context(), ask(s.record("other", coord.Committed)))
		no, _ := errors.AsType[*coord.VerdictError](err)
		if no == nil || no.Kind != coord.ErrInDoubt || !no.Disputed || s.asked != 0 {
			t.Errorf("got %v after %d repairs", err, s.asked)
		}
	})
}

func TestAMissingWitnessComesBeforeEveryVerdict(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		gone := coord.RunRef{Agent: agent, Run: ident.RunID("test", agent, "key:earlier")}
		a := ask()
		a.Witnesses = []coord.RunRef{gone}
		_, err := s.fence().Verdict(t.Context(), a)
		w, ok := errors.AsType[*fence.WitnessError](err)
		if !ok || w.Gone != gone || !errors.Is(err, fence.ErrWitness) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAWitnessThatIsThereSaysNothing(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("me", false)
		s.a.State = coord.Failed
		if err := s.c.Finish(t.Context(), coord.Outcome{Agent: agent, Run: run, Attempt: s.a}); err != nil {
			t.Fatal(err)
		}
		a := ask()
		a.Run = ident.RunID("test", agent, "key:next")
		a.Witnesses = []coord.RunRef{{Agent: agent, Run: run}}
		if _, err := s.fence().Verdict(t.Context(), a); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnotherInputIsRefused(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("me", true)
		a := ask()
		a.Input = fmt.Sprintf("%064x", 1)
		if _, err := s.fence().Verdict(t.Context(), a); !errors.Is(err, coord.ErrInput) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOnlyProofFreesAnAttemptThatNeverStarted(t *testing.T) {
	for _, c := range []struct {
		name         string
		device       string
		expired      bool
		dead, proved bool
		err          error
		want         error
		ledger       coord.State
	}{
		{"proved", "me", true, true, true, nil, nil, coord.Void},
		{"process not proved dead", "me", true, false, true, nil, coord.ErrInDoubt, coord.Open},
		{"journal proves nothing", "me", true, true, false, nil, coord.ErrInDoubt, coord.Open},
		{"journal unreadable", "me", true, true, true, errors.New("torn"), errors.New("torn"), coord.Open},
		{"another device", "other", true, true, true, nil, coord.ErrInDoubt, coord.Open},
		{"liveness still there", "me", false, true, true, nil, coord.ErrInProgress, coord.Open},
	} {
		t.Run(c.name, func(t *testing.T) {
			inScene(t, func(t *testing.T, s *scene) {
				s.begin(c.device, c.expired)
				var order []string
				f := s.fence(func(cfg *fence.Config) {
					cfg.Dead = func(l string, _ coord.Process) bool {
						order = append(order, "dead?")
						return c.dead && l == s.a.Liveness
					}
					cfg.Void = func(_ context.Context, _, _ string, a coord.Attempt) (bool, error) {
						if s.ledger() != coord.Open {
							t.Error("the ledger was told before the journal")
						}
						order = append(order, "void")
						return c.proved && a.ID == s.a.ID, c.err
					}
				})
				dry := ask()
				dry.ReadOnly = true
				if _, err := f.Verdict(t.Context(), dry); err == nil || len(order) != 0 {
					t.Errorf("read only: %v, and it asked %v", err, order)
				}
				_, err := f.Verdict(t.Context(), ask())
				if c.device == "other" && len(order) != 0 {
					t.Errorf("another device's attempt: %v", order)
				}
				switch {
				case c.err != nil:
					if !errors.Is(err, c.err) {
						t.Errorf("got %v", err)
					}
				case !errors.Is(err, c.want) || (err == nil) != (c.want == nil):
					t.Errorf("got %v, want %v", err, c.want)
				}
				if s.ledger() != c.ledger {
					t.Errorf("the ledger says %q", s.ledger())
				}
				if i := slices.Index(order, "void"); i == 0 {
					t.Errorf("voided without asking for proof of death: %v", order)
				}
			})
		})
	}
}

func TestAFailedRunIsFreeOnlyForWhoMayRetry(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("other", true)
		a := ask(s.record("other", coord.Failed))
		a.RetryFailed = true
		v, err := s.fence().Verdict(t.Context(), a)
		if err != nil || v.State != coord.RunFailed {
			t.Errorf("got %v, %v", v.State, err)
		}
	})
}

func TestGatesComeAfterWhatIsDoneAndBeforeWhatIsOpen(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		g := coord.Gate{By: "ada", Reason: "month end"}
		p := s.store.Process(coord.Process{})
		s.begin("other", true)
		if err := p.Pause(t.Context(), agent, g); err != nil {
			t.Fatal(err)
		}
		if _, err := s.fence().Verdict(t.Context(), ask()); !errors.Is(err, coord.ErrPaused) {
			t.Errorf("got %v", err)
		}
		if err := p.SetRecovery(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if _, err := s.fence().Verdict(t.Context(), ask()); !errors.Is(err, coord.ErrRecovery) {
			t.Errorf("got %v", err)
		}
		if _, err := s.fence().Verdict(t.Context(), ask(s.record("other", coord.Committed))); !errors.Is(err, coord.ErrCommitted) {
			t.Errorf("got %v", err)
		}
	})
}
