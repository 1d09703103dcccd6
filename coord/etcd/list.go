package etcd

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

const defaultPage = 100 // entries on a page when the filter does not say

// List implements coord.Ledger. Each page is read at one revision.
func (c *Coordinator) List(ctx context.Context, filter coord.Filter) (coord.Page, error) {
	if err := filter.Check(); err != nil {
		return coord.Page{}, err
	}
	limit := filter.Limit
	if limit == 0 {
		limit = defaultPage
	}
	var page coord.Page
	full, err := c.list(ctx, filter, limit, &page)
	if err != nil {
		return coord.Page{}, err
	}
	if !full {
		page.Next = ""
	}
	return page, nil
}

// list fills a page, whose Next is the last that is on it, and says whether there is more.
func (c *Coordinator) list(ctx context.Context, filter coord.Filter, limit int, page *coord.Page) (full bool, err error) {
	agent, run, _ := strings.Cut(filter.After, "/")
	if filter.Agent != "" {
		if filter.Agent > agent {
			agent, run = filter.Agent, ""
		}
		if agent > filter.Agent {
			return false, nil
		}
		return c.listAgent(ctx, filter, agent, run, limit, page)
	}
	for {
		if agent != "" {
			if full, err = c.listAgent(ctx, filter, agent, run, limit, page); err != nil || full {
				return full, err
			}
		}
		if agent, err = c.nextAgent(ctx, agent); err != nil || agent == "" {
			return false, err
		}
		run = ""
	}
}

// A listed is a run as it was found; err says why it cannot be judged.
type listed struct {
	run  string
	view coord.View
	err  error
}

// listAgent adds the runs of one agent behind a run to the page, and says whether the page became full.
func (c *Coordinator) listAgent(ctx context.Context, filter coord.Filter, agent, after string, limit int, page *coord.Page) (full bool, err error) {
	from, end := c.keys.runsOf(agent), clientv3.GetPrefixRangeEnd(c.keys.runsOf(agent))
	if after != "" {
		from += after + "\x00"
	}
	for from != "" {
		found, next, err := c.scan(ctx, from, end)
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue // what was read is too old to be judged: read it again
		}
		if err != nil {
			return false, err
		}
		for _, l := range found {
			if l.err == nil && (l.view.Entry.Packed || !rules.Matches(filter, l.view)) {
				continue
			}
			if len(page.Views)+len(page.Unreadable) == limit {
				return true, nil
			}
			if page.Next = agent + "/" + l.run; l.err == nil {
				page.Views = append(page.Views, l.view)
			} else {
				page.Unreadable = append(page.Unreadable, coord.UnreadableRun{Agent: agent, Run: l.run, Reason: l.err.Error()})
			}
		}
		from = next
	}
	return false, nil
}

// nextAgent is the first agent behind another, in the order of ids, that has runs; empty if there is none. Keys are
// ordered otherwise: an id that is continued by a dot or a dash comes before the id itself, since a slash is greater
// than both.
func (c *Coordinator) nextAgent(ctx context.Context, last string) (string, error) {
	from, end := c.keys.runs(), clientv3.GetPrefixRangeEnd(c.keys.runs())
	if last != "" {
		from += last + "-" // nothing that continues last is before this
	}
	for {
		agent, err := c.firstAgent(ctx, from, end)
		if err != nil || agent == "" {
			return "", err
		}
		if agent <= last {
			from = clientv3.GetPrefixRangeEnd(c.keys.runsOf(agent))
			continue
		}
		for i, char := range agent { // those that the agent continues come first
			if shorter := agent[:i]; (char == '-' || char == '.') && shorter > last {
				own := c.keys.runsOf(shorter)
				if found, err := c.firstAgent(ctx, own, clientv3.GetPrefixRangeEnd(own)); err != nil || found != "" {
					return found, err
				}
			}
		}
		return agent, nil
	}
}

// firstAgent is the agent of the first run's key in a range; empty if there is none. A key that is no run's is stepped over.
func (c *Coordinator) firstAgent(ctx context.Context, from, end string) (string, error) {
	for {
		_, keys, next, err := c.prefix(ctx, "list runs", from, end, clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(keys) == 0 {
			return "", err
		}
		if agent, _, ok := c.keys.parseRun(keys[0]); ok {
			return agent, nil
		}
		if from = next; from == "" {
			return "", nil
		}
	}
}

// scan reads some entries from a key on, and what has to be known to judge them, at one revision. next is where the
// rest begins; empty if there is none. What cannot be read keeps back nothing but the runs that it belongs to.
func (c *Coordinator) scan(ctx context.Context, from, end string) (found []listed, next string, err error) {
	st, keys, next, err := c.prefix(ctx, "list runs", from, end)
	if err != nil || len(keys) == 0 {
		return nil, "", err
	}
	var more []string
	for _, key := range keys {
		agent, _, ok := c.keys.parseRun(key)
		if !ok {
			continue
		}
		more = append(more, c.keys.epoch(agent), c.keys.holder(agent), c.keys.paused(agent), c.keys.recovery(), c.keys.meta())
		entry, _, _ := get[runValue](st, key) // facts tells the error
		for _, a := range entry.Attempts {
			if a.State == coord.Open {
				more = append(more, c.keys.live(a.Device, a.Liveness))
			}
		}
	}
	if err := c.readAt(ctx, "list runs", st, more); err != nil {
		return nil, "", err
	}
	if err := c.readHolders(ctx, "list runs", st); err != nil && !errors.Is(err, ErrFormat) {
		return nil, "", err
	}
	if err := c.checkMeta(st); err != nil {
		return nil, "", err
	}
	for _, key := range keys {
		agent, run, ok := c.keys.parseRun(key)
		if !ok {
			continue
		}
		l := listed{run: run}
		f, err := c.facts(st, agent, run)
		if l.err = err; err == nil {
			l.view = f.View()
		}
		found = append(found, l)
	}
	return found, next, nil
}
