package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// look reads an agent, and a run of it unless run is empty, in one revision, together with every liveness key
// that what they hold names. extra keys are read beside them.
func (c *Coordinator) look(ctx context.Context, what, agent, run string, extra ...string) (state, error) {
	c.mu.Lock()
	hint := c.hints[agent]
	c.mu.Unlock()
	keys := append([]string{c.keys.epoch(agent), c.keys.holder(agent), c.keys.meta()}, extra...)
	if run != "" {
		keys = append(keys, c.runKeys(agent, run, hint.depth)...)
	}
	if hint.live != "" {
		keys = append(keys, hint.live)
	}
	for {
		keys = unique(keys)
		st, err := c.read(ctx, what, agent, keys)
		if err != nil {
			return state{}, err
		}
		more, err := c.missing(st, agent, run)
		if err != nil {
			return state{}, fmt.Errorf("%s %s: %w: %w", what, agent, coord.ErrNotSent, err)
		}
		if len(more) == 0 {
			return st, c.checkMeta(st)
		}
		keys = append(keys, more...)
	}
}

// runKeys are the keys that say whether a run may begin, with its buckets down to depth.
func (c *Coordinator) runKeys(agent, run string, depth int) []string {
	keys := []string{c.keys.run(agent, run), c.keys.paused(agent), c.keys.recovery()}
	for d := range depth + 1 {
		keys = append(keys, c.keys.bucket(agent, run, d))
	}
	return keys
}

// missing are the keys that have to be read too, given what was read: live keys and deeper buckets.
func (c *Coordinator) missing(st state, agent, run string) ([]string, error) {
	var more []string
	holder, held, err := get[holderValue](st, c.keys.holder(agent))
	if err != nil {
		return nil, err
	}
	hint := agentHint{}
	if held && holder.Liveness != "" {
		hint.live = c.keys.live(holder.Device, holder.Liveness)
		more = append(more, hint.live)
	}
	if run != "" {
		entry, _, err := get[runValue](st, c.keys.run(agent, run))
		if err != nil {
			return nil, err
		}
		for _, a := range entry.Attempts {
			if a.State == coord.Open && a.Liveness != "" {
				more = append(more, c.keys.live(a.Device, a.Liveness))
			}
		}
		_, depth, err := c.leaf(st, agent, run)
		if err != nil {
			return nil, err
		}
		more = append(more, c.keys.bucket(agent, run, depth))
		hint.depth, hint.full = depth, st.has(c.keys.bucket(agent, run, 0))
	}
	c.learn(agent, run, hint)
	return slices.DeleteFunc(more, st.knows), nil
}

// maxHints bounds the agents that are hinted at: a node may be asked about ever new ones. Whose hint is gone is read twice.
const maxHints = 1 << 15

// learn keeps the hint for the next look.
func (c *Coordinator) learn(agent, run string, h agentHint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run == "" {
		h.depth, h.full = c.hints[agent].depth, c.hints[agent].full
	}
	if _, known := c.hints[agent]; !known && len(c.hints) == maxHints {
		for other := range c.hints {
			delete(c.hints, other)
			break
		}
	}
	c.hints[agent] = h
}

// leaf is the bucket that the run belongs to, as far as it was read, and its depth.
func (c *Coordinator) leaf(st state, agent, run string) (key string, depth int, err error) {
	for {
		key = c.keys.bucket(agent, run, depth)
		b, ok, err := get[bucketValue](st, key)
		if err != nil || !ok || !b.Split || c.keys.bucket(agent, run, depth+1) == key {
			return key, depth, err
		}
		depth++
	}
}

// facts turns what was read into what the rules judge. Ours needs the nonce of a settled grant.
func (c *Coordinator) facts(st state, agent, run string) (rules.Facts, error) {
	f := rules.Facts{Entry: coord.Entry{Agent: agent, Run: run}, Self: c.mine}
	var errs []error
	epoch, _, err := get[epochValue](st, c.keys.epoch(agent))
	errs = append(errs, err)
	f.Epoch = epoch.Epoch
	holder, held, err := get[holderValue](st, c.keys.holder(agent))
	errs = append(errs, err)
	if held {
		f.Held, f.Holder = true, c.lease(agent, holder, st)
		if sent, ours := c.sentOf(agent, holder.Nonce); ours {
			f.Ours, f.Holder.Sent = true, sent
		}
	}
	if run != "" {
		errs = append(errs, c.runFacts(st, &f))
	}
	if err := errors.Join(errs...); err != nil {
		return f, fmt.Errorf("agent %s: %w: %w", agent, coord.ErrNotSent, err)
	}
	return f, nil
}

func (c *Coordinator) runFacts(st state, f *rules.Facts) error {
	agent, run := f.Entry.Agent, f.Entry.Run
	entry, found, errEntry := get[runValue](st, c.keys.run(agent, run))
	f.Found = found
	f.Entry.Occurrence, f.Entry.Input, f.Entry.Attempts = entry.Occurrence, entry.Input, entry.Attempts
	packed, errLeaf := c.packed(st, agent, run)
	f.Entry.Packed, f.Found = packed, found || packed
	alive := map[string]bool{}
	for _, a := range entry.Attempts {
		alive[a.Liveness] = a.Liveness != "" && st.has(c.keys.live(a.Device, a.Liveness))
	}
	f.Alive = func(liveness string) bool { return alive[liveness] }
	paused, isPaused, errPaused := get[gateValue](st, c.keys.paused(agent))
	if isPaused {
		f.Paused = &paused.Gate
	}
	recovery, isRecovery, errRecovery := get[gateValue](st, c.keys.recovery())
	if isRecovery {
		f.Recovery = &recovery.Gate
	}
	return errors.Join(errEntry, errLeaf, errPaused, errRecovery)
}

// packed reports whether the run's bucket lists it as committed.
func (c *Coordinator) packed(st state, agent, run string) (bool, error) {
	key, _, err := c.leaf(st, agent, run)
	if err != nil {
		return false, err
	}
	b, _, err := get[bucketValue](st, key)
	_, listed := slices.BinarySearch(b.Runs, run)
	return listed, err
}

// lease is what a holder's record says.
func (c *Coordinator) lease(agent string, h holderValue, st state) coord.Lease {
	return coord.Lease{
		Agent: agent, Device: h.Device, Epoch: h.Epoch, TTL: time.Duration(h.TTL) * time.Millisecond, Handle: h.Nonce,
		Liveness: h.Liveness, Expired: !st.has(c.keys.live(h.Device, h.Liveness)), Since: h.Since, Jump: h.Jump,
		Note: h.Note, By: h.By, Reason: h.Reason, Process: h.Process,
	}
}

// unique drops repeated and empty keys, keeping the order.
func unique(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		again := seen[key] || key == ""
		seen[key] = true
		return again
	})
}

// joined is nil if all errs are, and else says what was being done.
func joined(what string, errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
