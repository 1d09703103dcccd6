package due

import "time"

// A Rate spaces out what is caught up, over all agents of a node: after an outage a thousand agents do not begin at
// once. It runs on the boot-time clock, so that no step of the wall clock lends it anything. The zero Rate does not limit.
type Rate struct {
	every time.Duration
	next  time.Duration
}

// NewRate gives a rate of n in each period.
func NewRate(n int, period time.Duration) *Rate {
	if n <= 0 {
		return &Rate{}
	}
	return &Rate{every: period / time.Duration(n)}
}

// wait is how long until the next one may begin.
func (r *Rate) wait(now Reading) time.Duration {
	if r == nil || r.every == 0 {
		return 0
	}
	return max(r.next-now.Boot, 0)
}

func (r *Rate) take(now Reading) {
	if r != nil && r.every != 0 {
		r.next = now.Boot + r.every
	}
}
