package due

import "time"

// A Rate spaces out what is caught up, over all agents of a node: after an outage a thousand agents do not begin at
// once. It runs on the boot-time clock, so that no step of the wall clock lends it anything. The zero Rate does not limit.
type Rate struct {
	every time.Duration // 0: it does not limit
	taken bool
	last  time.Duration // when it was taken
}

// NewRate gives a rate of n in each period.
func NewRate(n int, period time.Duration) *Rate {
	var r Rate
	r.Set(n, period)
	return &r
}

// Set makes it another rate. What was begun by the one of before counts.
func (r *Rate) Set(n int, period time.Duration) {
	r.every = 0
	if n > 0 {
		r.every = period / time.Duration(n)
	}
}

// wait is how long until the next one may begin.
func (r *Rate) wait(now Reading) time.Duration {
	if r == nil || !r.taken {
		return 0
	}
	return max(r.last+r.every-now.Boot, 0)
}

func (r *Rate) take(now Reading) {
	if r != nil {
		r.taken, r.last = true, now.Boot
	}
}
