// Package book is the durable memory of one device, over its journal and index. It implements dispatch.Book.
//
// # Guarantees
//
// What a method wrote is on stable storage when it returns nil. A pending record and a void of the same attempt never
// stand both in one journal: each looks for the other under the journal's lock, which is how a run that a device
// declares never started cannot start after. The cost of a call does not grow with the journal.
//
// A grant is a floor for ever. What Settled notes may be lost; the ledger is then told once more. A journal that is shorter
// than what was noted, or indexed, is refused as journal.ErrLost.
//
// Not promised: that Void proves anything of an attempt that was begun where the journal is only in a checkpoint now; and
// Void cannot know of a journal that was copied away between a begin and its pending record and came
// back later.
//
// # Failure
//
// Errors are those of package journal, which say whether something was written; on any of them an effect must not
// start. [ErrRepeated]: the journal already has a record of that attempt.
//
// # Concurrency
//
// A Book may be used by several goroutines, whose writes share a sync, and a directory by several processes. The lock
// is held for the time of a call and no longer.
package book

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// ErrRepeated: the journal already has a record of this attempt; it serves one begin and no other.
var ErrRepeated = errors.New("book: attempt was recorded before")

// maxUnsettled is how many outcomes one Standing shows.
const maxUnsettled = 128

// A Config says which directory. Dir and Device are required.
type Config struct {
	// Dir belongs to one namespace and generation. The book is its folder named by the device: see JournalDir.
	Dir    string
	Device string
	Now    func() time.Time // nil is time.Now
	Log    *slog.Logger     // nil discards
	// Facts is that of index.Config: the facts of a checkpoint, asked for only if the index and its copy are lost.
	Facts func(checkpoint string) (index.Facts, error)
	// SegmentBytes and FS are those of journal.Config. The grants lie there too; index and hints, which may be lost, do not.
	SegmentBytes int64
	FS           journal.FS
}

// A Book is open until Close.
type Book struct {
	cfg     Config
	dir     string
	journal *journal.Journal
	index   *index.Index // used under the journal's lock only
}

var _ dispatch.Book = (*Book)(nil)

// Open opens the book in a directory, and makes it if there is none. Errors are those of journal.Open.
func Open(ctx context.Context, cfg Config) (*Book, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.FS == nil {
		cfg.FS = durable.OS{}
	}
	if err := ident.Check("device", cfg.Device); err != nil {
		return nil, fmt.Errorf("open book: %w", err)
	}
	if err := durable.Dir(filepath.Join(cfg.Dir, cfg.Device)); err != nil {
		return nil, fmt.Errorf("open book: %w", err)
	}
	j, err := journal.Open(ctx, journal.Config{Dir: JournalDir(cfg.Dir, cfg.Device), Device: cfg.Device, Now: cfg.Now,
		Log: cfg.Log, SegmentBytes: cfg.SegmentBytes, FS: cfg.FS})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.Dir, cfg.Device)
	ix := index.New(index.Config{Path: filepath.Join(dir, "index.bolt"), Now: cfg.Now, Log: cfg.Log, Facts: cfg.Facts})
	return &Book{cfg: cfg, dir: dir, journal: j, index: ix}, nil
}

// JournalDir is the folder of the segments of a device, under the directory of a namespace and generation.
func JournalDir(dir, device string) string { return filepath.Join(dir, device, "journal") }

// Journal is the journal under the book.
func (b *Book) Journal() *journal.Journal { return b.journal }

// Close closes the journal.
func (b *Book) Close() error { return b.journal.Close() }

// Keep makes what the book knows durable before the journal is cut, inside the change that cuts it. See index.Keep.
func (b *Book) Keep(tx *journal.Tx, f index.Facts) error { return b.index.Keep(tx, f) }

// A page is the book inside one change.
type page struct {
	b     *Book
	tx    *journal.Tx
	view  *index.View
	known index.Known
}

// share runs fn under the lock, with the index up to date.
func (b *Book) share(ctx context.Context, fn func(p *page) error) error {
	return b.journal.Share(ctx, func(tx *journal.Tx) error {
		view, err := b.index.Sync(tx)
		if err != nil {
			return err
		}
		defer view.Close()
		known, err := b.readHints(tx)
		if err != nil {
			return err
		}
		p := &page{b: b, tx: tx, view: view, known: known}
		tx.Observe(view.Clock())
		return fn(p)
	})
}

// Standing implements dispatch.Book.
func (b *Book) Standing(ctx context.Context, agent, run string) (dispatch.Standing, error) {
	var out dispatch.Standing
	err := b.share(ctx, func(p *page) (err error) {
		out, err = p.standing(agent, run)
		return err
	})
	if err != nil {
		return dispatch.Standing{}, fmt.Errorf("read the own journal: %w", err)
	}
	return out, nil
}

func (p *page) standing(agent, run string) (dispatch.Standing, error) {
	out := dispatch.Standing{At: p.b.position()}
	var err error
	if out.Floor, err = p.floor(agent); err != nil {
		return out, err
	}
	for _, w := range p.view.Witnesses(p.known) {
		out.Witnesses = append(out.Witnesses, coord.RunRef{Agent: w.Agent, Run: w.Run})
	}
	open, err := p.view.Unsettled(p.known, maxUnsettled)
	if err != nil {
		return out, err
	}
	for _, o := range open {
		out.Unsettled = append(out.Unsettled, outcomeOf(p.b.cfg.Device, o))
	}
	out.Records, err = p.records(run)
	return out, err
}

