package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
)

// headerOf is the place that the payload of an op is sealed for.
func headerOf(op oplog.Op) seal.Header {
	return seal.Header{Device: op.Device, Seq: op.Seq, Prev: string(op.Prev), Wall: op.HLC.WallMS, Counter: op.HLC.Counter,
		Stamper: op.HLC.Device, Scope: string(op.Scope), Surface: string(op.Surface)}
}

func headerAt(p journal.Place) seal.Header {
	return seal.Header{Device: p.Device, Seq: p.Seq, Prev: string(p.Prev), Wall: p.HLC.WallMS, Counter: p.HLC.Counter,
		Stamper: p.HLC.Device, Scope: string(p.Scope), Surface: string(p.Surface)}
}

// isSealed reports whether what an op says is not there for everybody to read.
func isSealed(op oplog.Op) bool { return op.Surface != oplog.Intents && seal.LooksSealed(op.Payload) }

// Content is what an op says: its payload, or what is sealed in it. Whoever sealed it may have sealed anything, so that is checked
// as payloads are. Errors are those of [seal.Sealer.Read], and one that matches oplog.ErrCanon.
func Content(s *seal.Sealer, op oplog.Op) ([]byte, error) {
	content, err := s.Read(headerOf(op), op.Payload)
	if err != nil || !isSealed(op) {
		return content, err
	}
	if err := oplog.CheckCanonical(content); err != nil {
		return nil, fmt.Errorf("op %s/%d: what is sealed in it: %w", op.Device, op.Seq, err)
	}
	return content, nil
}

// content is Content with the session's keys.
func (s *Session) content(op oplog.Op) ([]byte, error) { return Content(s.cfg.Seal, op) }

// ErrFinished means that a draft has a Finish, with which it could go past the seal. Nothing was written.
var ErrFinished = errors.New("session: a draft finishes itself")

// sealed are drafts as they go to the journal: checked while they can be read, and sealed, where the policy says so, when their place
// is known. Nothing is written if one is refused.
func (s *Session) sealed(drafts []journal.Draft) ([]journal.Draft, error) {
	out := make([]journal.Draft, len(drafts))
	for i, d := range drafts {
		if d.Finish != nil {
			return nil, ErrFinished
		}
		var err error
		if out[i], err = sealedDraft(s.cfg.Seal, d.Scope, d.Surface, d.Payload); errors.Is(err, seal.ErrNoKey) {
			s.reloadKeys() // the file may have come since
			out[i], err = sealedDraft(s.cfg.Seal, d.Scope, d.Surface, d.Payload)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func sealedDraft(sealer *seal.Sealer, scope oplog.Scope, surface oplog.Surface, payload []byte) (journal.Draft, error) {
	if surface == oplog.Intents {
		return journal.Draft{Scope: scope, Surface: surface, Payload: payload}, nil
	}
	content, err := oplog.Canonical(payload)
	if err != nil {
		return journal.Draft{}, fmt.Errorf("payload: %w", err)
	}
	draft, err := sealer.Draft(string(scope), string(surface), content)
	if err != nil {
		return journal.Draft{}, err
	}
	d := journal.Draft{Scope: scope, Surface: surface, Payload: content}
	if draft.Sealed() {
		d.Payload = nil // so that no mistake writes it
		d.Finish = func(p journal.Place) ([]byte, error) { return draft.Payload(headerAt(p)) }
	}
	return d, nil
}

// A stop is where a chain ceased to be folded because an op cannot be read. The journal holds it and what follows; memory holds only
// where to go on, and of what follows the commits.
type stop struct {
	next  uint64     // the op that is folded next
	prev  oplog.OpID // the op before that one
	err   error
	since time.Time
	again bool // it is being read again
}

// key is the key that is missing, empty if that is not the reason.
func (st *stop) key() string {
	if open, ok := errors.AsType[*seal.OpenError](st.err); ok && errors.Is(open, seal.ErrNoKey) {
		return open.Key
	}
	return ""
}

// stopLocked notes that op, the next of its chain to be folded, cannot be read.
func (s *Session) stopLocked(op oplog.Op, err error) {
	s.stopped[op.Device] = &stop{next: op.Seq, prev: op.Prev, err: err, since: s.cfg.Now()}
	delete(s.parked, op.Device) // noted before
	s.log.Warn("a chain cannot be read on", "of", op.Device, "seq", op.Seq, "permanent", !seal.Temporary(err), "cause", err)
}

// reloadKeys looks whether the key file has changed. One that cannot be read leaves the keys as they are, and is told once.
func (s *Session) reloadKeys() {
	changed, err := s.cfg.Seal.Reload()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && (s.keysErr == nil || s.keysErr.Error() != err.Error()):
		s.log.Warn("the key file cannot be read; the keys read before stay in use", "cause", err)
	case changed:
		s.log.Info("the keys have changed")
	}
	s.keysErr = err
}

// reopen goes on with the chains that stopped for want of a key which is there now, and says how many ops it folded.
func (s *Session) reopen(ctx context.Context) (folded int, err error) {
	s.reloadKeys()
	if len(s.openable(false)) == 0 {
		return 0, nil
	}
	err = s.whileReading(ctx, func() (err error) {
		folded, err = s.readAgain()
		return err
	})
	return folded, err
}

// openable are the stopped chains whose key is there. With mark, readAgain works on them until it says otherwise.
func (s *Session) openable(mark bool) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for device, st := range s.stopped {
		if key := st.key(); key != "" && s.cfg.Seal.Has(key) {
			out[device] = true
			st.again = mark
		}
	}
	return out
}

// readAgain folds what the journal holds of the stopped chains whose key is there. Nobody else moves the cursors meanwhile; but own
// ops may be appended, which then wait for the next look.
func (s *Session) readAgain() (folded int, err error) {
	chains := s.openable(true)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, st := range s.stopped {
			st.again = false
		}
	}()
	if chains[s.cfg.Device] {
		if folded, err = s.readOwnAgain(); err != nil {
			return folded, err
		}
	}
	delete(chains, s.cfg.Device)
	if len(chains) == 0 {
		return folded, nil
	}
	for e, err := range s.cfg.Journal.Kept(s.cutName(), journal.Peers) {
		if err != nil {
			return folded, err
		}
		if chains[e.Op.Device] {
			folded += s.resume(e.Op)
		}
	}
	return folded, nil
}

func (s *Session) readOwnAgain() (folded int, err error) {
	s.mu.Lock()
	st := s.stopped[s.cfg.Device]
	s.mu.Unlock()
	if st == nil || !st.again {
		return 0, nil
	}
	for op, err := range s.cfg.Journal.Own(st.next) { // only this goroutine moves it
		if err != nil {
			return folded, err
		}
		folded += s.resume(op)
	}
	return folded, nil
}

// resume folds an op if it is the next of a chain that is read again, and says how many ops were folded. A chain that was read up
// to what is held goes on as any other.
func (s *Session) resume(op oplog.Op) int {
	now := s.cfg.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stopped[op.Device]
	if st == nil || !st.again || op.Seq != st.next || op.Prev != st.prev || op.Seq > s.held[op.Device].Seq {
		return 0
	}
	folded := 0
	switch {
	case len(s.parked[op.Device]) > 0 || s.waitsLocked(op, now):
		s.parked[op.Device] = append(s.parked[op.Device], op)
	case s.foldLocked(op):
		folded = 1
	default:
		return 0
	}
	st.next, st.prev = op.Seq+1, op.ID
	if op.Seq == s.held[op.Device].Seq {
		delete(s.stopped, op.Device)
	}
	return folded
}
