package checkpoint

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// A Cut says up to where to extend.
type Cut struct {
	// Frontier is what the new checkpoint covers: of each device in it up to that op. Devices of the base that are absent
	// stay where they are.
	Frontier oplog.Frontier
	// Closed are devices that will never write again. Their chains end where the cut has them.
	Closed []string
	// Content says what is folded for an op. Nil: its payload.
	Content Content
}

// A Content gives what is folded for a verified op in the place of its payload, such as what is sealed in it: canonical JSON. Whatever
// makes it fail calls the extension off.
type Content func(oplog.Op) ([]byte, error)

// Extend takes the state of base on to the cut and gives the checkpoint there, whose bytes are those of one made from
// genesis. A nil base is genesis. ops yields what is above the base, each device's in order and the devices in any; what the base
// covers and what is above the cut is left out, so a whole journal may be given, and reading stops when the cut is reached.
//
// Extend uses the base's state up: when it returns, base must not be used any more, also after an error. Load it again, or
// give Extend a copy ([Checkpoint.Clone]), if it is still needed.
//
// It fails with the error that ops yields, an *oplog.ForkError if an op at the cut is another than the cut says, a
// [*ShortError] if ops end before the cut, ErrAnchor or an error of oplog if they do not continue it, or that of cut.Content.
func Extend(base *Checkpoint, cut Cut, ops iter.Seq2[oplog.Op, error]) (*Checkpoint, error) {
	if base == nil {
		base = &Checkpoint{State: fold.New()}
	}
	e := extension{anchors: Anchor(base.Header), state: base.State, cut: cut.Frontier, content: cut.Content, open: map[string]bool{}}
	for device := range cut.Frontier {
		if err := e.check(device); err != nil {
			return nil, fmt.Errorf("extend checkpoint: %w", err)
		}
	}
	if err := e.run(ops); err != nil {
		return nil, fmt.Errorf("extend checkpoint: %w", err)
	}
	for _, device := range cut.Closed {
		if !e.state.Close(device) {
			return nil, fmt.Errorf("extend checkpoint: nothing of %s is covered, so its chain cannot be closed", device)
		}
	}
	return Of(e.state), nil
}

type extension struct {
	anchors *Anchors
	state   *fold.State
	cut     oplog.Frontier
	content Content
	open    map[string]bool // devices that are not at the cut yet
}

// check notes a device that has ops to come, and judges one that is at the cut already.
func (e *extension) check(device string) error {
	cut := e.cut[device]
	head, ok := e.anchors.base.head(device)
	switch {
	case !ok || head.Seq < cut.Seq:
		e.open[device] = true
	case head.Seq == cut.Seq && head.ID != cut.ID:
		return &oplog.ForkError{Device: device, Seq: cut.Seq, Have: head.ID, Got: cut.ID}
	}
	return nil
}

func (e *extension) run(ops iter.Seq2[oplog.Op, error]) error {
	if len(e.open) > 0 {
		for op, err := range ops {
			if err != nil {
				return err
			}
			if err := e.take(op); err != nil {
				return err
			}
			if len(e.open) == 0 {
				break
			}
		}
	}
	if len(e.open) == 0 {
		return nil
	}
	device := slices.Min(slices.Collect(maps.Keys(e.open)))
	next := uint64(0)
	if c, ok := e.anchors.Chain(device); ok {
		next = c.NextSeq()
	}
	return &ShortError{Device: device, Next: next, Cut: e.cut[device].Seq}
}

func (e *extension) take(op oplog.Op) error {
	if !e.cut.Covers(op.Device, op.Seq) || e.state.Covers(op.Device, op.Seq) {
		return nil
	}
	// An op of the cut is stable: whether its stamp is ahead of this device's clock does not matter any more.
	if _, err := e.anchors.Admit(op, oplog.MaxInt); err != nil {
		return err
	}
	if e.content != nil {
		content, err := e.content(op)
		if err != nil {
			return err
		}
		op.Payload = content // the id stays that of the op as it was written
	}
	if !e.state.Apply(op) {
		return fmt.Errorf("op %s/%d was verified and cannot be folded", op.Device, op.Seq)
	}
	if cut := e.cut[op.Device]; op.Seq == cut.Seq {
		if op.ID != cut.ID {
			return &oplog.ForkError{Device: op.Device, Seq: op.Seq, Have: op.ID, Got: cut.ID}
		}
		delete(e.open, op.Device)
	}
	return nil
}

// Clone is an independent copy. It costs what writing and loading the state costs, and twice its memory meanwhile.
func (c *Checkpoint) Clone() (*Checkpoint, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	return Decode(bytes.NewReader(body), c.Hash)
}

// Refold proves an offered checkpoint: it extends base, which may be nil for genesis and is used up as by Extend, to the offered
// frontier with the ops that are held and their content, nil for their payloads, and compares. nil: it is what these ops give. [*DisputedError]: it is not. [*BehindError]:
// it does not cover the base. Any other error means that nothing was proved, as by a [*ShortError] when the covered history is not
// held any more; then only its author vouches for the offered one.
func Refold(offered Header, base *Checkpoint, ops iter.Seq2[oplog.Op, error], content Content) error {
	if base != nil {
		if err := offered.MayReplace(&base.Header); err != nil {
			return err
		}
	}
	again, err := Extend(base, Cut{Frontier: offered.All(), Closed: offered.Closed.Devices(), Content: content}, ops)
	if err != nil {
		return err
	}
	if again.Hash != offered.Hash {
		return &DisputedError{Offered: offered.Hash, Refolded: again.Hash, SameState: again.Digest == offered.Digest}
	}
	return nil
}

// Uncovered yields the ops that a checkpoint does not cover: what is kept when it takes the place of what is below it. An op that it
// covers under another id yields an *oplog.ForkError as far as that can be seen, which is at its heads; the caller may go on.
func Uncovered(h *Header, ops iter.Seq2[oplog.Op, error]) iter.Seq2[oplog.Op, error] {
	return func(yield func(oplog.Op, error) bool) {
		for op, err := range ops {
			if err == nil {
				head, ok := h.head(op.Device)
				if ok && op.Seq == head.Seq && op.ID != head.ID {
					err = &oplog.ForkError{Device: op.Device, Seq: op.Seq, Have: head.ID, Got: op.ID}
				} else if ok && op.Seq <= head.Seq {
					continue
				}
			}
			if !yield(op, err) {
				return
			}
		}
	}
}