// Records are what the journal says about a run: the own records and those of peers.
func (b *Book) Records(ctx context.Context, run string) ([]coord.Record, error) {
	var out []coord.Record
	err := b.share(ctx, func(p *page) (err error) {
		out, err = p.records(run)
		return err
	})
	return out, err
}

// Frontier has the last op of every device in the journal.
func (b *Book) Frontier(ctx context.Context) (map[string]oplog.Head, error) {
	var out map[string]oplog.Head
	err := b.share(ctx, func(p *page) error {
		out = p.view.Frontier()
		return nil
	})
	return out, err
}

func (p *page) records(run string) ([]coord.Record, error) {
	list, err := p.view.Records(run)
	if err != nil {
		return nil, err
	}
	var out []coord.Record
	for _, r := range list {
		out = append(out, recordOf(run, r))
	}
	return out, nil
}

// own are the own records of an attempt, those of this change included.
func (p *page) own(run, attempt string) ([]index.Record, error) {
	list, err := p.view.Records(run)
	if err != nil {
		return nil, err
	}
	me := p.b.cfg.Device
	list = slices.DeleteFunc(list, func(r index.Record) bool {
		return r.Author != me || r.Attempt != attempt || r.Resolver
	})
	for _, op := range p.tx.Appended() {
		if r, ofRun := index.RecordOf(op); ofRun == run && r.Attempt == attempt && !r.Resolver {
			list = append(list, r)
		}
	}
	return list, nil
}

// Pending implements dispatch.Book.
func (b *Book) Pending(ctx context.Context, o coord.Outcome) error {
	if err := b.check(o.Agent, o.Run, o.Attempt); err != nil {
		return err
	}
	return b.share(ctx, func(p *page) error {
		list, err := p.own(o.Run, o.Attempt.ID)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Void() {
				return fmt.Errorf("attempt %s of run %s: %w", o.Attempt.ID, o.Run, dispatch.ErrVoided)
			}
		}
		if len(list) > 0 {
			return fmt.Errorf("%w: attempt %s of run %s is %s", ErrRepeated, o.Attempt.ID, o.Run, list[0].Status)
		}
		o.Attempt.State, o.Attempt.Abandoned = coord.Open, false
		return p.append(o)
	})
}

// Outcome implements dispatch.Book.
func (b *Book) Outcome(ctx context.Context, o coord.Outcome) error {
	if err := b.check(o.Agent, o.Run, o.Attempt); err != nil {
		return err
	}
	if o.Attempt.State == coord.Open && !o.Attempt.Abandoned {
		return fmt.Errorf("%w: attempt %s has no outcome", coord.ErrInvalid, o.Attempt.ID)
	}
	return b.share(ctx, func(p *page) error {
		list, err := p.own(o.Run, o.Attempt.ID)
		if err != nil {
			return err
		}
		d := detailOf(b.cfg.Device, o, 0)
		for _, r := range list {
			if r.Rank >= d.Rank() {
				return nil // said before
			}
		}
		return p.append(o)
	})
}

// Void implements dispatch.Book.
func (b *Book) Void(ctx context.Context, agent, run string, a coord.Attempt) (bool, error) {
	if err := b.check(agent, run, a); err != nil || a.Device != b.cfg.Device {
		return false, err
	}
	proved := false
	err := b.share(ctx, func(p *page) error {
		list, err := p.own(run, a.ID)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			proved = !slices.ContainsFunc(list, func(r index.Record) bool { return !r.Void() })
			return nil
		}
		if proved, err = p.holds(a.At); err != nil || !proved {
			return err
		}
		a.State, a.Cause, a.Exit, a.Ended = coord.Void, coord.CauseNever, 0, b.cfg.Now()
		a.By, a.Reason, a.Result, a.Abandoned = "", "", "", false
		return p.append(coord.Outcome{Agent: agent, Run: run, Attempt: a})
	})
	if err != nil {
		return false, err
	}
	return proved, nil
}

// holds reports whether the journal holds that place of the own chain.
func (p *page) holds(at coord.Position) (bool, error) {
	if at.Next == 0 {
		return at.Head == "", nil
	}
	op, ok, err := p.b.journal.OpAt(at.Next - 1)
	if errors.Is(err, journal.ErrAnchored) {
		cut, _, err := p.b.journal.Cut()
		head := cut.Heads[p.b.cfg.Device]
		return head.Seq == at.Next-1 && string(head.ID) == at.Head, err // what is below cannot be compared any more
	}
	return ok && string(op.ID) == at.Head, err
}

// append adds what o says to the own chain.
func (p *page) append(o coord.Outcome) error {
	d := detailOf(p.b.cfg.Device, o, p.view.Settled(p.known).Next)
	payload, err := oplog.Canonical(d)
	if err != nil {
		return fmt.Errorf("record attempt %s: %w", o.Attempt.ID, err)
	}
	_, err = p.tx.Append(journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload})
	return err
}

// check refuses what no reader could tell apart.
func (b *Book) check(agent, run string, a coord.Attempt) error {
	err := errors.Join(ident.Check("agent", agent), ident.Check("run", run), ident.Check("attempt", a.ID))
	if err == nil && a.Epoch > coord.MaxEpoch {
		err = fmt.Errorf("epoch %d is above 2^53-1", a.Epoch)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", coord.ErrInvalid, err)
	}
	return nil
}

// position is the head of what is committed; what the index shows goes as far.
func (b *Book) position() coord.Position {
	head, ok := b.journal.Head()
	if !ok {
		return coord.Position{}
	}
	return coord.Position{Next: head.Seq + 1, Head: string(head.ID)}
}
