package work

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/schedule/due"
)

// Clock reads the wall clock and the boot-time clock, which goes on in suspend and is never set.
func Clock() due.Reading {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("work: no boot-time clock: " + err.Error()) // Linux has it since 2.6.39
	}
	return due.Reading{Wall: time.Now(), Boot: time.Duration(ts.Nano())}
}
