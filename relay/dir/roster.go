package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// stale is how old the noted contact of a device may be before it is noted again.
const stale = 24 * time.Hour

// smallFiles are the small files of a device.
var smallFiles = []string{beatFile, roleFile, ackFile, floorFile}

// A device is what a handle knows of one device. Whoever entered it uses it alone.
type device struct {
	r     *Relay
	name  string
	turn  chan struct{} // holds a token while nobody is in
	chain *chain
	mine  bool // this handle acts for it

	floor floorValue // the greatest that was read; V is 0 if none was
	last  roster     // as last read, in parts
	odd   []Oddity   // about the small files

	sure map[string]string // by name: the small files that this handle knows to be on stable storage
}

// A roster is the small files of a device, as far as they could be read once.
type roster struct {
	beat  beat       // V is 0 if it was never there
	role  relay.Role // as it was read last; of a row, what it counts as
	acked oplog.Frontier
	there bool // there is any file
	// mend: the role is there and says nothing, so that its device has to register again
	mend bool
}

func (r *Relay) device(name string) *device {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.known[name]
	if d == nil {
		d = &device{r: r, name: name, turn: make(chan struct{}, 1), chain: newChain(r.fs, name), sure: map[string]string{}}
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

// act enters the device for a call that it makes itself, and notes the contact.
func (r *Relay) act(ctx context.Context, name string) (*device, error) {
	if err := begin(ctx, name); err != nil {
		return nil, err
	}
	d := r.device(name)
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	d.mine = true
	if err := d.contact(ctx); err != nil {
		d.leave()
		return nil, err
	}
	return d, nil
}

// judge judges what is new of the chain.
func (d *device) judge(seed *oplog.Head) error {
	f, there, err := load[floorValue](d, floorFile) // one that does not count is in the report
	if there && err == nil && (d.floor.V == 0 || f.Seq > d.floor.Seq || f.Seq == d.floor.Seq && f.Kept > d.floor.Kept) {
		d.floor = f
	}
	if d.floor.V == 0 {
		return d.chain.refresh(nil, seed)
	}
	floor := d.floor.head(d.name)
	return d.chain.refresh(&floor, seed)
}

// keepFloor makes durable where the chain begins, if the device's own file does not say so: it began behind a seed, or the file is gone or
// an older one.
func (d *device) keepFloor() error {
	if d.chain.floor == nil {
		return nil
	}
	f, there, err := load[floorValue](d, floorFile)
	if there && err == nil && f.Seq >= d.chain.floor.Seq {
		return nil
	}
	next := floorValue{V: version, Device: d.name, posTime: posTimeOf(*d.chain.floor), Kept: d.chain.floor.Seq + 1}
	if d.floor.V != 0 && d.floor.Seq == next.Seq {
		next.Kept, next.MarkedMS = d.floor.Kept, d.floor.MarkedMS
	}
	return d.saveFloor("note the floor", next, err)
}

func (d *device) saveFloor(what string, f floorValue, old error) error {
	if err := d.save(what, floorFile, f, old); err != nil {
		return err
	}
	d.floor = f
	return nil
}

// errContent means that a small file was read, and what is in it does not count.
var errContent = errors.New("not what this file holds")

// A contentError says what is wrong with it, and matches errContent.
type contentError struct{ error }

func (e *contentError) Unwrap() []error { return []error{errContent, e.error} }

// load reads a small file of the device. False means that it is not there; an error that it does not count.
func load[T interface{ check(device string) error }](d *device, name string) (T, bool, error) {
	var zero T
	file := deviceFile(d.name, name)
	data, err := readSmall(d.r.fs, file, maxSmall)
	if missing(err) {
		return zero, false, nil
	}
	var value T
	if err == nil {
		if value, err = decode[T](data, d.name); err != nil {
			err = &contentError{err}
		}
	}
	if err != nil {
		return zero, true, fmt.Errorf("%s: %w", file, err)
	}
	return value, true, nil
}

// row reads the small files. One that cannot be read leaves what was known of it.
func (d *device) row() roster {
	d.odd = d.odd[:0]
	b, hasBeat, err := load[beat](d, beatFile)
	if d.note(beatFile, err); err == nil && hasBeat {
		d.last.beat = b
	}
	a, hasAck, err := load[ackValue](d, ackFile)
	if d.note(ackFile, err); err == nil {
		relay.Join(d.last.acked, a.Folded) // an older file that arrives late does no harm
	}
	_, _, err = load[floorValue](d, floorFile)
	d.note(floorFile, err)
	role, hasRole, err := load[roleValue](d, roleFile)
	if d.note(roleFile, err); err == nil && hasRole {
		d.last.role = role.Role
	}
	d.last.there = hasBeat || hasRole || hasAck
	d.strangers()
	row := d.last
	row.mend = errors.Is(err, errContent) && !errors.Is(err, errVersion)
	if err != nil && row.role == relay.Seen && d.mayCount(err) {
		row.role = relay.Replica
	}
	return row
}

// note puts a small file into the report if it does not count.
func (d *device) note(name string, err error) {
	if err != nil {
		d.odd = append(d.odd, Oddity{Path: deviceFile(d.name, name), Reason: err.Error()})
	}
}

// mayCount reports whether a device whose role is there, cannot be read, and never was by this handle, has to count as a replica, which
// holds collection back: if the file is there and could not be read at all, or is of a newer release; or if anything else shows that a
// device wrote here, since it notes its contact before its role. Otherwise nothing of it has arrived but a name, which anything may bear.
func (d *device) mayCount(err error) bool {
	if !errors.Is(err, errContent) && !errors.Is(err, errNotRegular) || errors.Is(err, errVersion) {
		return true
	}
	return d.last.beat.V != 0 || len(d.last.acked) > 0 || d.floor.V != 0 || d.chain.written()
}

// strangers notes what else is in the folder of the device.
func (d *device) strangers() {
	entries, err := d.r.fs.ReadDir(deviceDir(d.name))
	if err != nil {
		return
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case (name == segmentsDir || name == checkpointsDir) && e.IsDir():
		case slices.Contains(smallFiles, name) && e.Type().IsRegular():
		default:
			right := name == segmentsDir || name == checkpointsDir || slices.Contains(smallFiles, name)
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
	delete(d.sure, name)
	text := encode(value)
	if err := replace(d.r.fs, deviceFile(d.name, name), append(text, '\n')); err != nil {
		return d.r.unknown(what, err)
	}
	d.sure[name] = string(text)
	return nil
}

// settle makes a small file durable that is to stay as it was found: whoever wrote it may have been killed before it had synced.
func (d *device) settle(what, name string, value any) error {
	text := string(encode(value))
	if d.sure[name] == text {
		return nil
	}
	if err := d.r.fs.SyncDir(deviceDir(d.name)); err != nil {
		return d.r.unknown(what, err)
	}
	d.sure[name] = text
	return nil
}

// contact notes a contact of the device: the first one, and one more than a day after the last. With it goes the least
// instance in the folder, so that it outlives the device that drew it.
func (d *device) contact(ctx context.Context) error {
	now := d.r.now()
	b, there, old := load[beat](d, beatFile)
	if there && old == nil && now.Sub(time.UnixMilli(b.SeenMS)) < stale {
		return d.settle("note the contact", beatFile, b)
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
	if err := relay.CheckFrontier(folded); err != nil {
		return cmp.Or(begin(ctx, name), err)
	}
	d, err := r.act(ctx, name)
	if err != nil {
		return err
	}
	defer d.leave()
	a, _, old := load[ackValue](d, ackFile)
	acked := a.Folded.Clone()
	relay.Join(acked, d.last.acked)
	relay.Join(acked, folded)
	if old == nil && acked.Equal(a.Folded) {
		return d.settle("ack", ackFile, a)
	}
	if err := d.save("ack", ackFile, ackValue{V: version, Device: name, Folded: acked}, old); err != nil {
		return err
	}
	relay.Join(d.last.acked, acked)
	return nil
}

// Register implements relay.Relay.
func (r *Relay) Register(ctx context.Context, name string, role relay.Role) error {
	if err := relay.CheckRole(role); err != nil {
		return cmp.Or(begin(ctx, name), err)
	}
	d, err := r.act(ctx, name)
	if err != nil {
		return err
	}
	defer d.leave()
	now, there, old := load[roleValue](d, roleFile)
	if there && old == nil && now.Role == role {
		return d.settle("register", roleFile, now)
	}
	return d.save("register", roleFile, roleValue{V: version, Device: name, Role: role}, old)
}

// Roster implements relay.Relay.
func (r *Relay) Roster(ctx context.Context) ([]relay.Member, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	v, err := r.look(ctx, false)
	if err != nil {
		return nil, err
	}
	return r.roster(ctx, v)
}

// roster reads the rows of all devices but of those whose chains are closed and gone.
func (r *Relay) roster(ctx context.Context, v *view) ([]relay.Member, error) {
	var members []relay.Member
	for _, name := range v.names {
		if v.gone(name) {
			continue
		}
		d := r.device(name)
		if err := d.enter(ctx); err != nil {
			return nil, err
		}
		row := d.row()
		acked := row.acked.Clone()
		d.leave()
		if !row.there {
			continue
		}
		m := relay.Member{Device: name, Role: row.role, Acked: v.living(acked)}
		if row.beat.V != 0 { // without one nothing says that it is silent
			m.Added, m.Seen = time.UnixMilli(row.beat.AddedMS).UTC(), time.UnixMilli(row.beat.SeenMS).UTC()
			m.Evicted = relay.IsEvicted(m.Role, m.Seen, r.now(), r.evict)
		}
		members = append(members, m)
	}
	return members, nil
}
