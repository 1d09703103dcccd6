package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// relayFlags say which relay is meant, and as which device it is asked.
type relayFlags struct {
	backendFlags
	place      placeFlags
	generation string
	out        outputFlag
}

func (f *relayFlags) register(cmd *cobra.Command) {
	f.backendFlags.register(cmd.Flags())
	f.seal.register(cmd.Flags())
	f.place.register(cmd.Flags())
	cmd.Flags().StringVar(&f.generation, "generation", "", "with a folder: the `ID` of the ledger, if the data directory has seen several under the namespace")
	f.out.register(cmd.Flags())
}

// A station is a relay, and the device that asks it.
type station struct {
	flags *relayFlags
	relay relay.Relay
	at    *device
}

// with opens the relay. A folder needs no etcd.
func (f *relayFlags) with(cmd *cobra.Command, verb func(ctx context.Context, s *station) error) error {
	if err := f.out.check(); err != nil {
		return err
	}
	if err := f.place.check(); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := hasDataDir(f.dataDir); err != nil {
		return err
	}
	ctx := cmd.Context()
	var be *backend
	where := &logFlags{namespace: f.namespace, dataDir: f.dataDir, deviceID: f.deviceID, generation: f.generation, seal: f.seal, out: f.out}
	if f.place.dir() == "" {
		var err error
		if be, err = f.openFor(cmd, use{dir: true, there: true}); err != nil {
			return err
		}
		defer be.close()
		where.generation = be.coordinator.Generation()
	}
	d, err := where.find()
	if err != nil {
		return err
	}
	r, err := f.place.open(ctx, be, f.namespace)
	if err != nil {
		return err
	}
	return verb(ctx, &station{flags: f, relay: r, at: d})
}

// collector is the relay, if it keeps checkpoints.
func (s *station) collector() (relay.Collector, error) {
	if c, ok := s.relay.(relay.Collector); ok {
		return c, nil
	}
	return nil, fmt.Errorf("the relay %s keeps every op: it takes no checkpoint, and nothing of it can be collected", s.flags.place.relay)
}

func newRelay() *cobra.Command {
	cmd := &cobra.Command{Use: "relay", Short: "look at the place where peers meet, and keep it small", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newRelayStatus(), newRelayCheckpoint(), newRelayGC())
	return cmd
}

const relayCheckpointLong = `checkpoint does at once what a node does by itself every --checkpoint-every ops: it exchanges ops with the relay, takes
the relay's newest checkpoint or makes one of what every replica has, and drops from this journal what it covers.
syncnode relay gc then lets the relay drop it too.

--retire ends the chain of a device for ever, so that its rows can go: for one that is scrapped, or whose id was
replaced. It happens once every replica has all of its ops; until then it may be tried again. Should the device
come back it gets a new id by itself, and nothing is lost.`

// A publishedRow is what `relay checkpoint` did.
type publishedRow struct {
	Checkpoint string   `json:"checkpoint,omitempty"` // that the journal begins at now
	New        bool     `json:"new"`
	Covered    uint64   `json:"covered_ops"`
	Uncovered  uint64   `json:"uncovered_ops"` // folded here, and in no checkpoint
	Segments   int      `json:"dropped_segments"`
	Bytes      int64    `json:"dropped_bytes"`
	Closed     []string `json:"closed,omitempty"`
	NotClosed  []string `json:"not_closed_yet,omitempty"`
	Bare       []string `json:"no_chain,omitempty"` // nothing to close
	bareCounts string   // whether it goes on counting as a replica
}

func newRelayCheckpoint() *cobra.Command {
	var f relayFlags
	var retired []string
	cmd := &cobra.Command{Use: "checkpoint", Short: "make a checkpoint now, and drop what it covers", Long: relayCheckpointLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, device := range retired {
				if err := ident.Check("device", device); err != nil {
					return &usageError{err}
				}
			}
			return f.with(cmd, func(ctx context.Context, s *station) error {
				row, err := s.publish(ctx, retired)
				if err != nil {
					return err
				}
				return printOne(f.out, cmd.OutOrStdout(), row, row.text())
			})
		}}
	f.register(cmd)
	cmd.Flags().StringSliceVar(&retired, "retire", nil, "end the chains of these `DEVICES` for ever")
	return cmd
}

