package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/embedded"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/proc"
)

// use says what a backend is opened for.
type use struct {
	agent string        // shown to others who find the embedded directory busy
	write bool          // a device with an identity and a journal
	dir   bool          // the data directory, though no device
	there bool          // the ledger has to be there: none is made, and no data directory for it
	long  bool          // the verb bounds its own questions
	wait  time.Duration // for a busy embedded directory
	busy  func(string)  // told once when that wait is not short; nil tells nobody
}

// tell says who is waited for.
func (u use) tell(busy *embedded.BusyError) {
	if u.busy != nil {
		u.busy(fmt.Sprintf("%v; waiting for it", busy))
	}
}

// A backend is the ledger and this device, wired together for one process.
type backend struct {
	flags       *backendFlags
	where       string // for messages: the endpoints, or the embedded etcd
	embedded    *embedded.Server
	client      *clientv3.Client
	coordinator *etcd.Coordinator
	lock        *proc.Lock // nil without a data directory, or for a verb that only reads
	boot, dir   string
	device      string
	local       *device    // nil without a journal
	book        *book.Book // that of local
	left        bool
}

// open wires a backend. On an error nothing was run and nothing is left behind.
func (f *backendFlags) open(ctx context.Context, u use) (*backend, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if u.write {
		outliveReaders()
	}
	be := &backend{flags: f}
	if err := be.open(ctx, u); err != nil {
		be.close()
		return nil, err
	}
	return be, nil
}

func (be *backend) open(ctx context.Context, u use) error {
	f := be.flags
	if u.there && len(f.endpoints) == 0 {
		if err := f.hasOwnLedger(); err != nil {
			return err
		}
	}
	if u.write || u.dir || len(f.endpoints) == 0 {
		if err := be.makeDataDir(); err != nil {
			return err
		}
	}
	if err := be.findMember(); err != nil {
		return err
	}
	endpoints := f.endpoints
	be.where = "etcd " + strings.Join(endpoints, ",")
	if len(endpoints) == 0 {
		endpoint, err := be.openEmbedded(ctx, u)
		if err != nil {
			return err
		}
		endpoints = []string{endpoint}
	}
	silent := fmt.Errorf("%s did not answer within %s (--backend-timeout)", be.where, f.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, silent)
	defer cancel()
	if err := be.connect(ctx, endpoints, u.there); err != nil {
		return causeOf(ctx, err)
	}
	if !u.write {
		return nil
	}
	return causeOf(ctx, be.openDevice(ctx))
}

