// Package bubble lets time go by in the bubble of a test (testing/synctest). Tests alone import it.
//
// A test that only sleeps wakes at an instant at which other timers may fire too, and what it then looks at or changes
// has happened or not as the scheduler pleases. Where nothing else can happen at that instant nothing is lost by [Pass].
package bubble

import (
	"testing/synctest"
	"time"
)

// Pass lets d go by, and all that falls due within it, at its very end too, be over: every other goroutine of the
// bubble waits for something again. It panics outside a bubble, and when two goroutines of one call it at once.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
