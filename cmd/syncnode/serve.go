package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/embedded"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/relay"
	relaydir "github.com/syncnode/syncnode/relay/dir"
	relayetcd "github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/session"
)

// serveFlags are those of a node.
type serveFlags struct {
	backendFlags
	relay     string
	pumpEvery time.Duration
	relayMax  int64
	member    embedded.Member
	start     time.Duration
}

const serveLong = `serve keeps this device going: it exchanges the device's log with its peers through the relay, and brings into
the ledger what earlier processes of the device left open. It ends in good order on TERM or INT, with code 0.

Commands that exec runs on the same data directory are pumped too; both may work at once.

With --member-name and --member-cluster it is also one member of an etcd cluster that the nodes form among
themselves. The flags mean what etcd's --name, --initial-cluster, --listen-peer-urls and --listen-client-urls
mean. Such a cluster speaks plain HTTP: keep it on a network of its own. The node then uses its own member, or
the --endpoints that are given. So do commands on the same data directory; those of other data directories need
--endpoints.

One serve at a time works on a device and a ledger. A second TERM or INT ends it at once.`

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "keep this device's log in step with its peers, and settle what was left open", Long: serveLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *serveFlags) register(flags *pflag.FlagSet) {
	f.backendFlags.register(flags)
	flags.StringVar(&f.relay, "relay", "etcd", "the `PLACE` where peers meet: etcd, dir:PATH (a shared or synchronised folder) or none")
	flags.DurationVar(&f.pumpEvery, "pump-every", node.DefaultPumpEvery, "how often to look at the relay; news is fetched sooner")
	flags.Int64Var(&f.relayMax, "relay-max-bytes", relayetcd.DefaultMaxBytes, "the `BYTES` of op lines that the relay may hold in etcd")
	flags.StringVar(&f.member.Name, "member-name", "", "be the member of this `NAME` of an etcd cluster")
	flags.StringVar(&f.member.Cluster, "member-cluster", "", "all members, as `NAME=URL,…`")
	flags.StringVar(&f.member.PeerListen, "member-peer-listen", "", "the `URL` to listen on for other members; its own in the list if not given")
	flags.StringVar(&f.member.ClientListen, "member-client-listen", "", "the `URL` to listen on for clients (http://127.0.0.1:2379)")
	flags.DurationVar(&f.start, "member-timeout", 2*time.Minute, "how long to wait for a quorum of members")
}

// relayDir is the folder of --relay dir:PATH; empty if it is another relay.
func (f *serveFlags) relayDir() string {
	path, _ := strings.CutPrefix(f.relay, "dir:")
	if path == f.relay {
		return ""
	}
	return path
}

func (f *serveFlags) check() error {
	switch {
	case f.relay != "etcd" && f.relay != "none" && f.relayDir() == "":
		return usagef("--relay %q: want etcd, dir:PATH or none", f.relay)
	case (f.member.Name == "") != (f.member.Cluster == ""):
		return usagef("--member-name and --member-cluster belong together")
	case f.pumpEvery <= 0 || f.relayMax <= 0 || f.start <= 0:
		return usagef("--pump-every, --relay-max-bytes and --member-timeout must be above 0")
	}
	return f.backendFlags.check()
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does what it does by default
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if f.member.Name != "" {
		server, err := f.join(ctx)
		if err != nil {
			return unlessAsked(ctx, err)
		}
		defer server.Close()
		go f.watch(ctx, server, fail)
		log.Info("member of the etcd cluster", "name", f.member.Name, "endpoint", server.Endpoint())
		if len(f.endpoints) == 0 {
			f.endpoints = []string{server.Endpoint()}
		}
	}
	if len(f.endpoints) == 0 {
		log.Warn("the embedded etcd serves one process at a time: commands on this data directory wait while it is served; with --endpoints, or --member-name and --member-cluster, both work at once")
	}
	return unlessAsked(ctx, f.serve(ctx, log))
}

