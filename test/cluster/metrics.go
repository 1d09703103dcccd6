package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// committedMetric is the index of the last log entry that a member knows to be committed. It is the
// one that answers "what did this cost": etcd sets it before it answers the request, whereas
// etcd_server_proposals_applied_total follows a little after the answer.
const committedMetric = "etcd_server_proposals_committed_total"

// ErrDisturbed means that the leader changed during a count, which adds entries of its own. Counting
// again may help.
var ErrDisturbed = errors.New("cluster: the leader changed while proposals were counted")

// quietPolls is how many readings in a row have to be alike, pollEvery apart.
const quietPolls = 10

// Proposals returns how many entries the raft log has committed, from etcd's own metric: the greatest
// number that a member knows of. Members count the same log, so numbers of several are not added up. Besides
// writes, the log holds an entry for each new term, expired lease, membership and version change.
func (c *Cluster) Proposals(ctx context.Context) (int, error) {
	var greatest int
	var errs []error
	var mu sync.Mutex
	_ = c.each(func(m *member) error {
		if _, ok := m.answering(); !ok {
			return nil
		}
		n, err := m.committed(ctx)
		mu.Lock()
		defer mu.Unlock()
		greatest = max(greatest, n)
		if err != nil {
			errs = append(errs, err)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("cluster: read %s: %w", committedMetric, err)
	}
	if greatest == 0 {
		return 0, fmt.Errorf("cluster: read %s: no member has committed anything", committedMetric)
	}
	return greatest, nil
}

// CountProposals returns how many entries f added to the raft log. It waits before and after f until the
// log is quiet, so what f left running counts as long as it keeps writing; what others write meanwhile,
// an expiring lease included, counts too. It matches ErrDisturbed when the leader changed. An error of
// f is returned as it is, with the count.
func (c *Cluster) CountProposals(ctx context.Context, f func() error) (int, error) {
	before, term, err := c.quiet(ctx)
	if err != nil {
		return 0, err
	}
	failed := f()
	after, newTerm, err := c.quiet(ctx)
	switch {
	case err != nil:
		return 0, errors.Join(err, failed)
	case term != newTerm:
		return 0, errors.Join(ErrDisturbed, failed)
	}
	return after - before, failed
}

// quiet waits until the log stands still and nothing is due that the cluster would write by itself. Where it stood still
// when that was last asked, it has done so ever since.
func (c *Cluster) quiet(ctx context.Context) (index int, term uint64, err error) {
	c.mu.Lock()
	index, term = c.stoodAt, c.stoodIn
	c.mu.Unlock()
	alike := quietPolls
	err = poll(ctx, "a quiet log", func(ctx context.Context) error {
		_, t, err := c.leader(ctx)
		if err != nil {
			return err
		}
		n, err := c.Proposals(ctx)
		if err != nil {
			return err
		}
		if n == index && t == term {
			alike++
		} else {
			index, term, alike = n, t, 0
		}
		if alike < quietPolls {
			return fmt.Errorf("entry %d of term %d is new", index, term)
		}
		return c.versionSettled(ctx)
	})
	if err == nil {
		c.mu.Lock()
		c.stoodAt, c.stoodIn = index, term
		c.mu.Unlock()
	}
	return index, term, err
}

// versionSettled says whether the cluster's version is that of its members: a young cluster raises it
// by a proposal, at once or after some seconds.
func (c *Cluster) versionSettled(ctx context.Context) error {
	for _, m := range c.members {
		if _, ok := m.answering(); !ok {
			continue
		}
		var v struct{ EtcdServer, EtcdCluster string }
		err := m.get(ctx, "/version", func(r io.Reader) error { return json.NewDecoder(r).Decode(&v) })
		if err != nil {
			return err
		}
		if minor(v.EtcdServer) != minor(v.EtcdCluster) {
			return fmt.Errorf("member %d is of version %s, the cluster of %s", m.index, v.EtcdServer, v.EtcdCluster)
		}
	}
	return nil
}

func minor(version string) string {
	if i := strings.LastIndexByte(version, '.'); i > 0 {
		return version[:i]
	}
	return version
}

// committed reads the member's committedMetric. A member that has committed nothing in this life has 0.
func (m *member) committed(ctx context.Context) (int, error) {
	var n int
	err := m.get(ctx, "/metrics", func(r io.Reader) error {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), committedMetric+" "); ok {
				value, err := strconv.ParseFloat(text, 64)
				n = int(value)
				return err
			}
		}
		return fmt.Errorf("member %d does not have it", m.index)
	})
	return n, err
}

// get asks the member over HTTP, past every proxy.
func (m *member) get(ctx context.Context, path string, read func(io.Reader) error) error {
	_, addr, ok := m.addrs()
	if !ok {
		return fmt.Errorf("member %d does not run", m.index)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("member %d: %w", m.index, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("member %d: %s: %s", m.index, path, resp.Status)
	}
	return read(resp.Body)
}
