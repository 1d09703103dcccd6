package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/dispatch"
)

// backendFlags say where the ledger is and who this device is.
type backendFlags struct {
	namespace, dataDir, deviceID string
	endpoints                    []string
	cacert, cert, key            string
	user, passwordFile           string
	noJournal                    bool
	segment                      int64
	seal                         sealFlags
	timeout                      time.Duration
	log                          *slog.Logger // of a node; nil: the few lines that a verb writes
}

// register adds the flags of every verb that asks the ledger; etcd's have etcdctl's names.
func (f *backendFlags) register(flags *pflag.FlagSet) {
	registerNamespace(flags, &f.namespace)
	flags.StringSliceVar(&f.endpoints, "endpoints", nil, "`URLS` of the etcd to use; without it, one of our own in the data directory")
	flags.StringVar(&f.cacert, "cacert", "", "`FILE` with the certificates that etcd's own must be signed by")
	flags.StringVar(&f.cert, "cert", "", "`FILE` with our certificate for etcd")
	flags.StringVar(&f.key, "key", "", "`FILE` with the key of --cert")
	flags.StringVar(&f.user, "user", "", "etcd user `NAME`; its password is in --password-file")
	flags.StringVar(&f.passwordFile, "password-file", "", "`FILE` with the password of --user")
	registerDataDir(flags, &f.dataDir)
	flags.StringVar(&f.deviceID, "device-id", "", "the `ID` of this device; the data directory's own if not given")
	registerTimeout(flags, &f.timeout)
}

func registerTimeout(flags *pflag.FlagSet, timeout *time.Duration) {
	flags.DurationVar(timeout, "backend-timeout", dispatch.DefaultBackendTimeout, "how long a silent etcd is waited for before anything starts; also a busy one in the data directory, but by exec and serve")
}

// registerExec adds those that only exec has.
func (f *backendFlags) registerExec(flags *pflag.FlagSet) {
	f.register(flags)
	f.registerSegment(flags)
	f.registerNoJournal(flags)
	f.seal.register(flags)
}

func (f *backendFlags) registerNoJournal(flags *pflag.FlagSet) {
	flags.BoolVar(&f.noJournal, "no-journal", false, "keep nothing on this disk: the ledger is the only record (for pods)")
}

// registerSegment is for the verbs that write much.
func (f *backendFlags) registerSegment(flags *pflag.FlagSet) {
	flags.Int64Var(&f.segment, "segment-bytes", 0, "the `BYTES` from which on the journal begins a new segment (16 MiB); a checkpoint drops whole segments")
}

func registerDataDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "data-dir", defaultDataDir(), "`DIR` of this device's identity and journals")
}

func defaultDataDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "syncnode")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "syncnode")
}

var errNoHome = usagef("no home directory: give --data-dir DIR")

func (f *backendFlags) check() error {
	switch {
	case f.dataDir == "" && !f.noJournal:
		return errNoHome
	case strings.Contains(f.user, ":"):
		return usagef("--user takes no password: put it into a file and give --password-file FILE")
	case (f.user == "") != (f.passwordFile == ""):
		return usagef("--user and --password-file belong together")
	case (f.cert == "") != (f.key == ""):
		return usagef("--cert and --key belong together")
	case len(f.endpoints) == 0 && f.user+f.cacert+f.cert != "":
		return usagef("--cacert, --cert and --user are for an etcd that --endpoints names")
	case f.segment < 0:
		return usagef("--segment-bytes %d: must not be below 0", f.segment)
	case f.timeout <= 0:
		return usagef("--backend-timeout %s: must be above 0", f.timeout)
	}
	if err := checkGiven("device", f.deviceID); err != nil {
		return err
	}
	if err := f.seal.check(); err != nil {
		return err
	}
	return checkNames("any", f.namespace)
}

// dial gives the settings of the client.
func (f *backendFlags) dial(endpoints []string) (etcd.DialConfig, error) {
	cfg := etcd.DialConfig{Endpoints: endpoints, CACert: f.cacert, Cert: f.cert, Key: f.key, User: f.user, Timeout: f.timeout}
	if f.passwordFile == "" {
		return cfg, nil
	}
	password, err := os.ReadFile(f.passwordFile)
	if err != nil {
		return cfg, fmt.Errorf("--password-file: %w", err)
	}
	cfg.Password = strings.TrimRight(string(password), "\r\n")
	return cfg, nil
}

