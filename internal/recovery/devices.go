package recovery

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/coord"
)

// diskless is how the ids of holders begin that have no journal to offer.
const diskless = "pod."

// A Device is one that may have begun something that the ledger lost.
type Device struct {
	ID string
	// Offer is its last note; nil if there is none. Offered says that it counts under the gate that stands.
	Offer   *coord.Offer
	Offered bool
	// Known says where from it is known, ordered.
	Known []string
	// Diskless: it has no journal, and can offer nothing.
	Diskless bool
}

// A Standing is where a recovery stands.
type Standing struct {
	Gate    coord.Gate
	Set     bool
	Devices []Device // ordered by id
}

// Waiting are the devices that have not offered under the gate and could, without those that are named.
func (s Standing) Waiting(without ...string) []string {
	var out []string
	for _, d := range s.Devices {
		if !d.Offered && !d.Diskless && !slices.Contains(without, d.ID) {
			out = append(out, d.ID)
		}
	}
	return out
}

// Look says where a recovery stands. Devices are those that the ledger knows of any attempt, lease or note, those that a note names, and
// those in more, by where they are known from. Who is in none of these is unknown to it.
func Look(ctx context.Context, l Ledger, more map[string][]string) (Standing, error) {
	var s Standing
	var err error
	if s.Gate, s.Set, err = Gate(ctx, l); err != nil {
		return Standing{}, err
	}
	known := map[string]map[string]bool{}
	add := func(device, from string) {
		if known[device] == nil {
			known[device] = map[string]bool{}
		}
		known[device][from] = true
	}
	if err := eachRun(ctx, l, func(v coord.View) {
		for _, a := range v.Entry.Attempts {
			add(a.Device, "runs")
		}
	}); err != nil {
		return Standing{}, err
	}
	leases, err := ask(ctx, l, l.Leases)
	if err != nil {
		return Standing{}, err
	}
	for _, lease := range leases {
		add(lease.Device, "leases")
	}
	offers, err := ask(ctx, l, l.Offers)
	if err != nil {
		return Standing{}, err
	}
	notes := map[string]coord.Offer{}
	for _, o := range offers {
		notes[o.Device] = o
		add(o.Device, "offers")
		for _, p := range o.Peers {
			add(p, "log of "+o.Device)
		}
	}
	for from, devices := range more {
		for _, d := range devices {
			add(d, from)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		d := Device{ID: id, Known: slices.Sorted(maps.Keys(known[id])), Diskless: strings.HasPrefix(id, diskless)}
		if o, ok := notes[id]; ok {
			d.Offer, d.Offered = &o, s.Set && counts(o, s.Gate)
		}
		s.Devices = append(s.Devices, d)
	}
	return s, nil
}
