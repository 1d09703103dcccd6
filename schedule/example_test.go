package schedule_test

import (
	"fmt"
	"time"

	"github.com/syncnode/syncnode/schedule"
)

// A nightly job meets the day on which the clock is put forward.
func ExampleSchedule_After() {
	s, err := schedule.New("30 2 * * *", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	n := 0
	for at := range s.After(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)) {
		fmt.Printf("%s %q\n", at.Format(time.RFC3339), s.Remark(at))
		if n++; n == 3 {
			break
		}
	}
	// Output:
	// 2026-03-28T01:30:00Z ""
	// 2026-03-29T01:00:00Z "02:30 does not exist on this day: runs at 03:00"
	// 2026-03-30T00:30:00Z ""
}

// A timer that fires a little early means the occurrence it was set for.
func ExampleSchedule_Nearest() {
	s, err := schedule.New("*/5 * * * *", "UTC")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Nearest(time.Date(2026, 1, 1, 14, 39, 59, 840e6, time.UTC), 0))
	_, err = s.Nearest(time.Date(2026, 1, 1, 14, 42, 0, 0, time.UTC), 0)
	fmt.Println(err)
	// Output:
	// 2026-01-01 14:40:00 +0000 UTC <nil>
	// 2026-01-01T14:42:00Z is not near an occurrence of "*/5 * * * *" in UTC: the last was due at 2026-01-01T14:40:00Z, 2m0s earlier, the next is due at 2026-01-01T14:45:00Z, 3m0s later
}

func ExampleParse() {
	_, err := schedule.Parse("0 22-2 * * *")
	fmt.Println(err)
	// Output:
	// schedule "0 22-2 * * *", hour at character 3: 22-2 runs backwards; write 22-23,0-2
}
