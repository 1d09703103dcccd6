package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/recovery"
	"github.com/syncnode/syncnode/internal/telling"
	"github.com/syncnode/syncnode/journal/index"
	relayetcd "github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/session"
)

// memories are what this data directory remembers of a ledger: the journals of all ids that wrote here, under its generation and those
// in whose place it was adopted. It writes nothing.
func (be *backend) memories(ctx context.Context, d *device) ([]book.Memory, error) {
	clusters := identity.OpenClusters(d.dataDir)
	generation := be.coordinator.Generation()
	earlier, err := clusters.Earlier(be.flags.namespace, generation)
	if err != nil {
		return nil, err
	}
	var all []book.Memory
	for _, g := range append([]string{generation}, earlier...) {
		dir := clusters.Dir(be.flags.namespace, g)
		names, err := journalsIn(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			of := &device{dir: dir, name: name}
			m, err := book.Remember(ctx, dir, name, func(hash string) (index.Facts, error) {
				f, err := session.ReadFacts(of.checkpoints(nil), hash)
				return indexFacts(f), err
			})
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// journalsIn are the devices that have a journal in the folder of a namespace and generation.
func journalsIn(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range found {
		if _, err := os.Stat(book.JournalDir(dir, e.Name())); err == nil && ident.Check("device", e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// alsoOffers are the ids for which nobody but this directory can offer: those that a restored copy had before. After a fork the other copy
// may be one of them still.
func (d *device) alsoOffers(ctx context.Context) ([]string, error) {
	former, err := d.frozenBefore()
	return slices.DeleteFunc(former, func(name string) bool { return d.forked(ctx, name) }), err
}

// standing is where the recovery stands, with the devices that the relay in etcd knows too.
func (be *backend) standing(ctx context.Context) (recovery.Standing, error) {
	var roster []string
	if err := be.bounded(ctx, func(ctx context.Context) (err error) {
		roster, err = be.roster(ctx)
		return err
	}); err != nil {
		return recovery.Standing{}, err
	}
	return recovery.Look(ctx, be.ledger(), map[string][]string{"relay": roster})
}

// roster are the devices that the relay in etcd knows, if there is one.
func (be *backend) roster(ctx context.Context) (devices []string, err error) {
	there, err := relayetcd.Exists(ctx, be.client, be.flags.namespace)
	if err != nil || !there {
		return nil, err
	}
	r, err := relayetcd.Open(ctx, relayetcd.Config{Client: be.client, Namespace: be.flags.namespace})
	if err != nil {
		return nil, err
	}
	members, err := r.Roster(ctx)
	for _, m := range members {
		devices = append(devices, m.Device)
	}
	return devices, err
}

// gap compares the journals of this data directory with the ledger; false if it has none.
func (be *backend) gap(ctx context.Context) (recovery.Gap, bool, error) {
	dir := be.dir
	if dir == "" {
		dir = be.flags.dataDir
	}
	if _, err := os.Stat(filepath.Join(dir, "clusters.json")); err != nil {
		return recovery.Gap{}, false, nil
	}
	memories, err := be.memories(ctx, &device{dataDir: dir})
	if err != nil || len(memories) == 0 {
		return recovery.Gap{}, false, err
	}
	g, err := recovery.Find(ctx, be.ledger(), memories)
	return g, err == nil, err
}

// A recoveryRow is where a recovery stands.
type recoveryRow struct {
	Set        bool          `json:"set"`
	ID         string        `json:"id,omitempty"`
	By         string        `json:"by,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Since      string        `json:"since,omitempty"`
	Generation string        `json:"generation"`
	Devices    []recoveryOf  `json:"devices"`
	Waiting    []string      `json:"waiting,omitempty"` // that have not offered under the gate
	Gap        *recoveryLack `json:"gap,omitempty"`     // of this data directory's journals; absent if it has none
	NoGap      string        `json:"gap_unknown,omitempty"`
	Next       string        `json:"next"`
}

type recoveryOf struct {
	Device   string   `json:"device"`
	Offered  bool     `json:"offered"` // under the gate that stands
	Last     string   `json:"last_offer,omitempty"`
	Written  int      `json:"written"`
	Doubts   int      `json:"doubts"`
	Raised   int      `json:"epochs_raised"`
	Diskless bool     `json:"diskless,omitempty"`
	Known    []string `json:"known_from"`
}

type recoveryLack struct {
	Known    int             `json:"known_attempts"`
	Attempts []lackedAttempt `json:"attempts"`
	Epochs   []lackedEpoch   `json:"epochs"`
}

type lackedAttempt struct {
	Lacks      string `json:"lacks"` // lost, not ended, in doubt
	Agent      string `json:"agent"`
	Run        string `json:"run_id"`
	Occurrence string `json:"occurrence,omitempty"`
	Attempt    string `json:"attempt"`
	Device     string `json:"device"`
	Epoch      uint64 `json:"epoch"`
	State      string `json:"state"` // that an offer would write
}

type lackedEpoch struct {
	Agent  string `json:"agent"`
	Device string `json:"device"` // that was granted it
	Epoch  uint64 `json:"epoch"`  // the next one is above
	Stored uint64 `json:"stored"`
}

func (be *backend) printRecovery(ctx context.Context, cmd *cobra.Command, out outputFlag) error {
	s, err := be.standing(ctx)
	if err != nil {
		return err
	}
	row := recoveryRow{Set: s.Set, Generation: be.coordinator.Generation(), Devices: []recoveryOf{}}
	if s.Set {
		row.ID, row.By, row.Reason, row.Since, row.Waiting = s.Gate.ID, s.Gate.By, s.Gate.Reason, rfc3339(s.Gate.At), s.Waiting()
	}
	for _, d := range s.Devices {
		one := recoveryOf{Device: d.ID, Offered: d.Offered, Diskless: d.Diskless, Known: d.Known}
		if d.Offer != nil && d.Offer.Done {
			one.Last, one.Written, one.Doubts, one.Raised = rfc3339(d.Offer.At), d.Offer.Written, d.Offer.Doubts, d.Offer.Raised
		}
		row.Devices = append(row.Devices, one)
	}
	gap, found, err := be.gap(ctx)
	switch {
	case err != nil:
		row.NoGap = telling.Text(err.Error())
	case found:
		row.Gap = lackOf(gap)
	}
	row.Next = row.next()
	return printOne(out, cmd.OutOrStdout(), row, row.text())
}

func lackOf(g recovery.Gap) *recoveryLack {
	lack := &recoveryLack{Known: g.Known, Attempts: []lackedAttempt{}, Epochs: []lackedEpoch{}}
	for _, m := range g.Attempts {
		a := m.Outcome.Attempt
		lack.Attempts = append(lack.Attempts, lackedAttempt{Lacks: string(m.Kind), Agent: m.Outcome.Agent, Run: m.Outcome.Run, Occurrence: m.Outcome.Occurrence,
			Attempt: a.ID, Device: a.Device, Epoch: uint64(a.Epoch), State: string(a.State)})
	}
	for _, e := range g.Epochs {
		lack.Epochs = append(lack.Epochs, lackedEpoch{Agent: e.Agent, Device: e.Device, Epoch: uint64(e.Epoch), Stored: uint64(e.Stored)})
	}
	return lack
}

func (row *recoveryRow) lacks() bool {
	return row.Gap != nil && len(row.Gap.Attempts)+len(row.Gap.Epochs) > 0
}

func (row *recoveryRow) next() string {
	switch {
	case !row.Set && row.lacks():
		return "the ledger lacks what this device knows: syncnode recover begin --reason TEXT, then recover offer on every device"
	case !row.Set:
		return "nothing to do: runs may begin"
	case len(row.Waiting) > 0:
		return "syncnode recover offer on every device that has not offered and has no serve; --without for those that are gone"
	}
	return "compare the devices with your own list; syncnode run list, decide what is in doubt; then syncnode recover end --reason TEXT"
}

func (row *recoveryRow) text() string {
	var b strings.Builder
	if row.Set {
		fmt.Fprintf(&b, "gate        set: nothing begins\nby          %s\nreason      %s\nsince       %s\n", plain(row.By), plain(row.Reason), row.Since)
	} else {
		fmt.Fprintf(&b, "gate        not set\n")
	}
	fmt.Fprintf(&b, "generation  %s\n", row.Generation)
	switch {
	case row.NoGap != "":
		fmt.Fprintf(&b, "gap         not looked at: %s\n", plain(row.NoGap))
	case row.Gap == nil:
		fmt.Fprintf(&b, "gap         not looked at: no journal of this ledger in the data directory\n")
	default:
		fmt.Fprintf(&b, "gap         this journal knows %d attempts, of which the ledger lacks %d; %d epochs would be granted again\n", row.Gap.Known, len(row.Gap.Attempts), len(row.Gap.Epochs))
	}
	fmt.Fprintf(&b, "next        %s\n", row.Next)
	row.tables(&b)
	return b.String()
}

func (row *recoveryRow) tables(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	if len(row.Devices) > 0 {
		fmt.Fprintln(tw, "\nDEVICE\tOFFERED\tLAST OFFER\tWRITTEN\tIN DOUBT\tEPOCHS\tKNOWN FROM")
	}
	for _, d := range row.Devices {
		offered := "no"
		switch {
		case d.Diskless:
			offered = "cannot: no disk"
		case d.Offered:
			offered = "yes"
		case !row.Set:
			offered = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", plain(d.Device), offered, dash(d.Last), d.Written, d.Doubts, d.Raised, plain(strings.Join(d.Known, ", ")))
	}
	_ = tw.Flush() // to memory
	if !row.lacks() {
		return
	}
	fmt.Fprintln(tw, "\nLACKS\tAGENT\tOCCURRENCE\tDEVICE\tEPOCH\tTO BE\tRUN")
	for _, a := range row.Gap.Attempts[:min(len(row.Gap.Attempts), mostLacks)] {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", a.Lacks, a.Agent, dash(plain(a.Occurrence)), a.Device, a.Epoch, a.State, a.Run)
	}
	for _, e := range row.Gap.Epochs {
		fmt.Fprintf(tw, "epoch\t%s\t-\t%s\t%d\tabove %d\t-\n", e.Agent, e.Device, e.Epoch, e.Stored)
	}
	_ = tw.Flush()
	if n := len(row.Gap.Attempts) - mostLacks; n > 0 {
		fmt.Fprintf(b, "%d more attempts: -o json shows all\n", n)
	}
}

// mostLacks bounds what people are shown.
const mostLacks = 50
