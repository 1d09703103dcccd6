package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A State is a copy of all members' data at one moment. It lives as long as its cluster's directory.
type State struct{ dir string }

// SaveState kills all members, copies their data, which holds all that was acknowledged, and starts
// them all again. It returns when they serve.
func (c *Cluster) SaveState(ctx context.Context) (State, error) {
	c.mu.Lock()
	c.saved++
	s := State{dir: filepath.Join(c.dir, fmt.Sprintf("saved-%d", c.saved))}
	c.mu.Unlock()
	err := c.whileStopped(ctx, func(m *member) error {
		return os.CopyFS(filepath.Join(s.dir, m.name), os.DirFS(m.dataDir()))
	})
	return s, err
}

// LoadState kills all members, replaces their data by a saved state and starts them. Everything
// written since is gone, and revisions are given out a second time: a cluster restored from a backup,
// behind the same endpoints. It returns when the members serve.
func (c *Cluster) LoadState(ctx context.Context, s State) error {
	if s.dir == "" {
		return errors.New("cluster: load state: none was saved")
	}
	return c.whileStopped(ctx, func(m *member) error {
		if err := os.RemoveAll(m.dataDir()); err != nil {
			return err
		}
		return os.CopyFS(m.dataDir(), os.DirFS(filepath.Join(s.dir, m.name)))
	})
}

// Reset kills all members, deletes their data and starts them: another, empty cluster with an id of its
// own behind the same endpoints. It returns when the members serve.
func (c *Cluster) Reset(ctx context.Context) error {
	c.mu.Lock()
	c.resets++
	c.mu.Unlock()
	return c.whileStopped(ctx, func(m *member) error { return os.RemoveAll(m.dataDir()) })
}

// whileStopped kills all members, runs f for each and starts all. Stopping them in order would take
// seconds: a leader that ends offers its place to another one, which ends as well.
func (c *Cluster) whileStopped(ctx context.Context, f func(*member) error) error {
	c.mu.Lock()
	c.stoodAt, c.stoodIn = 0, 0
	c.mu.Unlock()
	err := c.each((*member).kill)
	if err == nil {
		err = c.each(f)
	}
	if err != nil {
		return fmt.Errorf("cluster: replace data: %w", err)
	}
	return c.startAll(ctx)
}
