package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/internal/telling"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	relaydir "github.com/syncnode/syncnode/relay/dir"
)

// A relayReport is what `relay status` says.
type relayReport struct {
	Relay      string `json:"relay"`
	Instance   string `json:"instance"`
	Generation uint64 `json:"generation"`
	Device     string `json:"device"` // that asked
	Digest     string `json:"digest"` // of what it holds
	// Unpushed are own ops that the relay lacks, Missing ops that it holds and this device does not.
	Unpushed    uint64                `json:"unpushed"`
	Missing     uint64                `json:"missing"`
	Checkpoint  *relayCheckpoint      `json:"checkpoint,omitempty"`
	Damaged     string                `json:"checkpoint_damaged,omitempty"`
	Devices     []relayDevice         `json:"devices"`
	Quarantined []node.SeenQuarantine `json:"quarantined,omitempty"` // here, as the node of this directory saw it last
	Ignored     []ignoredRow          `json:"ignored,omitempty"`     // in a folder, the first maxIgnored of them
	AlsoIgnored int                   `json:"also_ignored,omitempty"`
	Waiting     []waitingRow          `json:"waiting,omitempty"` // chains in a folder
	Forked      []forkedRow           `json:"forked,omitempty"`
	Lost        []lostRow             `json:"lost,omitempty"`
}

// maxIgnored bounds what is shown of a folder into which anybody can put anything.
const maxIgnored = 20

// An ignoredRow is something in a folder that does not count.
type ignoredRow struct {
	Path   string `json:"path"` // in the namespace's folder
	Reason string `json:"reason"`
	Count  int    `json:"count,omitempty"` // of lines, if it is about lines
}

// A waitingRow is a chain in a folder that cannot be read on yet.
type waitingRow struct {
	Device string `json:"device"`
	Next   uint64 `json:"next"`            // the op that is missing
	Ahead  uint64 `json:"ahead,omitempty"` // ops up to this one are there; absent if that is not known
}

// A forkedRow is two ops at one place of a chain in a folder.
type forkedRow struct {
	Device string     `json:"device"`
	Seq    uint64     `json:"seq"`
	Counts oplog.OpID `json:"counts"`
	Other  oplog.OpID `json:"other"`
}

// A lostRow is a chain in a folder of which ops went away during this look.
type lostRow struct {
	Device string `json:"device"`
	Times  int    `json:"times"`
}

type relayCheckpoint struct {
	Hash   string `json:"hash"`
	Author string `json:"author"`
	Covers uint64 `json:"covers"` // ops
}

// A relayDevice is a chain in the relay, and its device's row in the roster.
type relayDevice struct {
	Device   string         `json:"device"`
	Role     string         `json:"role"` // replica, writer, seen, or closed
	Evicted  bool           `json:"evicted,omitempty"`
	LastSeen *time.Time     `json:"last_seen,omitempty"` // to the day
	Acked    oplog.Frontier `json:"acked,omitempty"`
	Lacks    uint64         `json:"lacks"` // ops that the relay holds and it has not acked
	Head     *oplog.Pos     `json:"head,omitempty"`
	Floor    *oplog.Pos     `json:"floor,omitempty"`
	Held     *oplog.Pos     `json:"held_here,omitempty"` // how far this device holds it
	Kept     uint64         `json:"kept"`                // ops in the relay
	Because  string         `json:"kept_because,omitempty"`
}

func newRelayStatus() *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{Use: "status", Short: "show what the relay holds, of whom, and what holds its collection back", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(ctx context.Context, s *station) error {
				ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the relay did not answer within %s (--backend-timeout)", f.timeout))
				defer cancel()
				row, err := s.status(ctx)
				if err != nil {
					return causeOf(ctx, err)
				}
				return printOne(f.out, cmd.OutOrStdout(), row, row.text())
			})
		}}
	f.place.existing = true
	f.register(cmd)
	return cmd
}

