package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/embedded"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/config"
)

// serveFlags are those of a node.
type serveFlags struct {
	backendFlags
	api        listenFlags
	places     placesFlags
	logging    loggingFlags
	pumpEvery  time.Duration
	checkpoint int
	member     embedded.Member
	config     string
	start      time.Duration
	started    bool // it came to serving
}

const serveLong = `serve keeps this device going: it exchanges the device's log with its peers through the relay, and brings into
the ledger what earlier processes of the device left open. It ends in good order on TERM or INT, with code 0.

It answers on a unix socket in the data directory, or where --listen says: programs claim runs there, see what
is going on, and decide. See the section The API in docs/operations.md.

Commands that exec runs on the same data directory are pumped too; both may work at once.

With --member-name and --member-cluster it is also one member of an etcd cluster that the nodes form among
themselves. The flags mean what etcd's --name, --initial-cluster, --listen-peer-urls and --listen-client-urls
mean. Such a cluster speaks plain HTTP: keep it on a network of its own. The node then uses its own member, or
the --endpoints that are given. So do commands on the same data directory; those of other data directories need
--endpoints.

With --config it runs the agents of a file by their schedules, and shares them with the other nodes that have the same
agents; see syncnode config. HUP reads the file again: with mistakes in it the one of before goes on. When the node is told to
end, what runs has the file's drain to end by itself.

The log stays bounded: every --checkpoint-every ops what all replicas have goes into a checkpoint, and is dropped
here and from the relay. A device that was restored from a backup, or copied, gets a new id by itself; it says so
once, and what no relay has is written again under the new id.

With --seal the payloads of a scope, and checkpoints, leave the device sealed with the newest key of --seal-keys, so that
the relay keeps what it cannot read. Runs stay readable. Without the key a node holds and passes on what it cannot open,
and goes on when the key file comes; see syncnode key.

With --no-journal it keeps nothing on this disk, and the ledger is the only record: for a sidecar in a pod. It needs --endpoints and
--listen, uses no --data-dir, has no relay and no schedules, and is in no list of nodes. It answers from its first moment, also
while etcd is away. Its device is gone with the process, and what was begun and not ended then is in doubt; with --device-id the next process
of the same name takes an end that is told late.

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
	f.registerSegment(flags)
	f.registerNoJournal(flags)
	f.seal.register(flags)
	f.api.register(flags)
	f.places.register(flags)
	f.logging.register(flags)
	flags.StringVar(&f.config, "config", "", "`FILE` that says what this node runs, see syncnode config; HUP reads it again")
	flags.DurationVar(&f.pumpEvery, "pump-every", node.DefaultPumpEvery, "how often to look at the relay; news is fetched sooner, and given sooner")
	flags.IntVar(&f.checkpoint, "checkpoint-every", node.DefaultCheckpointEvery, "take or make a checkpoint, and drop what it covers, once so many `OPS` are in none; 0: never")
	flags.StringVar(&f.member.Name, "member-name", "", "be the member of this `NAME` of an etcd cluster")
	flags.StringVar(&f.member.Cluster, "member-cluster", "", "all members, as `NAME=URL,…`")
	flags.StringVar(&f.member.PeerListen, "member-peer-listen", "", "the `URL` to listen on for other members; its own in the list if not given")
	flags.StringVar(&f.member.ClientListen, "member-client-listen", "", "the `URL` to listen on for clients (http://127.0.0.1:2379)")
	flags.DurationVar(&f.start, "member-timeout", 2*time.Minute, "how long to wait for a quorum of members")
}

func (f *serveFlags) check() error {
	switch {
	case (f.member.Name == "") != (f.member.Cluster == ""):
		return usagef("--member-name and --member-cluster belong together")
	case f.pumpEvery <= 0 || f.places.max <= 0 || f.start <= 0:
		return usagef("--pump-every, --relay-max-bytes and --member-timeout must be above 0")
	case f.checkpoint < 0:
		return usagef("--checkpoint-every %d: must not be below 0", f.checkpoint)
	}
	if err := f.places.check(); err != nil {
		return err
	}
	if err := f.api.check(); err != nil {
		return err
	}
	if err := f.logging.check(); err != nil {
		return err
	}
	return f.backendFlags.check()
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.checkDiskless(cmd.Flags()); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	conf, err := f.configured(cmd)
	if err != nil {
		return notStarted(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does what it does by default
	defer reaping()()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	log, err := f.logging.open(os.Stderr)
	if err != nil {
		return err
	}
	f.log = log
	door, err := f.api.open(f.dataDir, log, fail)
	if err != nil {
		return notStarted(err)
	}
	conf.log = log
	err = f.behind(ctx, door, conf, fail)
	if !f.started {
		err = notStarted(err)
	}
	return errors.Join(err, door.close())
}

// notStarted says of what ended a serve that it did not come to serving.
func notStarted(err error) error {
	exit, ok := errors.AsType[*exitError](err)
	switch {
	case err == nil, ok && exit.err == nil:
		return err
	case ok:
		return &exitError{exit.code, notStarted(exit.err)}
	}
	return fmt.Errorf("%w; nothing was started", err)
}

// configured reads the configuration, before anything else is done.
func (f *serveFlags) configured(cmd *cobra.Command) (*configured, error) {
	c := &configured{path: f.config}
	if f.config == "" {
		none := config.Defaults()
		c.file = &none
		return c, nil
	}
	var err error
	c.file, err = loadConfig(cmd, f.config)
	return c, err
}

// behind is all that stands behind the API.
func (f *serveFlags) behind(ctx context.Context, door *door, conf *configured, fail context.CancelCauseFunc) error {
	log := conf.log
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
		log.Warn("the embedded etcd serves one process at a time: exec, agent and run go through this node, other verbs that write wait while it serves; with --endpoints, or --member-name and --member-cluster, all work at once")
	}
	if f.noJournal {
		return unlessAsked(ctx, f.serveDiskless(ctx, door, conf))
	}
	return unlessAsked(ctx, f.serve(ctx, door, conf))
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
	server, err := embedded.Join(ctx, f.member)
	if used, ok := errors.AsType[*embedded.InUseError](err); ok {
		flag := "--member-client-listen"
		if used.Peers {
			flag = "--member-peer-listen"
		}
		return nil, fmt.Errorf("%w: end what listens there, or give another %s", err, flag)
	}
	return server, err
}
