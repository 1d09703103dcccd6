package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A Report says what one pump did.
type Report struct {
	Instance   string // of the relay
	Generation uint64
	Pushed     relay.Pushed
	Pulled     int  // ops journaled
	Refused    int  // ops that did not verify, and those behind them in the same page
	Unparked   int  // ops folded because their time had come, or their key
	Acked      bool // an ack was sent; none is if it would say nothing new
	// Adopted is the checkpoint that was taken because what was asked for had been collected; nil if none was.
	Adopted *Adopted
	// Seeded is the own checkpoint that was given to the relay as its beginning, because it lacked own ops that are only there; empty
	// if that was not necessary. A relay that did not just come into being has lost something.
	Seeded checkpoint.Hash
	// More means that the relay has more, though it did not give it now: pump again soon.
	More bool
	// Behind names devices of which the relay holds less than it has had, or answered a push for, as far as this process knows: it lost
	// something, which those devices, this one among them, offer again when they pump.
	Behind []string
	// Withheld names devices of which the relay said that it has ops which it then neither gave nor called damaged.
	Withheld []string
	// Heads is how far the relay held each chain when the pump began, Floor up to where it had collected them.
	Heads, Floor oplog.Frontier
	// Newer: the relay's newest checkpoint is another than the one that the journal began at then.
	Newer bool
}

// idlePages is how many pages without anything new a pump takes before it leaves the rest for the next.
const idlePages = 3

// Pump exchanges ops with a relay, in this order:
//
//  1. take in what the journal holds, so that all that follows is on stable storage;
//  2. say hello, and compare the heads of the own chain;
//  3. push what the relay lacks of the own chain, once it was given the checkpoint if a part of that is only there;
//  4. pull page by page: verify, journal, sync, fold; where the history was collected, start from the relay's checkpoint;
//  5. ack what is folded, if the relay holds it and does not know it, also where its checkpoint could not be taken.
//
// The report tells what was done also when there is an error. A push that the relay refused, because it is full or
// because the id is frozen, does not keep the pump from pulling; its error is returned at the end.
func (s *Session) Pump(ctx context.Context, r relay.Relay) (Report, error) {
	release, err := s.pump(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("pump: %w", err)
	}
	defer release()
	p := &pump{Session: s, relay: r, gave: oplog.Frontier{}}
	if err = p.run(ctx); err != nil {
		err = fmt.Errorf("pump: %w", err)
	}
	return p.report, err
}

// A pump is one exchange.
type pump struct {
	*Session
	relay  relay.Relay
	info   relay.Info
	gave   oplog.Frontier // what came in this pump
	report Report
}

func (p *pump) run(ctx context.Context) error {
	if err := p.cfg.Journal.Refresh(ctx); err != nil {
		return err
	}
	if err := p.follow(ctx); err != nil {
		return err
	}
	opened, err := p.reopen(ctx)
	if err != nil {
		return err
	}
	p.report.Unparked = opened + p.unpark()
	if err := p.hello(ctx); err != nil {
		return err
	}
	refused := p.offer(ctx)
	if errors.Is(refused, ErrFrozen) {
		if err := p.noteFrozen(ctx); err != nil {
			refused = errors.Join(refused, err) // the next pump tries again
		}
	}
	if refused != nil && (unreached(refused) || ctx.Err() != nil) {
		return refused
	}
	if p.cfg.Role == relay.Writer {
		return refused
	}
	err = p.pull(ctx)
	if errors.Is(err, ErrFrozen) && !errors.Is(refused, ErrFrozen) {
		err = errors.Join(err, p.noteFrozen(ctx))
	}
	if err != nil && !errors.Is(err, relay.ErrFrontierTruncated) {
		return errors.Join(err, refused)
	}
	// Without its ack nobody could make the checkpoint that gets a device on which lacks what was collected and can take no other.
	return errors.Join(err, p.ack(ctx), refused)
}

// unreached reports whether a call got no answer, so that further calls are not worth trying.
func unreached(err error) bool {
	return errors.Is(err, relay.ErrNotSent) || errors.Is(err, relay.ErrIndeterminate) && !errors.Is(err, relay.ErrFull)
}

