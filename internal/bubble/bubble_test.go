package bubble_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
)

func TestWhatFallsDueAtTheEndOfAPassIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int64
		for range 1000 { // by luck a sleep alone gets a few right
			time.AfterFunc(time.Minute, func() { done.Add(1) })
		}
		bubble.Pass(time.Minute)
		if got := done.Load(); got != 1000 {
			t.Errorf("%d of 1000 timers fired within a minute", got)
		}
	})
}
