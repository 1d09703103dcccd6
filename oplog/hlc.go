package oplog

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/syncnode/syncnode/internal/ident"
)

// An HLC is the stamp of a hybrid logical clock.
type HLC struct {
	WallMS  int64  `json:"wall_ms"` // unix milliseconds, 0 to 2^53-1
	Counter uint32 `json:"counter"`
	Device  string `json:"device_id"` // the device that made the stamp
}

// Compare orders stamps by wall, counter, then device bytewise: -1, 0 or +1. The order of all ops is that of
// their stamps, then of their ids.
func (a HLC) Compare(b HLC) int {
	if c := cmp.Compare(a.WallMS, b.WallMS); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Counter, b.Counter); c != 0 {
		return c
	}
	return strings.Compare(a.Device, b.Device)
}

func (a HLC) String() string { return fmt.Sprintf("%d.%d@%s", a.WallMS, a.Counter, a.Device) }

func (a HLC) check() error {
	switch {
	case a.WallMS < 0:
		return &FieldError{Field: "hlc.wall_ms", Err: errNegative}
	case a.WallMS > MaxInt:
		return &FieldError{Field: "hlc.wall_ms", Err: errBeyond}
	}
	if err := ident.Check("device", a.Device); err != nil {
		return &FieldError{Field: "hlc.device_id", Err: err}
	}
	return nil
}

// A Clock stamps the ops of one device. It reads no time itself.
//
// A stamp it gives is after every stamp it gave or observed, whatever the wall clock does. Observe only what is
// verified, durable and not parked: a stamp from the future must not drag the clock along.
type Clock struct{ last HLC }

// NewClock returns a clock for device. After a restart, let it observe the head of the device's own chain and
// whatever was folded before.
func NewClock(device string) *Clock { return &Clock{last: HLC{Device: device}} }

// Tick returns the next stamp, given the wall clock in unix milliseconds. When 2^32 stamps share a
// millisecond, the stamp runs one millisecond ahead.
func (c *Clock) Tick(wallMS int64) HLC {
	switch {
	case wallMS > c.last.WallMS:
		c.last.WallMS, c.last.Counter = wallMS, 0
	case c.last.Counter == math.MaxUint32:
		c.last.WallMS, c.last.Counter = c.last.WallMS+1, 0
	default:
		c.last.Counter++
	}
	return c.last
}

// Observe makes every later stamp be after h.
func (c *Clock) Observe(h HLC) {
	own := c.last.Device
	if h.WallMS > c.last.WallMS || h.WallMS == c.last.WallMS && h.Counter > c.last.Counter {
		c.last = HLC{WallMS: h.WallMS, Counter: h.Counter, Device: own}
	}
}

// Last is the greatest stamp given or observed, under the clock's own device.
func (c *Clock) Last() HLC { return c.last }
