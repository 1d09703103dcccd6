package dir

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// stale is how old the noted contact of a device may be before it is noted again.
const stale = 24 * time.Hour

// A device is what a handle knows of one device. Whoever entered it uses it alone.
type device struct {
	r     *Relay
	name  string
	turn  chan struct{} // holds a token while nobody is in
	chain *chain

	last roster   // as last read, in parts
	odd  []Oddity // about the small files
}

// A roster is the small files of a device, as far as they could be read once.
type roster struct {
	beat  beat // V is 0 if it was never there
	role  relay.Role
	acked oplog.Frontier
	there bool // there is any file
}

func (r *Relay) device(name string) *device {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.known[name]
	if d == nil {
		d = &device{r: r, name: name, turn: make(chan struct{}, 1), chain: newChain(r.fs, name)}
		d.last.acked, d.last.role = oplog.Frontier{}, relay.Seen
		d.leave()
		r.known[name] = d
	}
	return d
}

func (d *device) enter(ctx context.Context) error {
	select {
	case <-d.turn:
		return nil
	default:
	}
	select {
	case <-d.turn:
		return nil
	case <-ctx.Done():
		return alive(ctx)
	}
}

func (d *device) leave() { d.turn <- struct{}{} }

// load reads a small file of the device. False means that it is not there; errOdd that it does not count.
func load[T interface{ check(device string) error }](d *device, name string) (T, bool, error) {
	var zero T
	file := deviceFile(d.name, name)
	data, err := readSmall(d.r.fs, file, maxSmall)
	if missing(err) {
		return zero, false, nil
	}
	var value T
	if err == nil {
		value, err = decode[T](data, d.name)
	}
	if err != nil {
		return zero, true, fmt.Errorf("%s: %w", file, err)
	}
	return value, true, nil
}

// row reads the small files. One that cannot be read leaves what was known of it; a role that was never readable
// counts as a replica that holds everything back, since that is the safe side.
func (d *device) row() roster {
	d.odd = d.odd[:0]
	note := func(name string, err error) {
		if err != nil {
			d.odd = append(d.odd, Oddity{Path: deviceFile(d.name, name), Reason: err.Error()})
		}
	}
	b, hasBeat, err := load[beat](d, beatFile)
	if note(beatFile, err); err == nil && hasBeat {
		d.last.beat = b
	}
	role, hasRole, err := load[roleValue](d, roleFile)
	switch note(roleFile, err); {
	case err == nil && hasRole:
		d.last.role = role.Role
	case err != nil && d.last.role == relay.Seen:
		d.last.role = relay.Replica
	}
	a, hasAck, err := load[ackValue](d, ackFile)
	if note(ackFile, err); err == nil {
		relay.Join(d.last.acked, a.Folded) // an older file that arrives late does no harm
	}
	d.last.there = hasBeat || hasRole || hasAck
	d.strangers()
	return d.last
}

// strangers notes what else is in the folder of the device.
func (d *device) strangers() {
	entries, err := d.r.fs.ReadDir(deviceDir(d.name))
	if err != nil {
		return
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == segmentsDir && e.IsDir():
		case (name == beatFile || name == roleFile || name == ackFile) && e.Type().IsRegular():
		default:
			right := name == segmentsDir || name == beatFile || name == roleFile || name == ackFile
			d.odd = append(d.odd, Oddity{Path: path.Join(deviceDir(d.name), name), Reason: nameReason(e, right)})
		}
	}
}

// save replaces a small file of the device. A file of a newer release is left alone.
func (d *device) save(what, name string, value any, old error) error {
	if errors.Is(old, errVersion) {
		return fmt.Errorf("%w: %w", relay.ErrCorrupt, old)
	}
	if err := makeDirs(d.r.fs, deviceDir(d.name)); err != nil {
		return d.r.unsent(what, err)
	}
	if err := replace(d.r.fs, deviceFile(d.name, name), append(encode(value), '\n')); err != nil {
		return d.r.unknown(what, err)
	}
	return nil
}

// contact notes a contact of the device: the first one, and one more than a day after the last. With it goes the least
// instance in the folder, so that it outlives the device that drew it.
func (d *device) contact(ctx context.Context) error {
	now := d.r.now()
	b, there, old := load[beat](d, beatFile)
	if there && old == nil && now.Sub(time.UnixMilli(b.SeenMS)) < stale {
		return nil
	}
	if b.V == 0 {
		b = beat{V: version, Device: d.name, Instance: d.last.beat.Instance, AddedMS: now.UnixMilli()}
		if d.last.beat.V != 0 {
			b.AddedMS = d.last.beat.AddedMS
		}
	}
	instance, err := d.r.instance(ctx, b.Instance)
	if err != nil {
		return err
	}
	if instance == "" {
		instance = nonce()
	}
	b.Instance, b.SeenMS = instance, max(b.SeenMS, now.UnixMilli())
	if err := d.save("note the contact", beatFile, b, old); err != nil {
		return err
	}
	d.last.beat = b
	return nil
}

// instance is the least that any device has noted, or that is given; "" if there is none.
func (r *Relay) instance(ctx context.Context, least string) (string, error) {
	names, _, err := r.devices()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if err := alive(ctx); err != nil {
			return "", err
		}
		// Not entered: a file is read whole, and its device may be the caller's.
		b, there, err := load[beat](&device{r: r, name: name}, beatFile)
		if there && err == nil && (least == "" || b.Instance < least) {
			least = b.Instance
		}
	}
	return least, nil
}

// Ack implements relay.Relay. An ack that says nothing new writes nothing.
func (r *Relay) Ack(ctx context.Context, name string, folded oplog.Frontier) error {
	if err := begin(ctx, name); err != nil {
		return err
	}
	if err := relay.CheckFrontier(folded); err != nil {
		return err
	}
	d := r.device(name)
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.leave()
	if err := d.contact(ctx); err != nil {
		return err
	}
	a, _, old := load[ackValue](d, ackFile)
	acked := a.Folded.Clone()
	relay.Join(acked, d.last.acked)
	relay.Join(acked, folded)
	if old == nil && acked.Equal(a.Folded) {
		return nil
	}
	if err := d.save("ack", ackFile, ackValue{V: version, Device: name, Folded: acked}, old); err != nil {
		return err
	}
	relay.Join(d.last.acked, acked)
	return nil
}

// Register implements relay.Relay.
func (r *Relay) Register(ctx context.Context, name string, role relay.Role) error {
	if err := begin(ctx, name); err != nil {
		return err
	}
	if err := relay.CheckRole(role); err != nil {
		return err
	}
	d := r.device(name)
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.leave()
	if err := d.contact(ctx); err != nil {
		return err
	}
	now, there, old := load[roleValue](d, roleFile)
	if there && old == nil && now.Role == role {
		return nil
	}
	return d.save("register", roleFile, roleValue{V: version, Device: name, Role: role}, old)
}

// Roster implements relay.Relay.
func (r *Relay) Roster(ctx context.Context) ([]relay.Member, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	names, _, err := r.devices()
	if err != nil {
		return nil, err
	}
	var members []relay.Member
	for _, name := range names {
		d := r.device(name)
		if err := d.enter(ctx); err != nil {
			return nil, err
		}
		row := d.row()
		d.leave()
		if !row.there {
			continue
		}
		m := relay.Member{Device: name, Role: row.role, Acked: row.acked.Clone()}
		if row.beat.V != 0 {
			m.Added, m.Seen = time.UnixMilli(row.beat.AddedMS).UTC(), time.UnixMilli(row.beat.SeenMS).UTC()
		}
		members = append(members, m)
	}
	return members, nil
}
