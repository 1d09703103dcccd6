package child

import (
	"os"
	"sync"
)

// own knows the children of this package that have not been waited for, so that ReapOrphans leaves their
// states to them. It is one for the process because the process's children are.
var own = children{pids: map[int]bool{}}

type children struct {
	mu   sync.Mutex // held over start and over each reap: no child is born or taken unseen
	pids map[int]bool
}

func (c *children) start(path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	proc, err := os.StartProcess(path, argv, attr)
	if err == nil {
		c.pids[proc.Pid] = true
	}
	return proc, err
}
