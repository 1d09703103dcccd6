// Package missed is what the log says of occurrences that were not begun, and of when a schedule was first seen.
//
// # Guarantees
//
// Both are payloads of the surface run, which are kept by their id: one record for each agent, reason and gap, and one for
// each agent and schedule, whose earliest stands whoever writes it again. So what several devices record
// converges. docs/formats/node.md describes them; what Parse does not know it leaves alone.
//
// # Concurrency
//
// All functions are pure.
package missed

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// Surface is where the records are.
const Surface = oplog.Run

// A Gap is one gap of an agent: all occurrences of its schedule from First to Last were missed for one reason.
type Gap struct {
	Agent string
	due.Missed
}

// A Seen says when an agent was first seen with a schedule.
type Seen struct {
	Agent, Schedule, Zone string
	At                    time.Time
}

// SeenAs is what is said when an agent is seen with a schedule for the first time.
func SeenAs(agent string, s *schedule.Schedule, at time.Time) Seen {
	return Seen{Agent: agent, Schedule: s.Spec().String(), Zone: s.Zone().String(), At: at.Round(0).UTC()}
}

const (
	kindGap  = "missed"
	kindSeen = "scheduled"
)

// record is both kinds as they are written.
type record struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Agent    string    `json:"agent"`
	Reason   string    `json:"reason,omitempty"`
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"`
	Count    int       `json:"count,omitempty"`
	AtLeast  bool      `json:"at_least,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Zone     string    `json:"tz,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// Payload is the gap as a record of the log.
func (g Gap) Payload() (json.RawMessage, error) {
	first, last := g.First.UTC(), g.Last.UTC()
	id := fmt.Sprintf("%s:%s:%s:%s:%s", kindGap, g.Agent, g.Reason, first.Format(time.RFC3339Nano), last.Format(time.RFC3339Nano))
	return payload(record{ID: id, Kind: kindGap, Agent: g.Agent, Reason: string(g.Reason), First: first, Last: last, Count: g.Count, AtLeast: g.AtLeast})
}

// Key is the same for the same schedule of the same agent.
func (s Seen) Key() string { return fmt.Sprintf("%s:%s:%s:%s", kindSeen, s.Agent, s.Zone, s.Schedule) }

// Payload is what was seen as a record of the log.
func (s Seen) Payload() (json.RawMessage, error) {
	return payload(record{ID: s.Key(), Kind: kindSeen, Agent: s.Agent, Schedule: s.Schedule, Zone: s.Zone, Since: s.At.Round(0).UTC()})
}

func payload(r record) (json.RawMessage, error) {
	if err := ident.Check("agent", r.Agent); err != nil {
		return nil, err
	}
	return oplog.Canonical(r)
}

// Parse reads a payload of the surface: one of the two is not nil, or none if it is something else.
func Parse(data []byte) (*Gap, *Seen) {
	var r record
	if json.Unmarshal(data, &r) != nil || ident.Check("agent", r.Agent) != nil {
		return nil, nil
	}
	switch {
	case r.Kind == kindGap && !r.First.IsZero() && !r.Last.Before(r.First):
		return &Gap{r.Agent, due.Missed{Reason: due.Reason(r.Reason), First: r.First, Last: r.Last, Count: r.Count, AtLeast: r.AtLeast}}, nil
	case r.Kind == kindSeen && !r.Since.IsZero():
		return nil, &Seen{Agent: r.Agent, Schedule: r.Schedule, Zone: r.Zone, At: r.Since}
	}
	return nil, nil
}
