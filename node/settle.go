package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

func (n *Node) settleLoop(ctx context.Context) {
	told := change{log: n.log, what: "settling"}
	doubts := map[string]bool{} // runs that were told to be in doubt, and still are
	for {
		s, err := n.settle(ctx, doubts)
		if n.ended(ctx, err) {
			return
		}
		n.cfg.Observer.Settled(s, len(doubts), err)
		told.note(err, trouble{"own runs cannot be settled yet", slog.LevelWarn})
		if s.Finished+s.Voided > 0 {
			n.log.Info("settled", "finished", s.Finished, "voided", s.Voided)
		}
		if !sleep(ctx, jitter(n.cfg.SettleEvery)) {
			return
		}
	}
}

// settle brings the ledger up to date and tells of every run that is newly in doubt.
func (n *Node) settle(ctx context.Context, doubts map[string]bool) (dispatch.Settling, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, LongestPump, fmt.Errorf("not done within %s", LongestPump))
	defer cancel()
	s, err := n.cfg.Settler.Settle(ctx)
	if err != nil && !errors.Is(err, coord.ErrUnreadable) {
		return s, err
	}
	if s.Open == 0 {
		clear(doubts)
		return s, err
	}
	return s, errors.Join(err, n.tellDoubts(ctx, doubts))
}

func (n *Node) tellDoubts(ctx context.Context, told map[string]bool) error {
	still := map[string]bool{}
	f := coord.Filter{Device: n.cfg.Device, States: []coord.RunState{coord.RunInDoubt}}
	for {
		page, err := n.cfg.Runs.List(ctx, f)
		if err != nil {
			return fmt.Errorf("list own runs in doubt: %w", err)
		}
		for _, v := range page.Views {
			if i := slices.IndexFunc(v.Entry.Attempts, n.ownOpen); i >= 0 {
				n.tellDoubt(v.Entry, v.Entry.Attempts[i], told)
				still[v.Entry.Run] = true
			}
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	for run := range told {
		if !still[run] {
			delete(told, run)
		}
	}
	return nil
}

func (n *Node) ownOpen(a coord.Attempt) bool {
	return a.State == coord.Open && a.Device == n.cfg.Device
}

func (n *Node) tellDoubt(e coord.Entry, a coord.Attempt, told map[string]bool) {
	if told[e.Run] {
		return
	}
	told[e.Run] = true
	n.log.Error("run in doubt: nobody alive saw how it ended", "agent", e.Agent, "run", e.Run, "epoch", a.Epoch, "since", a.Begun.UTC())
}
