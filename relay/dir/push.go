package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// maxTries bounds how often a push is judged anew because others wrote to the device's segments meanwhile.
const maxTries = 64

// A pusher is one call of Push.
type pusher struct {
	r       *Relay
	d       *device
	c       *chain
	seed    *oplog.Head // where the chain begins if its files reach less far
	ops     []oplog.Op
	written map[uint64]oplog.OpID // by this call, wherever it ended up
	sent    bool                  // something may have been written
}

// Push implements relay.Relay. It appends one group to a segment of the device, syncs it and reads it back: what
// stands first in the file is what counts, for this device and for every reader.
func (r *Relay) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	if err := relay.CheckPush(device, ops); err != nil {
		return relay.Pushed{}, cmp.Or(begin(ctx, device), err)
	}
	d, err := r.act(ctx, device)
	if err != nil {
		return relay.Pushed{}, err
	}
	defer d.leave()
	books, err := r.books(ctx, false)
	if err != nil {
		return relay.Pushed{}, err
	}
	if last, closed := books.closed[device]; closed {
		return relay.Pushed{}, &relay.ClosedError{Device: device, Last: last}
	}
	p := &pusher{r: r, d: d, c: d.chain, seed: books.seed(device), ops: ops, written: map[uint64]oplog.OpID{}}
	for range maxTries {
		done, again, err := p.step()
		if err != nil || !again {
			return done, err
		}
	}
	return relay.Pushed{}, p.fail("push", errors.New("others keep writing to the device's segments"))
}

// step judges the ops against the folder as it is now and does the next thing: repair, seal, append or answer.
func (p *pusher) step() (done relay.Pushed, again bool, err error) {
	if err := p.d.judge(p.seed); err != nil {
		return done, false, p.fail("read the own chain", err)
	}
	for _, base := range p.c.bases {
		if p.c.segs[base].newer {
			return done, false, fmt.Errorf("%w: segment %s: %w", relay.ErrCorrupt, segmentFile(p.c.device, base), errVersion)
		}
	}
	if repaired, err := p.repair(); err != nil || repaired {
		return done, true, err
	}
	head, known := p.c.verified.Head()
	b := relay.Verify(p.c.device, head, known, p.ops)
	done.Duplicate = b.Repeated
	if err := p.match(b.Below, &done); err != nil {
		return done, false, err
	}
	if len(b.New) > 0 {
		if err := p.room(b.New); err != nil {
			return done, false, err
		}
		if err := p.d.keepFloor(); err != nil {
			return done, false, p.fail("note where the chain begins", err)
		}
		return done, true, p.add(b.New)
	}
	if err := p.settle(); err != nil {
		return relay.Pushed{}, false, err
	}
	return done, false, b.Refused
}

// match compares ops at or below the head with those that count, and sorts those of this call from those before it.
func (p *pusher) match(ops []oplog.Op, done *relay.Pushed) error {
	if floor := p.c.floor; floor != nil {
		same, above, err := relay.MatchCollected(p.c.device, ops, floor.Pos())
		done.Duplicate += same
		if err != nil {
			return err
		}
		ops = above
	}
	var held []oplog.Op
	counted := map[uint64]bool{} // an op that the push holds twice was added once
	for _, op := range ops {
		if len(held) == 0 || held[0].Seq != op.Seq {
			var err error
			if held, err = p.c.read(op.Seq, relay.MaxBytes); err != nil {
				return err
			}
		}
		if err := relay.Match(op, held[0].ID); err != nil {
			return err
		}
		if p.written[op.Seq] == op.ID && !counted[op.Seq] {
			done.Accepted++
		} else {
			done.Duplicate++
		}
		counted[op.Seq] = true
		held = held[1:]
	}
	return nil
}

// repair closes what an interrupted push left at the end of the segment that is written next. Nothing is cut off:
// another process may be writing it this moment.
func (p *pusher) repair() (bool, error) {
	for base := range p.c.tainted {
		return true, p.replant(base)
	}
	s := p.target()
	if s == nil || s.end == s.size {
		return false, nil
	}
	closing := "\n"
	if s.open {
		closing = "\n\n"
	}
	return true, p.append(s, s.base, []byte(closing))
}

// replant writes a segment anew whose sync failed: what the system still shows of it may not be on the disk, and a
// second sync would not say so.
func (p *pusher) replant(base uint64) error {
	name := segmentFile(p.c.device, base)
	data, err := readSmall(p.r.fs, name, maxSegment)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		p.sent = true
		err = replace(p.r.fs, name, data)
	}
	if err != nil {
		return p.fail("write a segment anew", err)
	}
	delete(p.c.tainted, base)
	return nil
}

// target is the segment that the next op goes to; nil if a new one has to be begun. It is none but the last of those that may hold the op:
// readers judge one after the other, and would pass over an op in an earlier one that continues what stands in a later one.
func (p *pusher) target() *segment {
	next := p.c.next()
	for i := len(p.c.bases) - 1; i >= 0; i-- {
		s := p.c.segs[p.c.bases[i]]
		if s.base > next {
			continue
		}
		if (s.sealed == 0 || s.sealed > next) && s.size < maxSegment/2 {
			return s
		}
		break
	}
	return nil
}

