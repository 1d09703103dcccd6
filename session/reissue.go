package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
)

// noting makes durable that the id is frozen, if err says that it is; otherwise it is err.
func (s *Session) noting(ctx context.Context, r relay.Relay, err error) error {
	if !errors.Is(err, ErrFrozen) {
		return err
	}
	if _, ok, readErr := s.cfg.Journal.Frozen(); ok || readErr != nil {
		return errors.Join(err, readErr)
	}
	p := &pump{Session: s, relay: r}
	noted := p.hello(ctx)
	if noted == nil {
		noted = p.noteFrozen(ctx)
	}
	return errors.Join(err, noted) // a failed note is made by the next pump
}

// noteFrozen makes the freezing of the id durable, together with where the ops begin that the relay does not have.
func (p *pump) noteFrozen(ctx context.Context) error {
	if _, ok, err := p.cfg.Journal.Frozen(); ok || err != nil {
		return err
	}
	p.mu.Lock()
	f := *p.frozen
	p.mu.Unlock()
	first, fork, err := p.unpushed(ctx, &f)
	if err != nil {
		return fmt.Errorf("find the ops that the relay does not have: %w", err)
	}
	note := journal.Frozen{First: first, Fork: fork, Own: f.Own, Relay: f.Relay}
	if note.Earlier, err = p.wroteSince(first, fork); err != nil {
		return err
	}
	if err := p.cfg.Journal.Freeze(ctx, note); err != nil {
		return err
	}
	p.mu.Lock()
	p.frozen = frozenOf(p.cfg.Device, note)
	p.mu.Unlock()
	return nil
}

// wroteSince reports whether the relay's branch was all written before the own one, which begins at first.
func (p *pump) wroteSince(first uint64, fork bool) (bool, error) {
	if !fork || !p.info.Known {
		return false, nil
	}
	op, ok, err := p.cfg.Journal.OpAt(first)
	if errors.Is(err, journal.ErrAnchored) {
		return false, nil
	}
	return ok && p.info.Head.HLC.Compare(op.HLC) < 0, err
}

var (
	// errCollected means that the relay has collected what there is to compare.
	errCollected = errors.New("the relay has collected the own ops")
	// errBadOwn means that the relay gives own ops that are none.
	errBadOwn = errors.New("the relay holds a bad op under this id")
)

// unpushed finds the first own op that is not in the relay's chain, and whether that one goes another way.
func (p *pump) unpushed(ctx context.Context, f *FrozenError) (first uint64, fork bool, err error) {
	if f.Own.ID == "" {
		return 0, f.Fork, nil
	}
	first, err = p.parting(ctx, f)
	if errors.Is(err, errCollected) || errors.Is(err, errBadOwn) {
		first, err = p.proved(ctx)
		return first, f.Fork, err
	}
	return first, f.Fork || first <= f.Own.Seq, err
}

