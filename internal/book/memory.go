package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// A Memory is all that a device can tell a ledger that went back.
type Memory struct {
	Device string
	// Deeds are the last word of every author about every attempt, in the order in which the attempts came.
	Deeds []coord.Deed
	// Epochs are the highest that are known of each agent, from the records and from what this device noted of its own grants.
	Epochs map[string]coord.Grant
	// Peers are the other devices whose records it holds, ordered.
	Peers []string
}

// Remember reads the whole journal of a device under the directory of a namespace and generation, and writes nothing; it may be
// called beside a process that writes there. facts are those of a checkpoint that the journal begins at. Without a journal the memory is empty.
func Remember(ctx context.Context, dir, device string, facts func(checkpoint string) (index.Facts, error)) (Memory, error) {
	if _, err := os.Stat(JournalDir(dir, device)); errors.Is(err, fs.ErrNotExist) {
		return Memory{Device: device}, nil
	}
	var err error
	for range 5 { // a node beside it may cut the journal meanwhile
		var r *remembering
		if r, err = remember(ctx, dir, device, facts); err == nil {
			return r.memory(), r.grants(filepath.Join(dir, device, grantsName))
		}
		if !errors.Is(err, journal.ErrAnchored) {
			break
		}
	}
	return Memory{}, fmt.Errorf("read the journal of device %s: %w", device, err)
}

type told struct{ author, run, attempt string }

// remembering is a Memory in the making.
type remembering struct {
	device string
	deeds  []coord.Deed
	ranks  []int
	at     map[told]int
	epochs map[string]coord.Grant
	peers  map[string]bool
}

func remember(ctx context.Context, dir, device string, facts func(string) (index.Facts, error)) (*remembering, error) {
	j, err := journal.Open(ctx, journal.Config{Dir: JournalDir(dir, device), Device: device, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	r := &remembering{device: device, at: map[told]int{}, epochs: map[string]coord.Grant{}, peers: map[string]bool{}}
	cut, ok, err := j.Cut()
	if err != nil {
		return nil, err
	}
	if ok {
		f, err := facts(cut.Checkpoint)
		if err != nil {
			return nil, err
		}
		for op := range f.Intents {
			r.read(op)
		}
	}
	for _, series := range []journal.Series{journal.Own, journal.Peers} {
		for e, err := range j.Kept(cut.Checkpoint, series) {
			if err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r.read(e.Op)
		}
	}
	return r, nil
}

func (r *remembering) read(op oplog.Op) {
	if op.Device != r.device {
		r.peers[op.Device] = true
	}
	if op.Surface != oplog.Intents {
		return
	}
	d := index.ReadDetail(op.Payload)
	o := outcomeOf(op.Device, index.Outcome{Seq: op.Seq, WallMS: op.HLC.WallMS, Detail: d})
	g := coord.Grant{Agent: o.Agent, Device: o.Attempt.Device, Epoch: o.Attempt.Epoch}
	if g.Epoch > r.epochs[g.Agent].Epoch && g.Check() == nil {
		r.epochs[g.Agent] = g
	}
	if d.By != "" {
		return // a decision, not the word of who ran it
	}
	check := o
	check.Attempt.Abandoned = true
	if check.Check() != nil {
		return // it names nothing that a ledger can hold
	}
	key := told{op.Device, o.Run, o.Attempt.ID}
	i, known := r.at[key]
	switch {
	case !known:
		r.at[key] = len(r.deeds)
		r.deeds, r.ranks = append(r.deeds, coord.Deed{Author: op.Device, Outcome: o}), append(r.ranks, d.Rank())
	case r.ranks[i] < d.Rank():
		if o.Occurrence == "" {
			o.Occurrence = r.deeds[i].Occurrence
		}
		if o.Input == "" {
			o.Input = r.deeds[i].Input
		}
		r.deeds[i].Outcome, r.ranks[i] = o, d.Rank()
	}
}

// grants reads what the device noted of its own grants.
func (r *remembering) grants(dir string) error {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read grants: %w", err)
	}
	for _, e := range found {
		if ident.Check("agent", e.Name()) != nil || !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("read grants: %w", err)
		}
		epoch, err := readGrant(filepath.Join(dir, e.Name()), data)
		if err != nil {
			return err
		}
		if epoch >= r.epochs[e.Name()].Epoch {
			r.epochs[e.Name()] = coord.Grant{Agent: e.Name(), Device: r.device, Epoch: epoch}
		}
	}
	return nil
}

func readGrant(name string, data []byte) (coord.Epoch, error) {
	text, whole := strings.CutSuffix(string(data), "\n")
	granted, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !whole || coord.Epoch(granted) > coord.MaxEpoch {
		return 0, fmt.Errorf("%w: %s does not hold an epoch", journal.ErrCorrupt, name)
	}
	return coord.Epoch(granted), nil
}

func (r *remembering) memory() Memory {
	return Memory{Device: r.device, Deeds: r.deeds, Epochs: r.epochs, Peers: slices.Sorted(maps.Keys(r.peers))}
}
