package api

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// A stated is a file with that mode and owner.
type stated struct {
	os.FileInfo
	mode  fs.FileMode
	owner uint32
}

func (s stated) Mode() fs.FileMode { return s.mode }
func (s stated) Sys() any          { return &syscall.Stat_t{Uid: s.owner} }

// A Secret in a pod whose user is not root is root's, and readable by the pod's group.
func TestATokenFileIsItsOwnersAloneOrLentByRootToAGroup(t *testing.T) {
	for _, c := range []struct {
		mode    fs.FileMode
		owner   uint32
		user    int
		exposed bool
	}{
		{0o600, 7, 7, false},
		{0o400, 7, 7, false},
		{0o440, 7, 7, true},
		{0o440, 8, 7, true},
		{0o440, 0, 0, true},
		{0o440, 0, 7, false},
		{0o640, 0, 7, false},
		{0o460, 0, 7, true},
		{0o444, 0, 7, true},
		{0o441, 0, 7, true},
	} {
		if got := exposed(stated{mode: c.mode, owner: c.owner}, c.user); got != c.exposed {
			t.Errorf("mode %04o of %d, read by %d: exposed %v, want %v", c.mode, c.owner, c.user, got, c.exposed)
		}
	}
}
