// Package embedded runs one etcd member inside the process, in a directory of its own, for a program
// that was given no endpoints.
//
// # Guarantees
//
// One process at a time serves a directory: it holds the directory's lock for as long as it lives.
// Whoever takes the lock has proved every earlier process of the directory dead, and revokes all etcd
// leases before it hands out the endpoint: a member that starts refreshes every lease in full, so a dead
// holder would otherwise seem alive again. What etcd acknowledged was fsynced.
//
// It is for trying things and for one job at a time on one host. It is not a cluster: nothing survives
// the loss of the disk, and only one process works with it at once.
//
// # Failure
//
// A directory that another process serves gives a *BusyError, after the wait that the caller allowed.
// Nothing was changed then.
//
// # Concurrency
//
// A Server is closed once; its endpoint may be used by any number of clients of the same user.
package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/internal/durable"
)

// ErrBusy means that another process serves the directory.
var ErrBusy = errors.New("embedded etcd: directory is busy")

// A BusyError tells who serves the directory. It matches ErrBusy.
type BusyError struct {
	Dir   string
	Owner Owner
}

func (e *BusyError) Error() string {
	if e.Owner.PID == 0 {
		return fmt.Sprintf("the embedded etcd in %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("the embedded etcd in %s is in use by pid %d (agent %q) since %s",
		e.Dir, e.Owner.PID, e.Owner.Agent, e.Owner.Since.UTC().Format(time.RFC3339))
}

// Is makes the error match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// An Owner is what the process that serves a directory says about itself.
type Owner struct {
	PID      int       `json:"pid"`
	Agent    string    `json:"agent,omitempty"`
	Since    time.Time `json:"since"`
	Endpoint string    `json:"endpoint,omitempty"`
}

// Config says where and for whom.
type Config struct {
	// Dir is the member's own directory; it gets mode 0700.
	Dir string
	// Agent is shown to others who find the directory busy.
	Agent string
	// Wait is how long to wait for a busy directory; 0 fails at once.
	Wait time.Duration
	// Busy, unless it is nil, is told once who is waited for, when the directory has been busy for Patience.
	Busy func(*BusyError)
}

// Patience is how long a wait may be until it is told.
const Patience = 2 * time.Second

// A Server is a running member.
type Server struct {
	dir      string
	lock     *os.File
	etcd     *embed.Etcd
	socket   string // empty for a member of a cluster
	endpoint string
}

// Endpoint is for an etcd client on this host.
func (s *Server) Endpoint() string { return s.endpoint }

// Err gives the error that ended the member, if one does.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Open takes the directory, starts the member and revokes what earlier processes left. It returns when
// the member serves.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	// Whoever may enter could speak to the member without any further question.
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	lock, err := takeLock(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: cfg.Dir, lock: lock}
	// Nobody takes it for what a dead process said that served here before.
	if err := s.sign(Owner{PID: os.Getpid(), Agent: cfg.Agent, Since: time.Now()}); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.start(ctx, cfg.Agent); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// longestStart is how long a member may take until it serves: more than any log that this directory gathers.
const longestStart = time.Minute

func (s *Server) start(ctx context.Context, agent string) error {
	socket, err := socketPath(s.dir)
	if err != nil {
		return err
	}
	s.socket, s.endpoint = socket, "unix://"+socket
	if err := s.prepare(); err != nil {
		return fmt.Errorf("embedded etcd in %s: %w", s.dir, err)
	}
	if s.etcd, err = embed.StartEtcd(s.config()); err != nil {
		return fmt.Errorf("embedded etcd in %s: %w", s.dir, err)
	}
	slow, cancel := context.WithTimeoutCause(ctx, longestStart,
		fmt.Errorf("nothing within %s: it may be damaged, and etcd.log there may say how; put a backup back, or use another data directory", longestStart))
	defer cancel()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		return fmt.Errorf("embedded etcd in %s: %w", s.dir, err)
	case <-slow.Done():
		return fmt.Errorf("embedded etcd in %s did not become ready: %w", s.dir, context.Cause(slow))
	}
	if err := s.made(); err != nil {
		return fmt.Errorf("embedded etcd in %s: %w", s.dir, err)
	}
	if err := revokeAll(ctx, s.Endpoint()); err != nil {
		return err
	}
	return s.sign(Owner{PID: os.Getpid(), Agent: agent, Since: time.Now(), Endpoint: s.Endpoint()})
}

// unmade lies in the directory until its member has served for the first time.
const unmade = "unmade"

