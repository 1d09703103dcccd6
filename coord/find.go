package coord

import (
	"context"
	"fmt"
)

// A Looker is the part of a [Ledger] that Find asks.
type Looker interface {
	Look(ctx context.Context, q Question) (View, error)
	List(ctx context.Context, f Filter) (Page, error)
}

// Find looks up a run of which only the id is known: it searches the list of entries that f selects for the run's
// agent, page by page (f.Limit is ignored), and then looks at the run as Look does. It proposes nothing.
//
// A run that is not there gives ErrNotFound. So does one of which only the commit is kept, since packed entries are
// not listed: with its agent, Look finds it. An error of l is returned as it is. The search reads all that f selects,
// up to the run: where the agent is known, use Look.
func Find(ctx context.Context, l Looker, f Filter, run string) (View, error) {
	for f.Limit = MaxPage; ; {
		page, err := l.List(ctx, f)
		if err != nil {
			return View{}, err
		}
		for _, v := range page.Views {
			if v.Entry.Run == run {
				return l.Look(ctx, Question{Agent: v.Entry.Agent, Run: run})
			}
		}
		for _, u := range page.Unreadable {
			if u.Run == run {
				return l.Look(ctx, Question{Agent: u.Agent, Run: run}) // it says why
			}
		}
		if f.After = page.Next; f.After == "" {
			return View{}, notFound(f, run)
		}
	}
}

func notFound(f Filter, run string) error {
	where := "the ledger"
	if f.Device != "" {
		where += " with an attempt of device " + f.Device
	}
	return fmt.Errorf("%w: run %s is in no entry of %s; name its agent if it is old", ErrNotFound, run, where)
}