func (s *station) status(ctx context.Context) (relayReport, error) {
	here, err := s.at.verify(ctx)
	if err != nil {
		return relayReport{}, fmt.Errorf("this device's own journal: %w", err)
	}
	info, err := s.look(ctx)
	if err != nil {
		return relayReport{}, err
	}
	roster, err := s.relay.Roster(ctx)
	if err != nil {
		return relayReport{}, err
	}
	row := relayReport{Relay: s.flags.place.relay, Instance: info.Instance, Generation: info.Generation, Device: s.at.name, Digest: here.Digest}
	newest, err := s.newest(ctx, &row)
	if err != nil {
		return relayReport{}, err
	}
	if own, ok := here.Frontier[s.at.name]; ok {
		row.Unpushed = beyond(own, info.Heads, s.at.name)
	}
	for device, at := range info.Heads {
		row.Missing += beyond(at, here.Frontier, device)
	}
	row.devices(info, roster, newest, here.Frontier)
	for _, q := range here.Quarantined {
		if q.Relay == info.Instance || q.Relay == "" {
			row.Quarantined = append(row.Quarantined, q)
		}
	}
	return row, s.folder(ctx, &row)
}

// look leaves no trace where it can, least of all in another device's name.
func (s *station) look(ctx context.Context) (relay.Info, error) {
	if looker, ok := s.relay.(relay.Looker); ok {
		return looker.Look(ctx)
	}
	return s.relay.Hello(ctx, s.at.name)
}

// folder fills in what a folder holds that does not count, or not yet. Others choose the names.
func (s *station) folder(ctx context.Context, row *relayReport) error {
	folder, ok := s.relay.(*relaydir.Relay)
	if !ok {
		return nil
	}
	found, err := folder.Report(ctx)
	if err != nil {
		return err
	}
	n := min(len(found.Oddities), maxIgnored)
	for _, o := range found.Oddities[:n] {
		row.Ignored = append(row.Ignored, ignoredRow{Path: plain(o.Path), Reason: plain(o.Reason), Count: o.Count})
	}
	row.AlsoIgnored = len(found.Oddities) - n
	for _, w := range found.Waiting {
		row.Waiting = append(row.Waiting, waitingRow(w))
	}
	for _, f := range found.Forks {
		row.Forked = append(row.Forked, forkedRow(f))
	}
	for _, device := range slices.Sorted(maps.Keys(found.Lost)) {
		row.Lost = append(row.Lost, lostRow{Device: device, Times: found.Lost[device]})
	}
	return nil
}

// newest is the relay's checkpoint; nil if there is none that can be used.
func (s *station) newest(ctx context.Context, row *relayReport) (*relay.Checkpoint, error) {
	store, ok := s.relay.(relay.Collector)
	if !ok {
		return nil, nil
	}
	c, ok, err := store.Checkpoint(ctx)
	switch {
	case errors.Is(err, relay.ErrCorrupt):
		row.Damaged = telling.Text(err.Error())
		return nil, nil
	case err != nil || !ok:
		return nil, err
	}
	row.Checkpoint = &relayCheckpoint{Hash: c.Hash, Author: c.Author}
	for _, at := range c.All() {
		row.Checkpoint.Covers += at.Seq + 1
	}
	return &c, nil
}

// beyond counts the ops up to at that a frontier does not reach.
func beyond(at oplog.Pos, f oplog.Frontier, device string) uint64 {
	have, ok := f[device]
	switch {
	case !ok:
		return at.Seq + 1
	case have.Seq < at.Seq:
		return at.Seq - have.Seq
	}
	return 0
}

// devices lists every device that has a row or a chain.
func (row *relayReport) devices(info relay.Info, roster []relay.Member, newest *relay.Checkpoint, here oplog.Frontier) {
	rows := map[string]*relayDevice{}
	names := oplog.Frontier{} // for its order
	of := func(device string) *relayDevice {
		if rows[device] == nil {
			rows[device], names[device] = &relayDevice{Device: device, Role: "-"}, oplog.Pos{}
		}
		return rows[device]
	}
	for _, m := range roster {
		d := of(m.Device)
		if seen := m.Seen.UTC(); !seen.IsZero() { // nothing says it of a row whose file cannot be read
			d.LastSeen = &seen
		}
		d.Role, d.Evicted, d.Acked = string(m.Role), m.Evicted, m.Acked
		for device, at := range info.Heads {
			d.Lacks += beyond(at, m.Acked, device)
		}
	}
	for device, head := range info.Heads {
		d := of(device)
		d.Head, d.Kept = &head, head.Seq+1
		if floor, ok := info.Floor[device]; ok {
			d.Floor, d.Kept = &floor, head.Seq-floor.Seq
		}
		if at, ok := here[device]; ok {
			d.Held = &at
		}
		if d.Kept > 0 {
			d.Because = heldBack(device, head.Seq+1-d.Kept, newest, roster).String()
		}
	}
	if newest != nil {
		for device := range newest.Closed {
			of(device).Role = "closed"
		}
	}
	for _, device := range names.Devices() {
		row.Devices = append(row.Devices, *rows[device])
	}
}

