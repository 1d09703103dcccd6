package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// shown is how many of a kind are named.
const shown = 5

// longRun is how long a run may go on before it is mentioned.
const longRun = 24 * time.Hour

func (v *visit) ledger(ctx context.Context) {
	if v.cfg.Foreign != nil {
		v.add("ledger", Problem, "bring this release to that of the fleet; where it is not newer find out what wrote there, and restore etcd",
			"nothing runs from here: %v", v.cfg.Foreign)
		return
	}
	if v.cfg.Ledger == nil {
		v.add("ledger", Note, "", "not looked at: %s", v.cfg.NoLedger)
		return
	}
	l := v.cfg.Ledger
	if g := l.Generation(); len(v.cfg.Known) > 0 && !slices.Contains(v.cfg.Known, g) {
		v.add("ledger", Problem, "see docs/operations.md, restore: syncnode recover adopt, or another --data-dir",
			"the ledger is another one than this data directory knows behind these endpoints (generation %s, known %s): nothing runs from here", g, strings.Join(v.cfg.Known, ", "))
	} else {
		v.add("ledger", OK, "", "generation %s", g)
	}
	v.gate(ctx)
	v.leases(ctx)
	v.overdue(ctx)
	v.runs(ctx)
}

func (v *visit) gate(ctx context.Context) {
	ctx, cancel := v.bounded(ctx)
	defer cancel()
	g, set, err := v.cfg.Ledger.Recovery(ctx)
	switch {
	case err != nil:
		v.add("ledger", Problem, "look at etcd and at the rights of the user", "the recovery gate cannot be read: %v", err)
	case set:
		v.add("ledger", Problem, "syncnode recover status", "the recovery gate is set by %s since %s: %s; nothing begins", g.By, g.At.UTC().Format(time.RFC3339), g.Reason)
	}
}

func (v *visit) leases(ctx context.Context) {
	ctx, cancel := v.bounded(ctx)
	defer cancel()
	all, err := v.cfg.Ledger.Leases(ctx)
	if err != nil {
		v.add("leases", Warning, "look at etcd and at the rights of the user", "not looked at: %v", err)
		return
	}
	var expired []string
	for _, l := range all {
		if l.Expired && l.TTL > 0 {
			expired = append(expired, fmt.Sprintf("%s of %s", l.Agent, l.Device))
		}
	}
	if len(expired) > 0 {
		v.add("leases", Note, "", "%d of %d leases are held past their end, since nobody wanted them: the next run takes them (%s)", len(expired), len(all), some(expired))
		return
	}
	v.add("leases", OK, "", "%d are held, none past its end", len(all))
}

func some(list []string) string {
	if len(list) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
	}
	return strings.Join(list, ", ")
}

// overdue finds leases that etcd itself should have ended.
func (v *visit) overdue(ctx context.Context) {
	ctx, cancel := v.bounded(ctx)
	defer cancel()
	late, looked, err := v.cfg.Ledger.Overdues(ctx)
	if err != nil {
		v.add("leases", Note, "", "whether etcd ends leases in time was not looked at: %v", err)
		return
	}
	for _, o := range late {
		v.add("leases", Problem, "look at etcd's log for failed revokes (an internal user with a simple token is one cause: use certificates or JWT); syncnode lease steal takes the agent meanwhile",
			"etcd should have ended the liveness %s of device %s and did not", o.Liveness, o.Device)
	}
	if len(late) == 0 {
		v.add("leases", OK, "", "etcd has ended every lease in time, of %d processes that it knows", looked)
	}
}

func (v *visit) runs(ctx context.Context) {
	doubts, long := []string{}, []string{}
	var unread coord.UnreadableError
	f := coord.Filter{States: []coord.RunState{coord.RunInDoubt, coord.RunRunning}, Limit: coord.MaxPage}
	for {
		asked, cancel := v.bounded(ctx)
		page, err := v.cfg.Ledger.List(asked, f)
		cancel()
		if err != nil {
			v.add("runs", Warning, "look at etcd and at the rights of the user", "not looked at: %v", err)
			return
		}
		unread.Add(page.Unreadable)
		for _, view := range page.Views {
			a, _ := view.Entry.Last(func(a coord.Attempt) bool { return a.State == coord.Open })
			name := fmt.Sprintf("%s %s of %s", view.Entry.Agent, view.Entry.Occurrence, a.Device)
			switch {
			case view.State == coord.RunInDoubt:
				doubts = append(doubts, name)
			case v.cfg.Now().Sub(a.Begun) > longRun:
				long = append(long, name)
			}
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	if len(doubts) > 0 {
		v.add("runs", Warning, "find out what happened, then syncnode run resolve", "%d are in doubt, nobody alive saw how they ended: %s", len(doubts), some(doubts))
	}
	if len(long) > 0 {
		v.add("runs", Note, "", "%d run for more than %s: %s", len(long), longRun, some(long))
	}
	if err := unread.Err(); err != nil {
		v.add("runs", Problem, "look at the key: it is damaged, something else wrote it, or a newer release did; nothing of the run begins", "%v", err)
	}
	if len(doubts)+len(long)+unread.Count == 0 {
		v.add("runs", OK, "", "none is in doubt, none runs for more than %s", longRun)
	}
}
