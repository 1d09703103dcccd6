package book

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
)

const (
	hintsName    = "settled.json"
	grantsName   = "grants"
	hintsVersion = 1
	maxHints     = 4096 // attempts
)

// hints says which own outcomes the ledger holds. It may be lost, so it is not synced.
type hints struct {
	V        int      `json:"v"`
	Device   string   `json:"device"`
	Next     uint64   `json:"next"`               // every own outcome below this seq
	Attempts []string `json:"attempts,omitempty"` // and those of these attempts
}

// readHints reads the note; anything odd is the same as no note. One that knows of a longer journal than there is, is
// odd in a way that matters: it was written after what it tells of was durable, so that was lost.
func (b *Book) readHints(tx *journal.Tx) (index.Known, error) {
	none := index.Known{Attempts: map[string]bool{}}
	data, err := os.ReadFile(filepath.Join(b.dir, hintsName))
	var h hints
	if err != nil || json.Unmarshal(data, &h) != nil || h.V != hintsVersion || h.Device != b.cfg.Device {
		return none, nil
	}
	if head, ok := tx.Head(); h.Next > 0 && (!ok || h.Next > head.Seq+1) {
		return none, fmt.Errorf("%w: %s knows of own ops up to %d, and the journal in %s does not reach so far; keep it, and give the device another data directory",
			journal.ErrLost, hintsName, h.Next-1, b.dir)
	}
	for _, a := range h.Attempts {
		none.Attempts[a] = true
	}
	none.Next = h.Next
	return none, nil
}

// Settled implements dispatch.Book.
func (b *Book) Settled(ctx context.Context, attempts ...string) error {
	// The note must not know of more than is durable: a killed process may have left what it had not synced.
	if err := b.journal.Refresh(ctx); err != nil {
		return fmt.Errorf("note what is settled: %w", err)
	}
	return b.share(ctx, func(p *page) error {
		for _, a := range attempts {
			p.known.Attempts[a] = true
		}
		now := p.view.Settled(p.known)
		h := hints{V: hintsVersion, Device: b.cfg.Device, Next: now.Next, Attempts: slices.Sorted(maps.Keys(now.Attempts))}
		h.Attempts = h.Attempts[:min(len(h.Attempts), maxHints)]
		data, err := json.Marshal(h)
		if err != nil {
			return fmt.Errorf("note what is settled: %w", err)
		}
		if err := durable.Replace(filepath.Join(b.dir, hintsName), append(data, '\n'), 0o600); err != nil {
			return fmt.Errorf("note what is settled: %w", err)
		}
		return nil
	})
}

// Granted implements dispatch.Book.
func (b *Book) Granted(ctx context.Context, agent string, e coord.Epoch) error {
	if err := ident.Check("agent", agent); err != nil {
		return fmt.Errorf("%w: %w", coord.ErrInvalid, err)
	}
	if e > coord.MaxEpoch {
		return fmt.Errorf("%w: epoch %d is above 2^53-1", coord.ErrInvalid, e)
	}
	return b.share(ctx, func(p *page) error {
		have, err := p.floor(agent)
		if err != nil {
			return err
		}
		dir := filepath.Join(b.dir, grantsName)
		if have >= e {
			return p.settleFloor(dir)
		}
		if err := durable.DirIn(b.cfg.FS, dir); err != nil {
			return fmt.Errorf("note a grant: %w", err)
		}
		text := strconv.FormatUint(uint64(e), 10) + "\n"
		if err := durable.WriteTo(b.cfg.FS, filepath.Join(dir, agent), []byte(text), 0o600); err != nil {
			return fmt.Errorf("note a grant: %w", err)
		}
		return nil
	})
}

// settleFloor makes durable what the floor was read from: whoever wrote it may have been killed before it had synced.
func (p *page) settleFloor(grants string) error {
	if err := p.tx.Settle(); err != nil {
		return fmt.Errorf("note a grant: %w", err)
	}
	if err := p.b.cfg.FS.SyncDir(grants); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note a grant: %w", err)
	}
	return nil
}

// floor is the highest epoch of the agent in the journal or among the grants.
func (p *page) floor(agent string) (coord.Epoch, error) {
	epoch, err := p.view.Epoch(agent)
	if err != nil || ident.Check("agent", agent) != nil {
		return coord.Epoch(epoch), err
	}
	name := filepath.Join(p.b.dir, grantsName, agent)
	data, err := durable.ReadFrom(p.b.cfg.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return coord.Epoch(epoch), nil
	}
	if err != nil {
		return 0, fmt.Errorf("read a grant: %w", err)
	}
	granted, err := readGrant(name, data)
	return max(coord.Epoch(epoch), granted), err
}
