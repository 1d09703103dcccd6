package oplog

// MaxAhead is how far, in milliseconds, a stamp may be ahead of the wall clock to be folded at once.
const MaxAhead = 5 * 60 * 1000

// A Head describes the last op of a chain.
type Head struct {
	Seq uint64
	ID  OpID
	HLC HLC
}

// Pos is the head as it appears in a frontier.
func (h Head) Pos() Pos { return Pos{Seq: h.Seq, ID: h.ID} }

// A Chain verifies the ops of one device, one after another, against the verified head alone: admitting k ops
// costs O(k) whatever was admitted before.
type Chain struct {
	device string
	head   Head
	begun  bool
}

// NewChain returns the empty chain of device, which has to begin at seq 0.
func NewChain(device string) *Chain { return &Chain{device: device} }

// ResumeChain returns the chain of device that was verified up to head, for example by a journal or a checkpoint.
func ResumeChain(device string, head Head) *Chain {
	return &Chain{device: device, head: head, begun: true}
}

// Device is the device whose chain it is.
func (c *Chain) Device() string { return c.device }

// Head is the verified head, and false if no op was admitted yet.
func (c *Chain) Head() (Head, bool) { return c.head, c.begun }

// NextSeq is the seq that the next op must have.
func (c *Chain) NextSeq() uint64 {
	if !c.begun {
		return 0
	}
	return c.head.Seq + 1
}

// Clone returns a copy, to try a batch on.
func (c *Chain) Clone() *Chain { d := *c; return &d }

// A Verdict says what to do with an op that was not refused.
type Verdict struct {
	// Duplicate: the op is the head itself, once more. There is nothing to do.
	Duplicate bool
	// Parked is not nil if the op is stamped more than MaxAhead ahead. It was admitted, so journal it, but do not
	// fold it or let a clock observe it before Parked.Until. Every later op of the chain is parked at least as long.
	Parked *FutureError
}

// Admit verifies op against the head and, if it is good, makes it the head. nowMS is the wall clock in unix
// milliseconds and only decides about parking. On an error, which is one of the typed errors of the package
// comment, the chain is as before.
func (c *Chain) Admit(op Op, nowMS int64) (Verdict, error) {
	if op.Device != c.device {
		return Verdict{}, &ForeignError{Field: "device_id", Want: c.device, Got: op.Device}
	}
	if err := op.Check(); err != nil {
		return Verdict{}, err
	}
	if dup, err := c.link(op); err != nil || dup {
		return Verdict{Duplicate: dup}, err
	}
	c.head, c.begun = Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}, true
	return Verdict{Parked: Future(op, nowMS)}, nil
}

// link judges seq, prev and stamp, and whether op is the head itself.
func (c *Chain) link(op Op) (duplicate bool, err error) {
	next := c.NextSeq()
	switch {
	case op.Seq > next:
		return false, &GapError{Device: c.device, Expected: next, Found: op.Seq}
	case c.begun && op.Seq < c.head.Seq:
		return false, &BelowError{Device: c.device, Seq: op.Seq, Head: c.head.Seq}
	case c.begun && op.Seq == c.head.Seq && op.ID == c.head.ID:
		return true, nil
	case c.begun && op.Seq == c.head.Seq:
		return false, &ForkError{Device: c.device, Seq: op.Seq, Have: c.head.ID, Got: op.ID}
	case c.begun && op.Prev != c.head.ID:
		return false, &ForkError{Device: c.device, Seq: c.head.Seq, Have: c.head.ID, Got: op.Prev}
	case c.begun && op.HLC.Compare(c.head.HLC) <= 0:
		return false, &ClockError{Device: c.device, Seq: op.Seq, Before: c.head.HLC, Got: op.HLC}
	}
	return false, nil
}

// Future returns until when op has to be parked, given the wall clock in unix milliseconds, or nil if it may be
// folded now.
func Future(op Op, nowMS int64) *FutureError {
	until := op.HLC.WallMS - MaxAhead
	if until <= nowMS {
		return nil
	}
	return &FutureError{Device: op.Device, Seq: op.Seq, Until: until}
}
