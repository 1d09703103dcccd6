package dir_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A raced file system lets something happen when a name that is not there was asked for twice.
type raced struct {
	dir.FS
	asked   map[string]int
	happens func()
}

func (r raced) Stat(name string) (fs.FileInfo, error) {
	if _, err := r.FS.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if r.asked[name]++; r.asked[name] == 2 {
			r.happens()
		}
	}
	return r.FS.Stat(name)
}

// Two processes of one device seal a segment and begin the next one at once: an op in a segment before that one would be read by nobody
// who comes later.
func TestASegmentThatAnotherProcessBeginsAtOnceIsWrittenToByBoth(t *testing.T) {
	t.Parallel()
	root, now := t.TempDir(), 0
	ops := relaytest.NewAuthor("a").Write(t, 40, 300)
	other := open(t, dir.Config{FS: newSwift(t, root), SegmentBytes: 2000, Poll: time.Millisecond})
	races := 0
	r := open(t, dir.Config{SegmentBytes: 2000, Poll: time.Millisecond, FS: raced{FS: newSwift(t, root), asked: map[string]int{}, happens: func() {
		races++
		push(t, other, ops[now:now+1])
	}}})
	for now = range ops {
		push(t, r, ops[now:now+1])
	}
	if races < 3 {
		t.Errorf("%d races, want some", races)
	}
	wantOps(t, pull(t, at(t, root))["a"], ops)
	if rep := report(t, at(t, root)); len(rep.Forks)+len(rep.Waiting) != 0 {
		t.Errorf("report %+v", rep)
	}
}
