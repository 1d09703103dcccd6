package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/schedule/due"
)

// stateMissed is the state of rows that are no runs: occurrences of a schedule that were not begun.
const stateMissed = "missed"

// missedRow is a gap as lists show it.
func missedRow(g missed.Gap, device string) runRow {
	first, last := g.First.UTC().Format(time.RFC3339), g.Last.UTC().Format(time.RFC3339)
	r := runRow{Agent: g.Agent, State: stateMissed, Cause: string(g.Reason), Device: device, Occurrence: "at:" + first, Count: g.Count, AtLeast: g.AtLeast, at: g.Last,
		Next: "it was not begun, and is not begun any more"}
	if g.Count > 1 {
		r.Last = "at:" + last
	}
	return r
}

// shown is the state of a row as people read it.
func (r runRow) shown() string {
	switch {
	case r.Open:
		return r.State + ", open"
	case r.Commits > 0:
		return fmt.Sprintf("%s, %d times", r.State, r.Commits)
	}
	return r.State
}

// openGaps are the gaps of the node that is used, or runs on the data directory, that are not over: no log has them yet. They are none if
// it serves another ledger, or does not answer: the list goes without them.
func (n *nodeFlags) openGaps(ctx context.Context, b *backendFlags, generation string, want coord.Filter) (all []runRow) {
	c, err := n.client(b.dataDir)
	if c == nil || err != nil {
		return nil
	}
	var info api.NodeInfo
	if _, _, err := c.do(ctx, "GET", "/v1/node", nil, &info); err != nil || info.Namespace != b.namespace || info.Generation != generation {
		return nil
	}
	if want.Device != "" && want.Device != info.Device {
		return nil
	}
	agents, err := c.agents(ctx)
	if err != nil {
		return nil
	}
	for _, a := range agents {
		if g := a.Missing; g != nil && (want.Agent == "" || want.Agent == a.Agent.Agent) && !g.Last.Before(want.Since) {
			r := missedRow(missed.Gap{Agent: a.Agent.Agent, Missed: due.Missed{Reason: due.Reason(g.Reason), First: g.First, Last: g.Last, Count: g.Count, AtLeast: g.AtLeast}}, info.Device)
			r.Open, r.Next = true, "its occurrences are not begun as long as this lasts; it is recorded when it is over"
			all = append(all, r)
		}
	}
	return all
}

// span is the occurrence of a row, or the first and the last of a gap.
func (r runRow) span() string {
	if r.Last == "" {
		return dash(r.Occurrence)
	}
	more := ""
	if r.AtLeast {
		more = "more than "
	}
	return fmt.Sprintf("%s to %s (%s%d)", r.Occurrence, r.Last, more, r.Count)
}

// missedRows are the gaps that the journal of this data directory knows, its own and those that came from other devices; none if there is
// no journal. What only a checkpoint holds is not among them.
func (f *backendFlags) missedRows(ctx context.Context, generation string, want coord.Filter) ([]runRow, error) {
	dir := identity.OpenClusters(f.dataDir).Dir(f.namespace, generation)
	d := &device{dataDir: f.dataDir, dir: dir, name: f.deviceID}
	if d.name == "" {
		id, err := identity.Read(f.dataDir, identity.Options{})
		if err != nil {
			return nil, nil // nothing was run from here yet
		}
		d.name = id.Device
	}
	if _, err := os.Stat(d.journalDir()); err != nil {
		return nil, nil
	}
	j, err := d.reading(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what was missed from the journal: %w", err)
	}
	defer j.Close()
	cut, _, err := j.Cut()
	if err != nil {
		return nil, err
	}
	rows := map[missed.Gap]runRow{}
	for _, series := range []journal.Series{journal.Own, journal.Peers} {
		for e, err := range j.Kept(cut.Checkpoint, series) {
			if err != nil {
				return nil, err
			}
			if e.Op.Surface != missed.Surface {
				continue
			}
			g, _ := missed.Parse(e.Op.Payload)
			if g == nil || want.Agent != "" && g.Agent != want.Agent || want.Device != "" && e.Op.Device != want.Device || g.Last.Before(want.Since) {
				continue
			}
			if _, twice := rows[*g]; !twice {
				rows[*g] = missedRow(*g, e.Op.Device)
			}
		}
	}
	var all []runRow
	for _, r := range rows {
		all = append(all, r)
	}
	return all, nil
}