// add appends a group, or seals a full segment first.
func (p *pusher) add(ops []oplog.Op) error {
	next := p.c.next()
	s := p.target()
	if s == nil {
		return p.begin(ops)
	}
	if s.sealed == 0 && s.size >= p.r.roll && next > s.base && p.free(next) {
		return p.append(s, s.base, newHeader(p.c.device, s.base, next).group())
	}
	var data []byte
	if !s.headed {
		data = newHeader(p.c.device, s.base, 0).group()
	}
	for i, op := range ops {
		if s.sealed > 0 && op.Seq >= s.sealed {
			ops = ops[:i]
			break
		}
	}
	return p.append(s, s.base, p.group(data, ops))
}

// begin appends to a new segment. If something that is no segment has its name, a lower one serves as well. A segment that another
// process made since the folder was listed is written to after another look: this does nothing then.
func (p *pusher) begin(ops []oplog.Op) error {
	base := p.c.next()
	for tries := 0; !p.free(base); tries++ {
		if info, err := p.r.fs.Stat(segmentFile(p.c.device, base)); p.c.segs[base] == nil && err == nil && info.Mode().IsRegular() {
			return nil
		}
		if base == 0 || tries == 8 {
			return fmt.Errorf("%w: something that is no segment has the name %s", relay.ErrCorrupt, segmentFile(p.c.device, base))
		}
		base--
	}
	return p.append(nil, base, p.group(newHeader(p.c.device, base, 0).group(), ops))
}

// group appends ops to dst as one group, and notes that this call writes them.
func (p *pusher) group(dst []byte, ops []oplog.Op) []byte {
	for _, op := range ops {
		dst = append(op.AppendLine(dst), '\n')
		p.written[op.Seq] = op.ID
	}
	return append(dst, '\n')
}

// free reports whether a segment of that base can be made.
func (p *pusher) free(base uint64) bool {
	_, err := p.r.fs.Stat(segmentFile(p.c.device, base))
	return errors.Is(err, fs.ErrNotExist)
}

// append writes data to the end of a segment in one write, and syncs it. s is nil if the segment is to be made.
func (p *pusher) append(s *segment, base uint64, data []byte) error {
	flag := os.O_WRONLY | os.O_APPEND
	if s == nil {
		flag |= os.O_CREATE
		if err := makeDirs(p.r.fs, segmentDir(p.c.device)); err != nil {
			return p.fail("make the folder of the segments", err)
		}
	}
	f, err := p.r.fs.Open(segmentFile(p.c.device, base), flag)
	if err != nil {
		return p.fail("open a segment", err)
	}
	p.sent = true
	if _, err := f.Write(data); err != nil {
		return p.fail("write a segment", errors.Join(err, f.Close()))
	}
	return p.sync(s, base, f)
}

// sync brings a segment and its name to stable storage and closes it.
func (p *pusher) sync(s *segment, base uint64, f File) error {
	info, err := f.Stat()
	if err == nil {
		if err = f.Sync(); err != nil {
			p.c.tainted[base] = true
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return p.fail("sync a segment", err)
	}
	if s == nil || s.durable == 0 { // a new name, or one that another process may have made just now
		if err := p.syncNames(); err != nil {
			return p.fail("sync the folder of the segments", err)
		}
	}
	if s != nil {
		s.durable = max(s.durable, info.Size())
	}
	return nil
}

func (p *pusher) syncNames() error {
	for dir := segmentDir(p.c.device); ; dir = path.Dir(dir) {
		if err := p.r.fs.SyncDir(dir); err != nil || dir == "." {
			return err
		}
	}
}

// settle syncs what is about to be called there and was written by another process, or before this one began.
func (p *pusher) settle() error {
	for _, base := range p.c.bases {
		s := p.c.segs[base]
		if s.base > p.c.next() || s.end <= s.durable || s.sealed > 0 && p.c.next() >= s.sealed {
			continue // a seal is synced together with all before it
		}
		f, err := p.r.fs.Open(segmentFile(p.c.device, base), os.O_WRONLY|os.O_APPEND)
		if err != nil {
			return p.fail("open a segment", err)
		}
		if err := p.sync(s, base, f); err != nil {
			return err
		}
	}
	return nil
}

// room refuses ops that do not fit the limit.
func (p *pusher) room(ops []oplog.Op) error {
	if p.r.maxBytes <= 0 {
		return nil
	}
	var need int64
	for _, op := range ops {
		need += int64(relay.LineLen(op))
	}
	used, err := p.r.used()
	if err != nil {
		return p.fail("measure the folder", err)
	}
	if used+need > p.r.maxBytes {
		return &relay.FullError{Used: used, Need: need, Max: p.r.maxBytes}
	}
	return nil
}

// fail says what the failure of a step means for the call.
func (p *pusher) fail(what string, err error) error {
	outcome := relay.ErrNotSent
	if p.sent {
		outcome = relay.ErrIndeterminate
	}
	return full(fmt.Errorf("%s in %s: %w: %w", what, p.r.where, outcome, err), err)
}

// full puts relay.ErrFull beside an error whose cause is a disk or a quota without room.
func full(err, cause error) error {
	if errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", relay.ErrFull, err)
	}
	return err
}

// used is the size of all segments and checkpoints of all devices.
func (r *Relay) used() (int64, error) {
	devices, _, err := r.devices()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, device := range devices {
		sum += r.size(segmentDir(device), func(name string) bool { _, ok := segmentBase(name); return ok })
		sum += r.size(deviceFile(device, checkpointsDir), func(name string) bool { _, ok := checkpointHash(name); return ok })
	}
	return sum, nil
}

// size is that of the files in a folder whose names are ours; 0 if there is none, or nothing that can be measured.
func (r *Relay) size(dir string, ours func(name string) bool) (sum int64) {
	entries, err := r.fs.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if !ours(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}