func (p *pump) hello(ctx context.Context) error {
	info, err := p.relay.Hello(ctx, p.cfg.Device)
	if err != nil {
		return err
	}
	p.info = info
	p.report.Instance, p.report.Generation = info.Instance, info.Generation
	p.report.Behind, p.report.Heads, p.report.Floor = p.behind(), info.Heads, info.Floor
	p.mu.Lock()
	p.report.Newer = info.Checkpoint != "" && !p.isBaseLocked(info.Checkpoint)
	p.mu.Unlock()
	if info.Role == p.cfg.Role {
		return nil
	}
	return p.relay.Register(ctx, p.cfg.Device, p.cfg.Role)
}

// behind names the other devices of which the relay holds less than this device has acked to it, and this one if that is so of what the
// relay answered for.
func (p *pump) behind() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	acked := p.acked[p.info.Instance]
	if acked == nil {
		p.forgetRelaysLocked()
		acked = oplog.Frontier{}
		p.acked[p.info.Instance] = acked
	}
	relay.Join(acked, p.info.Acked)
	var names []string
	for device, at := range acked {
		if _, closed := p.base.Closed[device]; closed {
			continue // its rows may be gone for ever
		}
		if device != p.cfg.Device && !p.info.Heads.Covers(device, at.Seq) {
			names = append(names, device)
		}
	}
	_, closed := p.base.Closed[p.cfg.Device]
	at, had := p.answered[p.info.Instance]
	if had && !closed && p.frozen == nil && !(p.info.Known && p.info.Head.Seq >= at.Seq) {
		names = append(names, p.cfg.Device)
	}
	slices.Sort(names)
	return names
}

// answers notes the last own op that the relay has by its own word.
func (p *pump) answers(at oplog.Pos) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.answered[p.info.Instance]; !ok || was.Seq < at.Seq {
		p.answered[p.info.Instance] = at
	}
}

// maxRelays is of how many relays a session remembers what it knows of them alone; one that gives another instance each time costs no
// more.
const maxRelays = 16

// forgetRelaysLocked makes room for another relay.
func (s *Session) forgetRelaysLocked() {
	if len(s.acked) < maxRelays {
		return
	}
	clear(s.acked)
	clear(s.answered)
	clear(s.unheld)
	clear(s.covered)
	for from := range s.quarantined {
		if from.instance != "" {
			delete(s.quarantined, from)
		}
	}
}

// offer compares the own heads and pushes what the relay lacks.
func (p *pump) offer(ctx context.Context) error {
	for range 3 { // another process of this device may push at the same time
		from, err := p.compare(ctx)
		switch {
		case errors.Is(err, ErrRelayBehind):
			if seedErr := p.seed(ctx); seedErr != nil {
				return errors.Join(err, seedErr)
			}
		case err != nil:
			return err
		default:
			if p.info.Known {
				p.answers(p.info.Head.Pos())
			}
			err = p.push(ctx, from)
			if closed, ok := errors.AsType[*relay.ClosedError](err); ok {
				own, _ := p.cfg.Journal.Head()
				return fmt.Errorf("%w: %w", p.freeze(false, own.Pos(), closed.Last), err)
			}
			if !errors.Is(err, relay.ErrGap) && !errors.Is(err, relay.ErrFork) {
				return err
			}
		}
		again, helloErr := p.relay.Hello(ctx, p.cfg.Device)
		if helloErr != nil {
			return helloErr
		}
		if again.Instance != p.info.Instance { // what was found out so far is of the other one: the next pump begins anew
			return fmt.Errorf("push: %w: the relay has become another store", relay.ErrNotSent)
		}
		if again.Known == p.info.Known && again.Head == p.info.Head {
			return err
		}
		p.info = again
	}
	return fmt.Errorf("push: %w: the relay's head keeps moving", relay.ErrNotSent)
}

// push offers the own chain from a seq on, in calls as large as may be. All of it is on stable storage: the journal
// shows nothing else.
func (p *pump) push(ctx context.Context, from uint64) error {
	head, ok := p.cfg.Journal.Head()
	if !ok || head.Seq < from {
		return nil
	}
	var ops []oplog.Op
	size := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		done, err := p.relay.Push(ctx, p.cfg.Device, ops)
		p.report.Pushed.Accepted += done.Accepted
		p.report.Pushed.Duplicate += done.Duplicate
		if err == nil {
			last := ops[len(ops)-1]
			p.answers(oplog.Pos{Seq: last.Seq, ID: last.ID})
		}
		ops, size = ops[:0:0], 0
		return err
	}
	for op, err := range p.cfg.Journal.Own(from) {
		if err != nil {
			return fmt.Errorf("read the own chain: %w", err)
		}
		if n := relay.LineLen(op); len(ops) == relay.MaxOps || size+n > relay.MaxBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		ops, size = append(ops, op), size+relay.LineLen(op)
	}
	return flush()
}