// causeOf puts the reason before an error that came of a context's end.
func causeOf(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

func (be *backend) makeDataDir() error {
	if be.flags.dataDir == "" {
		return errNoHome
	}
	if err := os.MkdirAll(be.flags.dataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	dir, err := proc.Canonical(be.flags.dataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	be.dir, be.boot = dir, proc.BootID()
	return nil
}

// findMember makes a verb without endpoints use the etcd member that serve runs on this data directory: an embedded
// etcd of its own beside it would be another ledger.
func (be *backend) findMember() error {
	if len(be.flags.endpoints) > 0 {
		return nil
	}
	dir := filepath.Join(be.dir, "member")
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	owner, ok := embedded.FindOwner(dir)
	if !ok || owner.Endpoint == "" {
		return fmt.Errorf("%s belongs to a member of an etcd cluster that does not run now: start syncnode serve there, or give --endpoints", be.dir)
	}
	be.flags.endpoints = []string{owner.Endpoint}
	return nil
}

// openEmbedded starts the etcd in the data directory. A verb that only looks uses that of a living process, once it serves.
func (be *backend) openEmbedded(ctx context.Context, u use) (string, error) {
	cfg := embedded.Config{Dir: filepath.Join(be.dir, "embedded", be.flags.namespace), Agent: u.agent, Wait: u.wait, Busy: u.tell}
	be.where = "the embedded etcd in " + cfg.Dir
	if u.write {
		return be.startEmbedded(ctx, cfg)
	}
	cfg.Wait = 0
	for began, told := time.Now(), false; ; {
		endpoint, err := be.startEmbedded(ctx, cfg)
		busy, is := errors.AsType[*embedded.BusyError](err)
		switch waited := time.Since(began); {
		case is && busy.Owner.Endpoint != "":
			return busy.Owner.Endpoint, nil
		case !is, waited > u.wait, !pause(ctx, 50*time.Millisecond):
			return endpoint, err
		case !told && waited > embedded.Patience:
			u.tell(busy)
			told = true
		}
	}
}

func (be *backend) startEmbedded(ctx context.Context, cfg embedded.Config) (endpoint string, err error) {
	if be.embedded, err = embedded.Open(ctx, cfg); err != nil {
		return "", err
	}
	return be.embedded.Endpoint(), nil
}

// connect opens the ledger; there: only if it is there.
func (be *backend) connect(ctx context.Context, endpoints []string, there bool) error {
	dial, err := be.flags.dial(endpoints)
	if err != nil {
		return err
	}
	if be.client, err = etcd.Dial(ctx, dial); err != nil {
		return err
	}
	if there {
		err = be.hasLedger(ctx)
	}
	if err == nil {
		host, _ := os.Hostname()
		be.coordinator, err = etcd.Open(ctx, etcd.Config{
			Client: be.client, Namespace: be.flags.namespace, Dead: be.dead, Logger: logger(be.flags.log),
			Process: coord.Process{Host: host, Boot: be.boot, Dir: be.dir, PID: os.Getpid()},
		})
	}
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("%w: %s", err, be.flags.permission())
	}
	return err
}

// dead proves that a process of this data directory is dead, by the lock file that it held for life.
func (be *backend) dead(liveness string, p coord.Process) bool {
	id, _, _ := strings.Cut(liveness, "-")
	return be.dir != "" && p.Dir == be.dir && p.Boot == be.boot && proc.Dead(be.dir, id, p.Boot)
}

// openDevice makes this process a part of the device: identity, lifetime lock, journal.
func (be *backend) openDevice(ctx context.Context) error {
	f := be.flags
	var err error
	if be.lock, err = proc.Open(be.dir, be.coordinator.Liveness()); err != nil {
		return err
	}
	if f.noJournal {
		be.device = podDevice(f.deviceID)
		return nil
	}
	clusters := identity.OpenClusters(be.dir)
	generation := be.coordinator.Generation()
	if err := clusters.Bind(f.namespace, be.endpointNames(), generation); err != nil {
		return err
	}
	return be.openLocal(ctx, func(notice string) { fmt.Fprintf(os.Stderr, "syncnode: %s\n", notice) })
}

// openLocal opens the device, or what it became since it was opened.
func (be *backend) openLocal(ctx context.Context, notice func(string)) error {
	f := be.flags
	if be.book != nil {
		be.book.Close()
		be.book = nil
	}
	blank := device{dataDir: be.dir, dir: identity.OpenClusters(be.dir).Dir(f.namespace, be.coordinator.Generation()), segment: f.segment, log: f.log, seal: f.seal.opener(be.dir)}
	d, err := openDevice(ctx, blank, f.deviceID, notice)
	if err != nil {
		return err
	}
	be.local, be.device, be.book = d, d.name, d.book
	return nil
}

// endpointNames are how the data directory remembers which cluster this is.
func (be *backend) endpointNames() []string {
	if len(be.flags.endpoints) == 0 {
		return []string{"embedded"}
	}
	return be.flags.endpoints
}

// podDevice names what has no disk: it holds leases and has no log.
func podDevice(given string) string {
	if given != "" {
		return "pod." + given
	}
	host, _ := os.Hostname()
	legal := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '.' || r == '_' || ident.Check("host", string(r)) == nil) {
			return r
		}
		return -1
	}, host)
	return "pod." + legal[:min(len(legal), 64)] + "." + coord.NewNonce()[:8]
}

// dispatcher is the path of runs over this backend; ended, if not nil, is told each result.
func (be *backend) dispatcher(ended func(dispatch.Job, dispatch.Result, time.Duration)) (*dispatch.Dispatcher, error) {
	cfg := dispatch.Config{
		Coordinator: be.coordinator, Device: be.device, Dead: be.dead, Logger: logger(be.flags.log), BackendTimeout: be.flags.timeout, Ended: ended,
	}
	if be.book != nil {
		cfg.Book = be.book
	}
	return dispatch.New(cfg)
}

// floor is the highest epoch of an agent that this device knows of.
func (be *backend) floor(ctx context.Context, agent string) (coord.Epoch, error) {
	if be.book == nil {
		return 0, nil
	}
	s, err := be.book.Standing(ctx, agent, "")
	return s.Floor, err
}

// granted notes a grant in the journal.
func (be *backend) granted(ctx context.Context, l coord.Lease) error {
	if be.book == nil {
		return nil
	}
	return be.book.Granted(ctx, l.Agent, l.Epoch)
}

// leave makes close leave the liveness of this process to run out, and its lock file to prove its death.
func (be *backend) leave() { be.left = true }

// closeTime bounds how long leaving in good order may take; what is not given back runs out by itself.
const closeTime = 3 * time.Second

// close gives everything back. It may be called on a half-open backend.
func (be *backend) close() {
	if be.book != nil {
		be.book.Close()
	}
	if be.coordinator != nil && !be.left {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		be.coordinator.Close(ctx)
		cancel()
	}
	if be.lock != nil && !be.left {
		be.lock.Close()
	}
	if be.client != nil {
		be.client.Close()
	}
	if be.embedded != nil {
		be.embedded.Close()
	}
}

func isBusy(err error) bool { return errors.Is(err, embedded.ErrBusy) }
