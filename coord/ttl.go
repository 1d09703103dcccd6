package coord

import (
	"fmt"
	"time"
)

const (
	// DefaultTTL is what programs ask for when nobody said otherwise.
	DefaultTTL = 15 * time.Second
	// MaxTTL is the longest TTL that is granted.
	MaxTTL = 300 * time.Second
)

// classes are the TTLs that are granted; a process has one liveness for each that it uses.
var classes = [...]time.Duration{2 * time.Second, 5 * time.Second, DefaultTTL, 30 * time.Second, 60 * time.Second, MaxTTL}

// Classes returns the TTL classes, ascending.
func Classes() []time.Duration { return append([]time.Duration(nil), classes[:]...) }

// Granted rounds ttl up to the next class: 2, 5, 15, 30, 60 or 300 s. 0 stays 0. A negative ttl, or one
// above MaxTTL, is refused with an error that matches ErrInvalid.
func Granted(ttl time.Duration) (time.Duration, error) {
	if ttl == 0 {
		return 0, nil
	}
	for _, class := range classes {
		if 0 < ttl && ttl <= class {
			return class, nil
		}
	}
	return 0, fmt.Errorf("%w: ttl %s is not between 0 and %s", ErrInvalid, ttl, MaxTTL)
}