// parting finds where both chains part, by halving.
func (p *pump) parting(ctx context.Context, f *FrozenError) (uint64, error) {
	if !p.info.Known {
		return 0, errCollected // or the chain is closed, and its rows are gone
	}
	low, high := uint64(0), min(f.Own.Seq, p.info.Head.Seq)+1 // ops below low are common, the one at high is not
	if base, ok := p.baseHeader().Heads[p.cfg.Device]; ok {
		low = base.Seq + 1
	}
	if floor, ok := p.info.Floor[p.cfg.Device]; ok && floor.Seq >= low {
		if floor.Seq > f.Own.Seq {
			return 0, errCollected
		}
		id, err := p.ownAt(floor.Seq)
		if err != nil {
			return 0, err
		}
		if id != floor.ID {
			return 0, errCollected
		}
		low = floor.Seq + 1
	}
	for mid := high - 1; low < high; mid = low + (high-low)/2 { // the end first: most often all is common
		theirs, err := p.theirs(ctx, mid)
		if err != nil {
			return 0, err
		}
		ours, err := p.ownAt(mid)
		if err != nil {
			return 0, err
		}
		if ours == theirs {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// proved is behind the last own op that the relay's checkpoint shows: by its chain, the relay had all up to there. What comes after may have
// been there as well and be overwritten: it is written again rather than lost.
func (p *pump) proved(ctx context.Context) (uint64, error) {
	first := uint64(0)
	if base, ok := p.baseHeader().Heads[p.cfg.Device]; ok {
		first = base.Seq + 1
	}
	store, ok := p.relay.(relay.Collector)
	if !ok {
		return first, nil
	}
	newest, ok, err := store.Checkpoint(ctx)
	if err != nil || !ok {
		return first, err
	}
	offered, err := p.open(newest)
	if err != nil {
		return first, err
	}
	c, err := checkpoint.Decode(bytes.NewReader(offered.body), offered.hash)
	if err != nil {
		return first, err
	}
	shown := map[oplog.OpID]bool{c.Heads[p.cfg.Device].ID: true, c.Closed[p.cfg.Device].ID: true}
	for rec := range c.State.All() {
		if rec.HLC.Device == p.cfg.Device {
			shown[rec.ID] = true
		}
	}
	for op, err := range p.cfg.Journal.Own(first) {
		if err != nil {
			return first, err
		}
		if shown[op.ID] {
			first = op.Seq + 1
		}
	}
	return first, nil
}

// theirs is the id of the op at a seq of the own chain, as the relay has it.
func (p *pump) theirs(ctx context.Context, seq uint64) (oplog.OpID, error) {
	want := relay.Want{Held: p.HeldFrontier(), MaxBytes: 1} // what is skipped counts as held
	delete(want.Held, p.cfg.Device)
	if seq > 0 {
		id, err := p.ownAt(seq - 1)
		if err != nil {
			return "", err
		}
		want.Held[p.cfg.Device] = oplog.Pos{Seq: seq - 1, ID: id}
	}
	for device := range p.info.Heads {
		if device != p.cfg.Device {
			want.Skip = append(want.Skip, device)
		}
	}
	page, err := p.relay.Pull(ctx, p.cfg.Device, want)
	if err != nil {
		return "", err
	}
	for _, op := range page.Ops {
		if op.Device != p.cfg.Device || op.Seq != seq {
			continue
		}
		if err := op.Check(); err != nil {
			return "", fmt.Errorf("%w: %w", errBadOwn, err)
		}
		return op.ID, nil
	}
	return "", fmt.Errorf("%w: it does not give own op %d", ErrUnproved, seq)
}

// Reissue writes the ops that no relay has of a journal whose id is frozen again under a new id, and says how many. It has to be called
// before the new id is used, and whenever a device that was renewed starts: what was running under the old id may have recorded its
// end since. It may be repeated, also after a crash, and writes nothing twice. It fails with journal.ErrNotFrozen or an error of
// either journal.
//
// An intent refers to the old op as `reissue_of`, and keeps the device of its attempt. Other payloads say what they said; what was
// sealed for its old place is sealed for the new one, and without its key nothing is written (seal.ErrNoKey). The file REISSUED.json
// of the new journal says which op stands for which.
func Reissue(ctx context.Context, from, to *journal.Journal, keys *seal.Sealer) (int, error) {
	if keys == nil {
		var err error
		if keys, err = seal.New(seal.Config{}); err != nil {
			return 0, err
		}
	}
	return to.Reissue(ctx, from, func(op oplog.Op) (journal.Draft, error) {
		if op.Surface == oplog.Intents {
			return intentAgain(op)
		}
		return payloadAgain(keys, op)
	})
}

// payloadAgain is a payload as it is written under another id: sealed for its new place if it was sealed, or has to be now.
func payloadAgain(keys *seal.Sealer, op oplog.Op) (journal.Draft, error) {
	content := []byte(op.Payload)
	d := journal.Draft{Scope: op.Scope, Surface: op.Surface, Payload: content}
	if isSealed(op) {
		var err error
		if content, err = Content(keys, op); err != nil {
			return journal.Draft{}, err
		}
		d.Payload, d.Finish = nil, func(p journal.Place) ([]byte, error) { return keys.Seal(headerAt(p), content) }
	} else {
		var err error
		if d, err = sealedDraft(keys, op.Scope, op.Surface, op.Payload); err != nil {
			return journal.Draft{}, err
		}
	}
	if d.Finish != nil {
		d.Same = func(here oplog.Op) (bool, error) {
			there, err := Content(keys, here)
			return bytes.Equal(there, content), err
		}
	}
	return d, nil
}

// intentAgain is an intent as it is written under another id.
func intentAgain(op oplog.Op) (journal.Draft, error) {
	d := journal.Draft{Scope: op.Scope, Surface: op.Surface, Payload: op.Payload}
	var members map[string]json.RawMessage
	if json.Unmarshal(op.Payload, &members) != nil || members == nil {
		return d, nil
	}
	delete(members, "settled") // speaks of sequence numbers of the old chain
	members["reissue_of"] = quoted(string(op.ID))
	if _, ok := members["device"]; !ok {
		members["device"] = quoted(op.Device)
	}
	payload, err := oplog.Canonical(members)
	if _, large := errors.AsType[*oplog.SizeError](err); large {
		return d, nil // the words themselves matter more than the reference
	}
	d.Payload = payload
	return d, err
}

func quoted(id string) json.RawMessage { return json.RawMessage(`"` + id + `"`) }