func (s *station) publish(ctx context.Context, retired []string) (publishedRow, error) {
	if _, err := s.collector(); err != nil {
		return publishedRow{}, err
	}
	blank := device{dataDir: s.at.dataDir, dir: s.at.dir, seal: s.flags.seal.opener(s.at.dataDir)}
	d, err := openDevice(ctx, blank, s.flags.deviceID, func(notice string) { fmt.Fprintf(os.Stderr, "syncnode: %s\n", notice) })
	if err != nil {
		return publishedRow{}, err
	}
	defer d.book.Close()
	if slices.Contains(retired, d.name) {
		return publishedRow{}, usagef("--retire %s is this device", d.name)
	}
	cfg, err := d.sessionConfig(logger(nil))
	if err != nil {
		return publishedRow{}, err
	}
	sess, err := session.Open(ctx, cfg)
	if err != nil {
		return publishedRow{}, err
	}
	if _, err := sess.Pump(ctx, s.relay); err != nil {
		return publishedRow{}, err
	}
	slices.Sort(retired)
	retired = slices.Compact(retired)
	bare, err := s.retire(ctx, d, retired)
	if err != nil {
		return publishedRow{}, err
	}
	done, err := sess.Publish(ctx, s.relay, retired...)
	if err != nil {
		return publishedRow{}, err
	}
	row := publishedRow{Checkpoint: string(done.Checkpoint), New: done.New, Segments: done.Dropped.Segments, Bytes: done.Dropped.Bytes}
	row.Uncovered, _ = sess.Uncovered(nil, nil)
	row.Bare, row.bareCounts = bare, "it holds nothing back any more"
	if path := s.flags.place.dir(); path != "" {
		row.bareCounts = fmt.Sprintf("it counts until it was silent for %d days, or until its folder under devices in %s is removed", relay.EvictAfter/(24*time.Hour), path)
	}
	return row, row.about(d, slices.DeleteFunc(retired, func(device string) bool { return slices.Contains(bare, device) }))
}

// retire makes the rows of devices hold nothing back any more, whether or not their chains can be closed yet, and says which have no
// chain. In a folder a row is its device's own file, which nobody else writes: there it counts until the chain is closed. A name that the
// relay does not know is refused.
func (s *station) retire(ctx context.Context, d *device, retired []string) (bare []string, err error) {
	if len(retired) == 0 {
		return nil, nil
	}
	info, err := s.relay.Hello(ctx, d.name)
	if err != nil {
		return nil, err
	}
	roster, err := s.relay.Roster(ctx)
	if err != nil {
		return nil, err
	}
	closed := oplog.Frontier{}
	if newest, err := s.newest(ctx, &relayReport{}); err != nil {
		return nil, err
	} else if newest != nil {
		closed = newest.Closed
	}
	rows := map[string]relay.Role{}
	for _, m := range roster {
		rows[m.Device] = m.Role
	}
	for _, device := range retired {
		_, row := rows[device]
		_, chain := info.Heads[device]
		_, ended := closed[device]
		switch {
		case ended:
		case !row && !chain:
			return nil, fmt.Errorf("nothing was retired: the relay knows no device %s; syncnode relay status lists those it knows", device)
		case !chain:
			bare = append(bare, device)
		}
	}
	if _, owned := s.relay.(relay.OwnCollector); owned {
		return bare, nil
	}
	for _, device := range retired {
		if rows[device] != relay.Replica {
			continue
		}
		if err := s.relay.Register(ctx, device, relay.Writer); err != nil {
			return nil, err
		}
	}
	return bare, nil
}

// about fills in what the checkpoint covers and has closed.
func (row *publishedRow) about(d *device, retired []string) error {
	if row.Checkpoint == "" {
		row.NotClosed = retired
		return nil
	}
	base, err := d.base(row.Checkpoint)
	if err != nil {
		return err
	}
	for _, at := range base.All() {
		row.Covered += at.Seq + 1
	}
	for _, device := range retired {
		if _, closed := base.Closed[device]; closed {
			row.Closed = append(row.Closed, device)
		} else {
			row.NotClosed = append(row.NotClosed, device)
		}
	}
	return nil
}

