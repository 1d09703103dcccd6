package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/internal/telling"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// A logReport is what `log verify` says of an intact journal.
type logReport struct {
	Device   string `json:"device"`
	Segments int    `json:"segments"`
	Ops      uint64 `json:"ops"`      // own, in the segments
	PeerOps  uint64 `json:"peer_ops"` // of others, in the segments
	// Known is how many ops the frontier stands for, those included that are only in the checkpoint.
	Known       uint64                `json:"known_ops"`
	Checkpoint  string                `json:"checkpoint,omitempty"` // that the journal begins at; every hash of it was checked
	Covered     uint64                `json:"covered_ops,omitempty"`
	Frontier    oplog.Frontier        `json:"frontier"`
	Torn        int64                 `json:"torn_bytes"`
	Digest      string                `json:"digest"`
	Quarantined []node.SeenQuarantine `json:"quarantined,omitempty"` // as the node of this directory saw it last
	Parked      []parkedRow           `json:"parked,omitempty"`
	Keys        string                `json:"keys,omitempty"`   // why the key file could not be read
	Frozen      string                `json:"frozen,omitempty"` // why nothing is pushed under this id any more
	Former      []string              `json:"former,omitempty"` // ids that the device had before
	closed      oplog.Heads           // chains that the checkpoint closed
}

// A parkedRow is a chain that waits for its time, or that cannot be read on without a key, or at all.
type parkedRow struct {
	Device string     `json:"device"`
	From   uint64     `json:"from"`
	Ops    int        `json:"ops"`
	Until  *time.Time `json:"until,omitempty"`  // absent if it cannot be read
	Reason string     `json:"reason,omitempty"` // why it cannot
	// Permanent: no key will open it either.
	Permanent bool `json:"permanent,omitempty"`
}

const logVerifyLong = `verify reads the whole journal and checks every byte: ids, links, stamps and borders, and, where the journal begins
at a checkpoint, every hash of that too, and that each chain continues it. It fails with 1 if anything is damaged.

It also says which chains of other devices are quarantined, as the node of this directory saw it last: a permanent
reason needs a person (syncnode log accept), another one may go by itself; and which ops wait since they are stamped
with a time that has not come, or cannot be opened with the keys of --seal-keys; unreadable is what no key opens. What is sealed is checked without any
key all the same; the digest is that of what can be read.`

func newLogVerify() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{Use: "verify", Short: "check every byte of the journal and of its checkpoint", Long: logVerifyLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.find()
			if err != nil {
				return err
			}
			row, err := d.verify(cmd.Context())
			if err != nil {
				return err
			}
			if f.out.format == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(row)
			}
			row.print(cmd.OutOrStdout(), d.journalDir())
			return nil
		}}
	f.register(cmd.Flags())
	registerSealKeys(cmd.Flags(), &f.seal.keys)
	return cmd
}