// permission says what an etcd with users has to allow.
func (f *backendFlags) permission() string {
	who := "user " + f.user
	if f.user == "" {
		who = "the user named by the certificate of --cert (or give --user and --password-file)"
	}
	return fmt.Sprintf("%s needs a role that may read and write the keys under %s; as root: etcdctl role grant-permission ROLE readwrite --prefix=true %[2]s",
		who, etcd.Prefix(f.namespace))
}

// read runs a verb that changes nothing.
func (f *backendFlags) read(cmd *cobra.Command, out *outputFlag, verb func(context.Context, coord.Coordinator) error) error {
	return f.with(cmd, out, use{there: true}, func(ctx context.Context, be *backend) error { return verb(ctx, be.coordinator) })
}

// write runs a verb that changes the ledger.
func (f *backendFlags) write(cmd *cobra.Command, out *outputFlag, agent string, verb func(context.Context, *backend) error) error {
	return f.with(cmd, out, use{agent: agent, write: true}, verb)
}

// ask runs a verb that asks or changes the ledger for a person: through the node that was named, or without --endpoints that
// of the data directory, or by itself. u is for the last.
func (f *backendFlags) ask(cmd *cobra.Command, out *outputFlag, via *nodeFlags, u use, verb func(context.Context, coord.Coordinator) error) error {
	if err := out.check(); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	until := time.Now().Add(f.timeout)
	ctx, cancel := context.WithDeadlineCause(cmd.Context(), until, fmt.Errorf("the node did not answer within %s (--backend-timeout)", f.timeout))
	defer cancel()
	n, err := via.serving(ctx, f)
	switch {
	case err != nil:
		return causeOf(ctx, err)
	case n != nil:
		ctx, cancel := context.WithDeadlineCause(cmd.Context(), until, fmt.Errorf("node %s answers, but the etcd behind it did not within %s (--backend-timeout)", n.where, f.timeout))
		defer cancel()
		c, err := n.ledger(ctx)
		if err != nil {
			return causeOf(ctx, err)
		}
		defer c.Close(context.WithoutCancel(ctx))
		return causeOf(ctx, verb(ctx, c))
	}
	return f.with(cmd, out, u, func(ctx context.Context, be *backend) error { return verb(ctx, be.coordinator) })
}

func (f *backendFlags) with(cmd *cobra.Command, out *outputFlag, u use, verb func(context.Context, *backend) error) error {
	if err := out.check(); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	be, err := f.openFor(cmd, u)
	if err != nil {
		return err
	}
	defer be.close()
	if u.long {
		return verb(cmd.Context(), be)
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, fmt.Errorf("%s did not answer within %s", be.where, f.timeout))
	defer cancel()
	err = verb(ctx, be)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// openFor opens the backend for a verb of a person: a busy embedded etcd is waited for as long as a silent one, and who is waited for is
// told.
func (f *backendFlags) openFor(cmd *cobra.Command, u use) (*backend, error) {
	u.wait, u.busy = f.timeout, func(who string) { fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: %s\n", who) }
	be, err := f.open(cmd.Context(), u)
	if isBusy(err) {
		return nil, fmt.Errorf("%w; it was waited for as long as --backend-timeout says (%s), and nothing was done", err, f.timeout)
	}
	return be, err
}

// logger is for what nobody else would tell, a line each on standard error; a node has its own.
func logger(own *slog.Logger) *slog.Logger {
	if own != nil {
		return own
	}
	return slog.New(untold{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: toldAttr})})
}

// untold drops the end of a run, which exec tells itself.
type untold struct{ slog.Handler }

func (h untold) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "run ended" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h untold) WithAttrs(attrs []slog.Attr) slog.Handler { return untold{h.Handler.WithAttrs(attrs)} }
func (h untold) WithGroup(name string) slog.Handler       { return untold{h.Handler.WithGroup(name)} }