// heldBack says what keeps the op of device at seq, the first that was not collected.
func heldBack(device string, seq uint64, newest *relay.Checkpoint, roster []relay.Member) relay.Reason {
	switch {
	case newest == nil:
		return relay.Reason{Cause: relay.NoCheckpoint}
	case !newest.All().Covers(device, seq):
		return relay.Reason{Cause: relay.Uncovered}
	}
	replicas := 0
	for _, m := range roster {
		if m.Role != relay.Replica || m.Evicted {
			continue
		}
		replicas++
		switch {
		case len(m.Acked) == 0:
			return relay.Reason{Cause: relay.NeverAcked, Replica: m.Device}
		case !m.Acked.Covers(device, seq):
			return relay.Reason{Cause: relay.Unacked, Replica: m.Device}
		}
	}
	if replicas == 0 {
		return relay.Reason{Cause: relay.NoReplica}
	}
	return relay.Reason{Cause: "a part may go: the next collection takes it"}
}

func (row *relayReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "relay        %s, instance %s, generation %d\ndevice       %s: %d ops to push, %d to pull\ndigest       %s\n",
		row.Relay, dash(row.Instance), row.Generation, row.Device, row.Unpushed, row.Missing, row.Digest)
	switch c := row.Checkpoint; {
	case row.Damaged != "":
		fmt.Fprintf(&b, "checkpoint   damaged: %s; the next one replaces it\n", plain(row.Damaged))
	case c == nil:
		fmt.Fprintf(&b, "checkpoint   none\n")
	default:
		fmt.Fprintf(&b, "checkpoint   %s of %s, for %d ops\n", short(c.Hash), c.Author, c.Covers)
	}
	for _, q := range row.Quarantined {
		fmt.Fprintf(&b, "quarantined  %s\n", quarantineText(q))
	}
	row.folderText(&b)
	fmt.Fprintln(&b)
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tROLE\tLAST SEEN\tLACKS\tHEAD\tGONE UP TO\tHERE\tKEPT\tBECAUSE")
	at := func(p *oplog.Pos) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprint(p.Seq)
	}
	for _, d := range row.Devices {
		role, seen := d.Role, "-"
		if d.Evicted {
			role += ", evicted"
		}
		if d.LastSeen != nil {
			seen = d.LastSeen.Format(time.DateOnly)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", d.Device, role, seen, d.Lacks, at(d.Head), at(d.Floor), at(d.Held), d.Kept, dash(plain(d.Because)))
	}
	_ = tw.Flush() // to memory
	return b.String()
}

// folderText says in a line each what in a folder does not count, or not yet.
func (row *relayReport) folderText(b *strings.Builder) {
	for _, i := range row.Ignored {
		count := ""
		if i.Count > 0 {
			count = fmt.Sprint(i.Count, " ")
		}
		fmt.Fprintf(b, "ignored      %s: %s%s\n", i.Path, count, i.Reason)
	}
	if row.AlsoIgnored > 0 {
		fmt.Fprintf(b, "ignored      %d more\n", row.AlsoIgnored)
	}
	for _, w := range row.Waiting {
		behind := "what stands behind it waits"
		if w.Ahead > 0 {
			behind = fmt.Sprintf("ops up to %d stand behind it and wait", w.Ahead)
		}
		fmt.Fprintf(b, "waiting      %s: op %d is missing, its file is damaged or has not arrived; %s\n", w.Device, w.Next, behind)
	}
	for _, f := range row.Forked {
		fmt.Fprintf(b, "forked       %s: two ops at %d, %.15s counts and %.15s does not: two copies of the device, or one before and after it was restored, have written under one id\n", f.Device, f.Seq, f.Counts, f.Other)
	}
	for _, l := range row.Lost {
		fmt.Fprintf(b, "lost         %s: ops went away during this look (%d times): something else writes in the folder; the device offers them again\n", l.Device, l.Times)
	}
}
