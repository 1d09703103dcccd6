package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// defaultPage is how many entries a page has when the filter does not say.
const defaultPage = 100

// Look reads a run and its agent.
func (c *Coordinator) Look(ctx context.Context, q coord.Question) (v coord.View, err error) {
	err = c.step(ctx, q.Check(), func() error {
		v = c.store.factsLocked(c, q.Agent, q.Run).View()
		v.Witness = make(map[string]bool, len(q.Witnesses))
		for _, w := range q.Witnesses {
			v.Witness[w.Run] = rules.Witness(c.store.runs[w])
		}
		return nil
	})
	return v, err
}

// Begin opens an attempt, or says why not.
func (c *Coordinator) Begin(ctx context.Context, b coord.Begin) (a coord.Attempt, err error) {
	err = c.step(ctx, b.Check(), func() error {
		f := c.store.factsLocked(c, b.Lease.Agent, b.Run)
		open, again, err := rules.Begin(f, b)
		if err != nil {
			return err
		}
		if a = open; !again {
			a = rules.Attempt(b, f.Holder, c.liveness(f.Holder.TTL), c.store.now())
			c.store.storeLocked(rules.Open(f, b, a))
		}
		return nil
	})
	return a, err
}

// Cancel gives a Begin up.
func (c *Coordinator) Cancel(ctx context.Context, b coord.Begin) error {
	return c.change(ctx, b.Check(), b.Lease.Agent, b.Run, func(f rules.Facts) (coord.Entry, bool, error) {
		return rules.Cancel(f, b, c.store.now())
	})
}

// Finish records how an attempt ended.
func (c *Coordinator) Finish(ctx context.Context, o coord.Outcome) error {
	return c.change(ctx, o.Check(), o.Agent, o.Run, func(f rules.Facts) (coord.Entry, bool, error) {
		e, changed := rules.Join(f, o)
		return e, changed, nil
	})
}

// Resolve closes an attempt as a person decided.
func (c *Coordinator) Resolve(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return c.decide(ctx, r.Check(), r, func(f rules.Facts) (coord.Entry, bool, error) {
		return rules.Resolve(f, r, c.store.now())
	})
}

// Permit lets a failed run be begun once more.
func (c *Coordinator) Permit(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return c.decide(ctx, r.CheckPermit(), r, func(f rules.Facts) (coord.Entry, bool, error) {
		return rules.Permit(f, r)
	})
}

func (c *Coordinator) decide(ctx context.Context, invalid error, r coord.Resolution, rule func(rules.Facts) (coord.Entry, bool, error)) (v coord.View, err error) {
	err = c.change(ctx, invalid, r.Agent, r.Run, func(f rules.Facts) (coord.Entry, bool, error) {
		e, changed, err := rule(f)
		f.Entry = e
		v = f.View()
		return e, changed, err
	})
	return v, err
}

// change is one step that reads a run, asks the rule, and writes what the rule made of it.
func (c *Coordinator) change(ctx context.Context, invalid error, id, run string, rule func(rules.Facts) (coord.Entry, bool, error)) error {
	return c.step(ctx, invalid, func() error {
		e, changed, err := rule(c.store.factsLocked(c, id, run))
		if err == nil && changed {
			c.store.storeLocked(e)
		}
		return err
	})
}

// List shows the entries in the order of agent and run.
func (c *Coordinator) List(ctx context.Context, filter coord.Filter) (p coord.Page, err error) {
	err = c.step(ctx, filter.Check(), func() error {
		limit := filter.Limit
		if limit == 0 {
			limit = defaultPage
		}
		for _, ref := range c.store.refsLocked() {
			if !after(ref, filter.After) {
				continue
			}
			v := c.store.factsLocked(c, ref.Agent, ref.Run).View()
			if v.Entry.Packed || !rules.Matches(filter, v) {
				continue
			}
			if len(p.Views) == limit {
				last := p.Views[limit-1].Entry
				p.Next = last.Agent + "/" + last.Run
				break
			}
			p.Views = append(p.Views, v)
		}
		return nil
	})
	return p, err
}

func (s *Store) refsLocked() []coord.RunRef {
	refs := make([]coord.RunRef, 0, len(s.runs))
	for ref := range s.runs {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b coord.RunRef) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Run, b.Run))
	})
	return refs
}

// after reports whether ref stands behind the cursor.
func after(ref coord.RunRef, cursor string) bool {
	if cursor == "" {
		return true
	}
	agent, run, _ := strings.Cut(cursor, "/")
	return ref.Agent > agent || ref.Agent == agent && ref.Run > run
}