// verify checks the journal. A node beside it may cut it meanwhile, and drop what lies below, segments and the checkpoint before: then all is
// read once more.
func (d *device) verify(ctx context.Context) (row logReport, err error) {
	for range 5 {
		if row, err = d.verifyOnce(ctx); !errors.Is(err, journal.ErrAnchored) && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return row, err
}

func (d *device) verifyOnce(ctx context.Context) (logReport, error) {
	j, err := d.reading(ctx)
	if err != nil {
		return logReport{}, err
	}
	defer j.Close()
	cut, _, err := j.Cut()
	if err != nil {
		return logReport{}, err
	}
	base, err := d.base(cut.Checkpoint)
	if err != nil {
		return logReport{}, err
	}
	r, err := journal.VerifyFrom(d.journalDir(), nil, journal.Cut{Checkpoint: cut.Checkpoint, Heads: base.Heads, Closed: base.Closed})
	if err != nil {
		return logReport{}, err
	}
	row := logReport{Device: d.name, Segments: r.Segments, Ops: r.Ops, PeerOps: r.PeerOps, Frontier: r.Frontier, Torn: r.Torn,
		Checkpoint: cut.Checkpoint, Former: d.former, closed: base.Closed}
	for _, p := range r.Frontier {
		row.Known += p.Seq + 1
	}
	for _, p := range base.All() {
		row.Covered += p.Seq + 1
	}
	sealer, err := d.seal()
	if err != nil { // what is sealed is verified without keys too
		row.Keys = telling.Text(err.Error())
		if sealer, err = seal.New(seal.Config{}); err != nil {
			return logReport{}, err
		}
	}
	if err := row.fold(j, cut.Checkpoint, base, sealer); err != nil {
		return logReport{}, err
	}
	if frozen, noted, err := j.Frozen(); err != nil {
		return logReport{}, err
	} else if noted {
		row.Frozen = reasonOf(frozen)
	}
	seen, err := node.ReadState(d.stateFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return logReport{}, err
	}
	row.Quarantined = seen.Quarantined
	return row, nil
}

// base is the checkpoint that the journal begins at, checked whole; an empty one if it begins with the first ops.
func (d *device) base(hash string) (*checkpoint.Checkpoint, error) {
	if hash == "" {
		return &checkpoint.Checkpoint{State: fold.New()}, nil
	}
	c, _, err := d.checkpoints(nil).Load(checkpoint.Hash(hash))
	if err != nil {
		return nil, fmt.Errorf("the journal begins at a checkpoint that cannot be used: %w; syncnode serve fetches it again from the relay", err)
	}
	return c, nil
}

// fold gives the digest of everything that can be read, also of what waits for its time.
func (row *logReport) fold(j *journal.Journal, cut string, base *checkpoint.Checkpoint, keys *seal.Sealer) error {
	list, err := j.Accepted()
	if err != nil {
		return err
	}
	accepted, now := decisions(list), time.Now().UnixMilli()
	chains := map[string]*oplog.Chain{}
	parked := map[string]*parkedRow{}
	for _, series := range []journal.Series{journal.Own, journal.Peers} {
		for e, err := range j.Kept(cut, series) {
			if err != nil {
				return err
			}
			op := e.Op
			if base.Covers(op.Device, op.Seq) || !accepted.follows(chains, base, op) {
				continue
			}
			p := parked[op.Device]
			content, err := session.Content(keys, op)
			switch {
			case p != nil && p.Until == nil: // nothing behind it is folded
			case err != nil:
				p = &parkedRow{Device: op.Device, From: op.Seq, Reason: telling.Text(err.Error()), Permanent: !seal.Temporary(err)}
			case p == nil && oplog.Future(op, now) != nil && !accepted.early(op):
				until := time.UnixMilli(op.HLC.WallMS - oplog.MaxAhead).UTC()
				p = &parkedRow{Device: op.Device, From: op.Seq, Until: &until}
			}
			if p != nil {
				parked[op.Device] = p
				p.Ops++
			}
			if p == nil || p.Until != nil {
				op.Payload = content
				base.State.Apply(op)
			}
		}
	}
	for _, device := range slices.Sorted(maps.Keys(parked)) {
		row.Parked = append(row.Parked, *parked[device])
	}
	row.Digest = fmt.Sprint(base.State.Digest())
	return nil
}

func (row *logReport) print(w io.Writer, dir string) {
	fmt.Fprintf(w, "ok           %s\ndevice       %s\nsegments     %d\nops          %d own, %d of peers\ndigest       %s\n",
		dir, row.Device, row.Segments, row.Ops, row.PeerOps, row.Digest)
	if row.Checkpoint != "" {
		fmt.Fprintf(w, "checkpoint   %s, for the first %d of %d ops\n", short(row.Checkpoint), row.Covered, row.Known)
	}
	if row.Torn > 0 {
		fmt.Fprintf(w, "torn         %d bytes at the end, which no record was acknowledged in; the next write cuts them\n", row.Torn)
	}
	for _, d := range slices.Sorted(maps.Keys(row.Frontier)) {
		fmt.Fprintf(w, "head         %s/%d %s\n", d, row.Frontier[d].Seq, row.Frontier[d].ID)
	}
	for _, d := range row.Former {
		fmt.Fprintf(w, "former id    %s\n", d)
	}
	if row.Frozen != "" {
		fmt.Fprintf(w, "frozen       %s: nothing more is pushed under this id\n", row.Frozen)
	}
	for _, q := range row.Quarantined {
		fmt.Fprintf(w, "quarantined  %s\n", quarantineText(q))
	}
	if row.Keys != "" {
		fmt.Fprintf(w, "keys         %s\n", plain(row.Keys))
	}
	for _, p := range row.Parked {
		if p.Until != nil {
			fmt.Fprintf(w, "waits        %s: %d ops from op %d on, until %s\n", p.Device, p.Ops, p.From, rfc3339(*p.Until))
			continue
		}
		what := "waits      "
		if p.Permanent {
			what = "unreadable "
		}
		fmt.Fprintf(w, "%s  %s: %d ops from op %d on: %s\n", what, p.Device, p.Ops, p.From, plain(p.Reason))
	}
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

// quarantineText says which chain is quarantined, why, and what can be done.
func quarantineText(q node.SeenQuarantine) string {
	kind, next := "for now", "tried again by itself"
	if q.Permanent {
		kind, next = "permanent", fmt.Sprintf("a person decides: `syncnode log accept %s --reason TEXT`, which refuses what no decision can help and says why", q.Device)
	}
	return fmt.Sprintf("%s from op %d on, %s, since %s: %s; %s", q.Device, q.Seq, kind, rfc3339(q.Since), plain(q.Reason), next)
}
