package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// A device is what a data directory keeps of one ledger: who it is there, its book and its checkpoints.
type device struct {
	name    string
	given   bool     // by --device-id: it cannot be renewed
	former  []string // ids that it had before, oldest first
	copied  string   // why the id belongs to another directory: this one is only read; empty if it does not
	dataDir string
	dir     string // of the namespace and generation
	segment int64
	log     *slog.Logger // as that of backendFlags
	book    *book.Book
	seal    func() (*seal.Sealer, error) // opens the keys
	again   int                          // ops that were written again when it was opened
	stuck   error                        // why nothing is pushed under this id, and nobody but a person can change that; nil if not
}

// openDevice opens the device of a data directory. An id that a node found frozen is replaced at once, and what no relay has is written
// again, so that nothing more is written under the old one; notice hears of it.
func openDevice(ctx context.Context, d device, given string, notice func(string)) (*device, error) {
	for {
		id, err := identity.Open(d.dataDir, identity.Options{Device: given})
		if err != nil {
			return nil, err
		}
		if id.Notice != "" {
			notice(id.Notice)
		}
		d.name, d.given, d.former = id.Device, given != "", id.Previous
		if d.book, err = d.openBook(ctx); err != nil {
			return nil, err
		}
		f, frozen, err := d.book.Journal().Frozen()
		switch {
		case err == nil && !frozen:
			if d.again, err = d.reissue(ctx, false); err == nil {
				return &d, nil
			}
		case err == nil && d.given:
			d.stuck = &givenError{device: d.name, frozen: f}
			notice(d.stuck.Error())
			return &d, nil // work goes on: the ledger alone decides
		case err == nil:
			_, err = identity.Renew(d.dataDir, d.name, reasonOf(f), identity.Options{})
			if err == nil {
				notice(fmt.Sprintf("%s: this was device %s and has a new id from now on; the earlier journal is kept, and what no relay has of it is written again", reasonOf(f), d.name))
			}
		}
		d.book.Close()
		if err != nil {
			return nil, err
		}
	}
}

// openBook opens the book of the device as it is named now.
func (d *device) openBook(ctx context.Context) (*book.Book, error) {
	return book.Open(ctx, book.Config{Dir: d.dir, Device: d.name, Log: logger(d.log), SegmentBytes: d.segment,
		Facts: func(hash string) (index.Facts, error) {
			f, err := session.ReadFacts(d.checkpoints(nil), hash)
			if err != nil {
				err = fmt.Errorf("the index is lost, and so is the checkpoint that it could be made from: start syncnode serve, which fetches the checkpoint from the relay: %w", err)
			}
			return indexFacts(f), err
		}})
}

func indexFacts(f session.Facts) index.Facts {
	return index.Facts{Checkpoint: f.Checkpoint, Heads: f.Heads, Intents: f.Intents}
}

// home is the folder of the device under the ledger's.
func (d *device) home() string { return filepath.Join(d.dir, d.name) }

func (d *device) checkpoints(log *slog.Logger) *checkpoint.Store {
	return &checkpoint.Store{Dir: filepath.Join(d.home(), "checkpoints"), Log: log}
}

// sessionConfig is how every session over this device is opened. The book makes itself durable before the journal is cut.
func (d *device) sessionConfig(log *slog.Logger) (session.Config, error) {
	sealer, err := d.seal()
	if err != nil {
		return session.Config{}, err
	}
	return session.Config{
		Device: d.name, Journal: d.book.Journal(), Logger: log, Checkpoints: d.checkpoints(log), Seal: sealer,
		BeforeCut: func(tx *journal.Tx, f session.Facts) error { return d.book.Keep(tx, indexFacts(f)) },
	}, nil
}

// stateFile is where a node keeps what it saw.
func (d *device) stateFile() string { return filepath.Join(d.home(), "node.json") }

// reasonOf says in words why an id is frozen.
func reasonOf(f journal.Frozen) string {
	switch {
	case f.First > f.Relay.Seq: // all that the relay has is here as well
		return "a checkpoint has closed the chain of this id as retired"
	case f.Fork && f.Earlier:
		return "this directory is older than what the relay holds, restored from a backup or by a disk that was rolled back, and was written to since"
	case f.Fork:
		return "two copies of this device have written under one id"
	case f.Own.ID == "":
		return "the journal was lost, and the relay knows ops of this id"
	}
	return "this directory is older than what the relay holds: restored from a backup, or its disk was rolled back"
}

// A givenError says that an id which a person gave must not be used any more.
type givenError struct {
	device string
	frozen journal.Frozen
}

func (e *givenError) Error() string {
	return fmt.Sprintf("device %s: %s; nothing more is pushed under this id, and no op is lost: give another --device-id with the same --data-dir, and what no relay has is written again under it",
		e.device, reasonOf(e.frozen))
}

// reissue writes again under the present id what no relay has of the ids before it, and says how many ops. All of them are looked
// through if thorough is set; otherwise an id of which the last op was written again counts as done.
func (d *device) reissue(ctx context.Context, thorough bool) (int, error) {
	former, err := d.frozenBefore()
	if err != nil {
		return 0, err
	}
	total := 0
	for _, name := range former {
		n, err := d.reissueOf(ctx, name, thorough)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// frozenBefore are the ids of this directory whose journals are frozen. A device whose id is given takes over from any.
func (d *device) frozenBefore() ([]string, error) {
	names := d.former
	if d.given {
		found, err := os.ReadDir(d.dir)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Name() != d.name {
				names = append(names, e.Name())
			}
		}
	}
	var out []string
	for _, name := range names {
		_, err := os.Stat(filepath.Join(book.JournalDir(d.dir, name), "FROZEN.json"))
		if err == nil {
			out = append(out, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}

func (d *device) reissueOf(ctx context.Context, former string, thorough bool) (int, error) {
	old, err := journal.Open(ctx, journal.Config{Dir: book.JournalDir(d.dir, former), Device: former, Log: logger(d.log), SegmentBytes: d.segment})
	if err != nil {
		return 0, err
	}
	defer old.Close()
	if !thorough {
		done, err := d.reissuedAll(old)
		if done || err != nil {
			return 0, err
		}
	}
	sealer, err := d.seal()
	if err != nil {
		return 0, err
	}
	n, err := session.Reissue(ctx, old, d.book.Journal(), sealer)
	if errors.Is(err, seal.ErrNoKey) {
		err = fmt.Errorf("%w: what device %s sealed and nobody else has needs its key to be written again: bring back its key file", err, former)
	}
	return n, err
}

// reissuedAll reports whether the note of the present journal names the last op of an old one.
func (d *device) reissuedAll(old *journal.Journal) (bool, error) {
	passes, err := d.book.Journal().Passes()
	if err != nil {
		return false, err
	}
	head, ok := old.Head()
	if !ok {
		return true, nil
	}
	f, _, err := old.Frozen()
	if err != nil || head.Seq < f.First {
		return err == nil, err
	}
	for _, p := range passes {
		if p.From == old.Device() && p.Last >= head.Seq {
			return true, nil
		}
	}
	return false, nil
}

// forked reports whether an earlier id was frozen because another copy writes under it; true if that cannot be read.
func (d *device) forked(ctx context.Context, former string) bool {
	old, err := journal.Open(ctx, journal.Config{Dir: book.JournalDir(d.dir, former), Device: former, ReadOnly: true})
	if err != nil {
		return true
	}
	defer old.Close()
	f, noted, err := old.Frozen()
	return err != nil || !noted || f.Fork && !f.Earlier
}
