// Package cluster starts a real etcd cluster of child processes on this machine and breaks it on purpose.
//
// A member is the running program, executed again and serving an embedded etcd: call [Main] from
// TestMain, or [RunMember] as the first statement of main. In front of each peer URL and each client
// URL stands a TCP proxy of this package, so no privilege is needed to cut a connection.
//
//	func TestMain(m *testing.M) { cluster.Main(m) }
//
//	func TestMine(t *testing.T) {
//		c := cluster.New(t, cluster.Config{})
//		client := c.Client(t)
//		...
//		c.Kill(leader)
//	}
//
// # Guarantees
//
// Start returns once every member answers a linearizable read. A member is a process of its own, so
// Kill loses what it had not written, and Pause stops its clock as well as its work. Data is fsynced
// unless Config.NoFsync says otherwise. URLs stay the same over restarts. A cut from one member to
// another stops every message of that direction and no message of the other. A member outlives
// neither its cluster nor the process that started it, however that process ends. Nothing of etcd's
// log reaches the console.
//
// The cluster does not promise a stable leader: election timeouts are short, and a busy machine
// elects now and then. A test asks for the leader when it needs it.
//
// # Failure
//
// Every wait is bounded by its context or by Config.StartTimeout, and its error says which member
// was waited for, with the end of that member's log where the member died.
//
// # Concurrency
//
// All methods may be called from several goroutines, except that Kill, Stop, Restart, Pause and
// Resume of one member must not be called at the same time, nor beside SaveState, LoadState or Reset.
//
// # Limits
//
// Unix only. Peer and client URLs are plain HTTP. Outside Linux the owner of a peer connection
// without an X-Server-From header is not known, and such connections are refused by any member that
// a cut touches; and a member that is paused when its parent is killed stays behind.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Config describes a cluster. The zero value is three members in a temporary directory.
type Config struct {
	Members       int           // 3
	TickMS        uint          // 10: heartbeat interval
	ElectionMS    uint          // 100: election timeout
	QuotaBytes    int64         // etcd's own: 2 GiB
	SnapshotCount uint64        // etcd's own: 10,000 entries
	Dir           string        // temporary and removed on Close; a given one is kept, and only a cluster of one starts on its data again
	NoFsync       bool          // do not fsync: faster, and no statement about power loss holds any more
	LogLevel      string        // "error": the level of each member's log file
	StartTimeout  time.Duration // 60 s: the longest that Start, Restart, SaveState, LoadState and Reset wait

	// Executable is run instead of this program; it has to call RunMember. A race-enabled test
	// can name a program that was built without the race detector.
	Executable string
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Members == 0 {
		cfg.Members = 3
	}
	if cfg.TickMS == 0 {
		cfg.TickMS = 10
	}
	if cfg.ElectionMS == 0 {
		cfg.ElectionMS = 10 * cfg.TickMS
	}
	if cfg.LogLevel == "" {
		cfg.LogLevel = "error"
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 60 * time.Second
	}
	var errs []error
	if cfg.Members < 0 {
		errs = append(errs, fmt.Errorf("cluster: %d members", cfg.Members))
	}
	if cfg.ElectionMS < 5*cfg.TickMS {
		errs = append(errs, fmt.Errorf("cluster: election timeout of %d ms is below five ticks of %d ms", cfg.ElectionMS, cfg.TickMS))
	}
	if cfg.Executable == "" {
		if !mainCalled.Load() {
			errs = append(errs, ErrNoMain)
		}
		exe, err := os.Executable()
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster: find own executable: %w", err))
		}
		cfg.Executable = exe
	}
	return cfg, errors.Join(errs...)
}

// ErrNoMain means that this program never called Main or RunMember, so that its members would run
// the program itself once more.
var ErrNoMain = errors.New("cluster: call cluster.Main from TestMain, or cluster.RunMember first in main")

// A Cluster is a running etcd cluster. Members are numbered from 0.
type Cluster struct {
	cfg     Config
	dir     string
	ownsDir bool
	spawner *spawner
	members []*member
	peers   *peerNet
	shared  *ClientProxy // behind the advertised client URLs

	mu      sync.Mutex
	proxies []*ClientProxy // guarded by mu; shared is the first
	saved   int            // guarded by mu: states saved so far
	resets  int            // guarded by mu: clusters thrown away so far
	stoodAt int            // guarded by mu: the entry and the term at which the log was last seen to stand still
	stoodIn uint64

	closeOnce sync.Once
	closed    chan struct{}
	stopAfter func() bool // detaches the cluster from its context
	keepDir   bool        // set before Close by New
}

