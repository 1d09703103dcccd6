package coord

import "time"

// WithWall returns o with another wall clock.
func (o KeepOptions) WithWall(wall func() time.Time) KeepOptions {
	o.wall = wall
	return o
}