// prepare clears away a member whose first start was cut short: etcd starts it again without any member in its cluster, and it would
// never serve. Nothing was ever asked of it, since nobody learns of a member before it has served.
func (s *Server) prepare() error {
	mark, member := filepath.Join(s.dir, unmade), filepath.Join(s.dir, "member")
	_, err := os.Stat(mark)
	switch {
	case err == nil:
		return os.RemoveAll(member)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.Write(mark, nil, 0o600)
}

// made says that the member has served. It is durable before anything is asked of it.
func (s *Server) made() error {
	if err := os.Remove(filepath.Join(s.dir, unmade)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(s.dir)
}

func (s *Server) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "embedded"
	cfg.Dir = filepath.Join(s.dir, "member")
	client := url.URL{Scheme: "unix", Path: s.socket}
	peer := url.URL{Scheme: "unix", Path: s.socket + ".peer"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	// Nobody is to reach it as a peer. Etcd would listen on an abstract socket, which every local user may
	// enter, and could not close it where the working directory's file system is read-only.
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	// A single member has nobody to wait for: short ticks only make it ready sooner.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.EnableGRPCGateway = false
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "revision", "10000"
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{filepath.Join(s.dir, "etcd.log")}
	return cfg
}

// Close stops the member and gives the directory back.
func (s *Server) Close() {
	if s.etcd != nil {
		select {
		case <-s.etcd.Server.ReadyNotify():
		default:
			s.etcd.Server.HardStop() // Close waits for a server that is ready or stopped
		}
		s.etcd.Close()
	}
	if s.socket != "" {
		os.Remove(s.socket)
		os.Remove(s.socket + ".peer")
		if filepath.Dir(s.socket) != s.dir {
			os.Remove(filepath.Dir(s.socket))
		}
	}
	s.lock.Truncate(0)
	s.lock.Close()
}

// revokeAll ends every etcd lease: their processes are dead, since the directory's lock was free.
func revokeAll(ctx context.Context, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Context: ctx})
	if err != nil {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leases, err := client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("embedded etcd: list the leases of earlier processes: %w", err)
	}
	for _, l := range leases.Leases {
		if _, err := client.Revoke(ctx, l.ID); err != nil {
			return fmt.Errorf("embedded etcd: revoke the lease of an earlier process: %w", err)
		}
	}
	return nil
}

// sign writes who serves the directory into the lock file, for people and for readers who want to attach.
func (s *Server) sign(o Owner) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	if _, err := s.lock.WriteAt(append(line, '\n'), 0); err != nil {
		return fmt.Errorf("embedded etcd: %w", err)
	}
	return nil
}

// maxSocket is what the kernel takes as a unix socket's path, less room for ".peer".
const maxSocket = 107 - len(".peer")

// socketPath is in the directory itself or, where that would be too long for the kernel, in a 0700
// directory of its own under the system's temporary one.
func socketPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("embedded etcd: %w", err)
	}
	path := filepath.Join(dir, "sock")
	if len(path) > maxSocket {
		short, err := os.MkdirTemp("", "syncnode-")
		if err != nil {
			return "", fmt.Errorf("embedded etcd: %w", err)
		}
		path = filepath.Join(short, "sock")
	}
	// Leftovers of a killed process; the lock proves that nobody listens.
	os.Remove(path)
	os.Remove(path + ".peer")
	return path, nil
}

// takeLock waits for the directory's lock.
func takeLock(ctx context.Context, cfg Config) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(cfg.Dir, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	deadline := time.NewTimer(cfg.Wait)
	defer deadline.Stop()
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("embedded etcd: lock %s: %w", f.Name(), err)
		}
		select {
		case <-time.After(pause):
		case <-patience.C:
			if cfg.Busy != nil {
				owner, _ := readOwner(f)
				cfg.Busy(&BusyError{Dir: cfg.Dir, Owner: owner})
			}
		case <-deadline.C:
			owner, _ := readOwner(f)
			f.Close()
			return nil, &BusyError{Dir: cfg.Dir, Owner: owner}
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("embedded etcd: waiting for %s: %w", cfg.Dir, context.Cause(ctx))
		}
	}
}

// FindOwner reads who serves a directory. False if nobody says so.
func FindOwner(dir string) (Owner, bool) {
	f, err := os.Open(filepath.Join(dir, "LOCK"))
	if err != nil {
		return Owner{}, false
	}
	defer f.Close()
	return readOwner(f)
}

func readOwner(f *os.File) (Owner, bool) {
	var o Owner
	buf := make([]byte, 4096)
	n, _ := f.ReadAt(buf, 0)
	if json.Unmarshal(buf[:n], &o) != nil || o.PID == 0 {
		return Owner{}, false
	}
	return o, true
}