// unlessAsked leaves out what failed because the process was told to end.
func unlessAsked(ctx context.Context, err error) error {
	var broken *memberError
	switch {
	case errors.As(context.Cause(ctx), &broken):
		return broken
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil
	}
	return err
}

// serve works until ctx ends.
func (f *serveFlags) serve(ctx context.Context, log *slog.Logger) error {
	be, err := f.open(ctx, use{agent: "serve", write: true, wait: defaultBusyWait})
	if err != nil {
		return err
	}
	defer be.close()
	only, err := f.claim(be)
	if err != nil {
		return err
	}
	defer only.Close()
	n, err := f.node(ctx, be, log)
	if err != nil {
		return err
	}
	log.Info("serving", "device", be.device, "namespace", f.namespace, "generation", be.coordinator.Generation(), "data_dir", be.dir)
	return n.Run(ctx)
}

// claim makes this the only serve of the device on this ledger, for as long as the file is open.
func (f *serveFlags) claim(be *backend) (*os.File, error) {
	dir := identity.OpenClusters(be.dir).Dir(f.namespace, be.coordinator.Generation())
	file, err := os.OpenFile(filepath.Join(dir, be.device, "serve.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 20)
		n, _ := file.ReadAt(pid, 0)
		file.Close()
		return nil, fmt.Errorf("device %s is served already from %s, by pid %s", be.device, be.dir, bytes.TrimSpace(pid[:n]))
	}
	if err := file.Truncate(0); err == nil {
		fmt.Fprintln(file, os.Getpid()) // for people only
	}
	return file, nil
}

// A memberError says why the member of the cluster in this process ended by itself.
type memberError struct{ err error }

func (e *memberError) Error() string {
	return fmt.Sprintf("the etcd member in this process ended: %v; start the node again", e.err)
}
func (e *memberError) Unwrap() error { return e.err }

// watch ends the node when its member does: another process has to go on.
func (f *serveFlags) watch(ctx context.Context, server *embedded.Server, fail context.CancelCauseFunc) {
	select {
	case err := <-server.Err():
		fail(&memberError{err})
	case <-ctx.Done():
	}
}

func (f *serveFlags) join(ctx context.Context) (*embedded.Server, error) {
	f.member.Dir = filepath.Join(f.dataDir, "member")
	ctx, cancel := context.WithTimeout(ctx, f.start)
	defer cancel()
	return embedded.Join(ctx, f.member)
}

// node wires the session, the relay and the dispatcher's settling.
func (f *serveFlags) node(ctx context.Context, be *backend, log *slog.Logger) (*node.Node, error) {
	s, err := session.Open(ctx, session.Config{
		Device: be.device, Journal: be.book.Journal(), Coordinator: holder{be.coordinator}, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	d, err := be.dispatcher()
	if err != nil {
		return nil, err
	}
	relays := map[string]relay.Relay{}
	if path := f.relayDir(); path != "" {
		r, err := relaydir.Open(relaydir.Config{Path: path})
		if err != nil {
			return nil, err
		}
		relays["dir"] = r // for as long as the process lives
	}
	if f.relay == "etcd" {
		open, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("%s did not answer within %s", be.where, f.timeout))
		defer cancel()
		r, err := relayetcd.Open(open, relayetcd.Config{Client: be.client, Namespace: f.namespace, MaxBytes: f.relayMax})
		if err != nil {
			return nil, causeOf(open, err)
		}
		relays["etcd"] = r
	}
	return node.New(node.Config{
		Device: be.device, Session: s, Settler: d, Leases: be.coordinator, Runs: be.coordinator, Relays: relays, PumpEvery: f.pumpEvery, Logger: log,
		// The journal cannot be used again in this process after a sync failed.
		Fatal: func(err error) bool { return errors.Is(err, journal.ErrPoisoned) },
	})
}

// holder shows a session what it needs of a coordinator.
type holder struct{ leases coord.LeaseCoordinator }

// Current implements session.Holder.
func (h holder) Current(ctx context.Context, agent string) (string, uint64, bool, error) {
	l, held, err := h.leases.Current(ctx, agent)
	return l.Device, uint64(l.Epoch), held, err
}