// pull takes pages while there are any.
func (p *pump) pull(ctx context.Context) error {
	if !p.news() {
		return nil
	}
	for idle := 0; ; {
		want := relay.Want{Held: p.HeldFrontier(), Skip: p.skip(p.info.Instance)}
		page, err := p.relay.Pull(ctx, p.cfg.Device, want)
		if errors.Is(err, relay.ErrFrontierTruncated) && p.report.Adopted == nil {
			if adoptErr := p.adoptNewest(ctx); adoptErr != nil {
				return errors.Join(err, adoptErr)
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, op := range page.Ops {
			relay.Join(p.gave, oplog.Frontier{op.Device: {Seq: op.Seq, ID: op.ID}})
		}
		took, err := p.admit(ctx, page)
		if err != nil {
			return err
		}
		p.asked(p.info)
		if idle++; took > 0 {
			idle = 0
		}
		if !page.More || idle == idlePages {
			p.report.More = page.More
			if !page.More {
				p.withheld()
			}
			return nil
		}
	}
}

// withheld notes whose ops the relay has by its own word and did not give.
func (p *pump) withheld() {
	skip := p.skip(p.info.Instance)
	p.mu.Lock()
	defer p.mu.Unlock()
	for device, at := range p.info.Heads {
		_, closed := p.base.Closed[device]
		if closed || slices.Contains(skip, device) || p.held.Covers(device, at.Seq) || p.quarantined[source{p.info.Instance, device}] != nil {
			continue
		}
		p.report.Withheld = append(p.report.Withheld, device)
	}
	if slices.Sort(p.report.Withheld); len(p.report.Withheld) > 0 {
		p.log.Warn("the relay does not give ops that it says it has", "relay", p.info.Instance, "of", p.report.Withheld)
	}
}

// news reports whether the relay may hold anything that the journal lacks and that is wanted now. Of closed chains it may have no
// more than its checkpoint: what that covers is found out by asking, once for each.
func (p *pump) news() bool {
	skip := p.skip(p.info.Instance)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.info.Checkpoint; c != "" && !p.isBaseLocked(c) && c != p.covered[p.info.Instance] {
		return true
	}
	for device, at := range p.info.Heads {
		if !slices.Contains(skip, device) && !p.held.Covers(device, at.Seq) {
			return true
		}
	}
	return false
}

// asked notes that the relay gave a page while that checkpoint was its newest: what is closed in it is held here.
func (s *Session) asked(info relay.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.covered[info.Instance] = info.Checkpoint
}

// ack tells the relay what is folded, if that is more than it knows. All that is folded is on stable storage. Of what came from
// another relay nothing is told: this one would seem to have lost it.
func (p *pump) ack(ctx context.Context) error {
	folded := p.FoldedFrontier()
	p.mu.Lock()
	p.clipLocked(folded)
	if p.frozen != nil {
		delete(folded, p.cfg.Device) // what the relay holds there is not what is folded here
	}
	p.mu.Unlock()
	if !relay.Join(p.info.Acked.Clone(), folded) {
		return nil
	}
	if err := p.relay.Ack(ctx, p.cfg.Device, folded); err != nil {
		return err
	}
	p.report.Acked = true
	p.mu.Lock()
	defer p.mu.Unlock()
	relay.Join(p.acked[p.info.Instance], folded)
	return nil
}

// clipLocked leaves out of what is folded what the relay does not hold. Of a chain that is always further here than there, how far it was
// here some pumps ago is taken, once the relay holds that.
func (p *pump) clipLocked(folded oplog.Frontier) {
	unheld := p.unheld[p.info.Instance]
	if unheld == nil {
		unheld = oplog.Frontier{}
		p.unheld[p.info.Instance] = unheld
	}
	holds := func(device string, seq uint64) bool {
		return device == p.cfg.Device || p.info.Heads.Covers(device, seq) || p.gave.Covers(device, seq)
	}
	for device, at := range folded {
		was, waits := unheld[device]
		switch {
		case holds(device, at.Seq):
			delete(unheld, device)
		case waits && holds(device, was.Seq):
			folded[device], unheld[device] = was, at
		default:
			delete(folded, device)
			if !waits {
				unheld[device] = at
			}
		}
	}
}