// Start starts a cluster and waits until it serves. The cluster ends when ctx does, or on Close.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, dir: cfg.Dir, closed: make(chan struct{}), stopAfter: func() bool { return true }}
	if err := c.prepare(); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		err = fmt.Errorf("%w%s", err, c.logTails())
		c.Close()
		return nil, err
	}
	c.stopAfter = context.AfterFunc(ctx, c.Close)
	return c, nil
}

// New starts a cluster for a test and ends it with the test. When the test has failed, the ends of
// the members' logs go to the test's log, and a temporary directory is kept.
func New(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	c, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.keepDir = true
			t.Logf("cluster: data is kept in %s%s", c.dir, c.logTails())
		}
		c.Close()
	})
	return c
}

// prepare makes the directory, the proxies and the members' settings; nothing runs yet.
func (c *Cluster) prepare() error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "etcd-cluster-")
		if err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
		c.dir, c.ownsDir = dir, true
	}
	c.spawner = newSpawner()
	for i := range c.cfg.Members {
		m, err := newMember(c, i)
		if err != nil {
			return err
		}
		if _, err := os.Stat(m.dataDir()); err == nil && c.cfg.Members > 1 {
			return fmt.Errorf("cluster: %s has the data of an earlier cluster, whose members know each other by other URLs", m.dataDir())
		}
		c.members = append(c.members, m)
	}
	var err error
	if c.peers, err = newPeerNet(c.members); err != nil {
		return err
	}
	if c.shared, err = c.addProxy(); err != nil {
		return err
	}
	return nil
}

// startAll starts every member that does not run, and waits until all serve.
func (c *Cluster) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	if err := c.each(func(m *member) error { return m.start(ctx) }); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// each runs f for all members at once and joins the errors.
func (c *Cluster) each(f func(*member) error) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close kills the members, closes the proxies and removes a temporary directory. It may be called
// more than once, and returns when everything has ended.
func (c *Cluster) Close() {
	c.closeOnce.Do(func() {
		close(c.closed)
		c.stopAfter()
		_ = c.each(func(m *member) error { return m.kill() })
		c.mu.Lock()
		proxies := c.proxies
		c.proxies = nil
		c.mu.Unlock()
		for _, p := range proxies {
			p.Close()
		}
		if c.peers != nil {
			c.peers.close()
		}
		if c.spawner != nil {
			c.spawner.close()
		}
		if c.ownsDir && !c.keepDir {
			_ = os.RemoveAll(c.dir)
		}
	})
}

// Members returns how many members the cluster has, running or not.
func (c *Cluster) Members() int { return len(c.members) }

// Dir returns the directory that holds a directory per member: its data and its log.
func (c *Cluster) Dir() string { return c.dir }

// Endpoints returns the client URLs, one per member, in the members' order. They are also the URLs that the
// members advertise, and every client that uses them shares one ClientProxy.
func (c *Cluster) Endpoints() []string { return c.shared.Endpoints() }

// MemberEndpoint returns the client URL of member i.
func (c *Cluster) MemberEndpoint(i int) string { return c.shared.Endpoints()[i] }

// token tells this cluster from those that Reset threw away; etcd derives the cluster's id from it.
func (c *Cluster) token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%s-%d", filepath.Base(c.dir), c.resets)
}

// initialCluster is etcd's list of all peer URLs.
func (c *Cluster) initialCluster() string {
	entries := make([]string, len(c.members))
	for i, m := range c.members {
		entries[i] = m.name + "=" + c.peers.url(i)
	}
	return strings.Join(entries, ",")
}

// logTails is the end of each member's log, for a failure's message.
func (c *Cluster) logTails() string {
	var b strings.Builder
	for _, m := range c.members {
		if tail := m.logTail(); tail != "" {
			fmt.Fprintf(&b, "\nmember %d (%s):\n%s", m.index, m.logFile(), tail)
		}
	}
	return b.String()
}