func (row *publishedRow) text() string {
	if row.Checkpoint == "" {
		return fmt.Sprintf("none made     nothing is in all replicas yet; %d ops are in no checkpoint: syncnode relay status says who lacks what\n", row.Uncovered) + row.retired()
	}
	made := "as before: nothing more is in all replicas"
	if row.New {
		made = "new"
	}
	text := fmt.Sprintf("checkpoint    %s, %s\ncovers        %d ops; %d more are in none\ndropped here  %d segments, %d bytes\n",
		short(row.Checkpoint), made, row.Covered, row.Uncovered, row.Segments, row.Bytes)
	return text + row.retired()
}

// retired says what became of the devices of --retire.
func (row *publishedRow) retired() string {
	text := ""
	if len(row.Closed) > 0 {
		text += fmt.Sprintf("closed        %s\n", strings.Join(row.Closed, ", "))
	}
	if len(row.NotClosed) > 0 {
		text += fmt.Sprintf("not closed    %s: not every replica has all of its ops; try again later\n", strings.Join(row.NotClosed, ", "))
	}
	if len(row.Bare) > 0 {
		text += fmt.Sprintf("no chain      %s: no op of it is there, so nothing is to be closed; %s\n", strings.Join(row.Bare, ", "), row.bareCounts)
	}
	return text
}

// A collectedRow is what `relay gc` did to the chain of a device.
type collectedRow struct {
	Device  string     `json:"device"`
	Dropped int        `json:"dropped"`
	Marked  int        `json:"marked"`
	Floor   *oplog.Pos `json:"floor,omitempty"` // what is up to it is gone or marked
	Kept    string     `json:"kept_because,omitempty"`
}

func newRelayGC() *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{Use: "gc", Short: "let the relay drop what its newest checkpoint covers and every replica has", Args: noArgs,
		Long: `gc collects now. It takes two calls: the first marks what may go, from then on nobody reads it, and a later one drops
it, at least ten minutes after. Nodes do both by themselves.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(ctx context.Context, s *station) error {
				store, err := s.collector()
				if err != nil {
					return err
				}
				if err := s.at.acting(); err != nil {
					return err
				}
				if _, own := store.(relay.OwnCollector); own {
					if _, err := s.relay.Hello(ctx, s.at.name); err != nil { // it is this device's part that is collected
						return err
					}
				}
				done, err := store.Collect(ctx)
				if err != nil {
					return err
				}
				return printRows(f.out, cmd.OutOrStdout(), collected(done), "DEVICE\tDROPPED\tMARKED\tGONE UP TO\tTHE REST IS KEPT BECAUSE", func(r collectedRow) string {
					floor := "-"
					if r.Floor != nil {
						floor = fmt.Sprint(r.Floor.Seq)
					}
					return fmt.Sprintf("%s\t%d\t%d\t%s\t%s", r.Device, r.Dropped, r.Marked, floor, dash(r.Kept))
				})
			})
		}}
	f.place.existing = true
	f.register(cmd)
	return cmd
}

func collected(c relay.Collection) []collectedRow {
	devices := map[string]bool{}
	for _, m := range []map[string]int{c.Dropped, c.Marked} {
		for d := range m {
			devices[d] = true
		}
	}
	for d := range c.Floor {
		devices[d] = true
	}
	for d := range c.Reasons {
		devices[d] = true
	}
	rows := []collectedRow{}
	for _, d := range slices.Sorted(maps.Keys(devices)) {
		row := collectedRow{Device: d, Dropped: c.Dropped[d], Marked: c.Marked[d]}
		if at, ok := c.Floor[d]; ok {
			row.Floor = &at
		}
		if why, ok := c.Reasons[d]; ok {
			row.Kept = why.String()
		}
		rows = append(rows, row)
	}
	return rows
}
