package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/child"
	"github.com/syncnode/syncnode/internal/command"
	"github.com/syncnode/syncnode/internal/ident"
)

const (
	exitLost   = dispatch.ExitLost
	exitNotRun = dispatch.ExitNotRun
)

// execFlags are what was typed.
type execFlags struct {
	backendFlags
	via    nodeFlags
	o      occurrenceFlags
	agent  string
	input  string
	policy policyFlags
	result string
	quiet  bool
	out    outputFlag
	dryRun bool
}

const execLong = `exec runs CMD if this occurrence of the agent's work was not begun before, on any host that shares the etcd
of --endpoints. Without --endpoints it uses an etcd of its own in the data directory: for one host, one job at a
time.

Where a node (syncnode serve) runs on the data directory, or --node names one, the run goes through it: the node's device
holds the lease and keeps the record, and the command is stopped in time when the node is not heard of.

The child gets SYNCNODE_RUN_ID (also its idempotency key), SYNCNODE_RUN_AGENT, _OCCURRENCE, _EPOCH (the fencing
token), _ATTEMPT, _DEADLINE (with --timeout) and _FENCE, which "syncnode fence" asks. It gets no other SYNCNODE_
or ETCDCTL_ variable. Every flag has a variable for its default: SYNCNODE_IF_HELD for --if-held.

Exit codes:
  0            committed now or earlier, or this very run is running elsewhere (--if-held skip)
  1-109,128+n  the command's own code or signal
  110          not run: the agent is busy with another run, the directory is busy, or waited in vain
  111          was run and stopped: the lease could not be trusted any more
  112          in doubt: may have run earlier; not run now
  113          not run: agent paused, or recovery
  114          was run; the outcome is in the journal and not in the ledger yet
  115          failed before, not run again
  124          was run and stopped at --timeout
  125          not run: something failed before the start
  126, 127     not run: the command cannot be executed, or is not there`

func newExec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec --agent A (--occurrence K | --every D | --cron SPEC [--tz ZONE]) [flags] -- CMD ARGS…",
		Short: "run a command unless this occurrence of it was begun before",
		Long:  execLong,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.SortFlags = false
	registerAgent(flags, &f.agent)
	f.o.register(flags)
	flags.StringVar(&f.input, "input", "", "a `FILE`, or - for standard input, whose digest is kept: the same occurrence with another input is refused")
	f.policy.register(flags)
	flags.StringVar(&f.result, "result", "", "write what became of the run to `FILE`, as JSON")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing on standard error unless something is wrong")
	f.out.register(flags)
	flags.BoolVar(&f.dryRun, "dry-run", false, "ask only: the exit code is the one that a run would give before its start")
	f.backendFlags.registerExec(flags)
	f.via.register(flags)
	return cmd
}

// run does one exec: everything that can be wrong is looked at before anything is asked.
func (f *execFlags) run(cmd *cobra.Command, args []string) error {
	outliveReaders()
	if err := f.out.check(); err != nil {
		return err
	}
	if err := checkResult(f.result); err != nil {
		return err
	}
	if err := checkNames(f.agent, f.namespace); err != nil {
		return err
	}
	occurrence, err := f.o.resolve(cmd.Flags(), time.Now())
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return usagef("no command: syncnode exec … -- CMD ARGS")
	}
	job, err := f.policy.job()
	if err != nil {
		return err
	}
	job.Agent, job.Occurrence = f.agent, occurrence
	job.Run = ident.RunID(f.namespace, f.agent, occurrence)

	x := &execution{flags: f, cmd: cmd, args: args, stdin: os.Stdin}
	if in, ok := cmd.InOrStdin().(*os.File); ok {
		x.stdin = in
	}
	return x.tell(job, x.do(cmd.Context(), job))
}

// An execution is one exec from the first question to the last word.
type execution struct {
	flags *execFlags
	cmd   *cobra.Command
	args  []string
	stdin *os.File

	mu      sync.Mutex
	started bool // guarded by mu
}

// do runs through the node, if there is one, or here.
func (x *execution) do(ctx context.Context, job dispatch.Job) dispatch.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 16)
	child.Notify(signals)
	defer signal.Stop(signals)
	forwarded := make(chan os.Signal, 16)
	var routing sync.WaitGroup
	routing.Go(func() { x.route(ctx, signals, forwarded, cancel) })
	defer routing.Wait()
	defer cancel(nil)
	defer reaping()()

	in, err := awaitInput(ctx, x.flags.input, x.stdin)
	if err != nil {
		return notRun(err)
	}
	if in.spool != nil {
		defer in.spool.Close()
		x.stdin = in.spool
	}
	job.Input = in.digest
	if outer := os.Getenv("SYNCNODE_RUN_ID"); outer != "" && len(x.flags.endpoints) == 0 {
		x.say("this is inside run %s, which hands on no flags: without --endpoints only this host is asked", outer)
	}
	if err := splay(ctx, x.flags.policy.splay); err != nil {
		return notRun(err)
	}
	if err := x.flags.backendFlags.check(); err != nil {
		return notRun(err)
	}
	node, info, err := x.through(ctx)
	switch {
	case err != nil:
		return notRun(err)
	case node != nil && x.flags.dryRun:
		return x.askNode(ctx, node, info.Device, job)
	case node != nil:
		return (&nodeRun{x: x, c: node, info: info, job: job, signals: forwarded}).run(ctx)
	}
	return x.here(ctx, job, forwarded)
}

// here asks, runs, and gives the backend back.
func (x *execution) here(ctx context.Context, job dispatch.Job, forwarded <-chan os.Signal) dispatch.Result {
	if x.flags.dryRun && len(x.flags.endpoints) == 0 {
		if nothing := x.flags.hasOwnLedger(); nothing != nil {
			return wouldRun(job, nothing)
		}
	}
	be, err := x.flags.open(ctx, use{
		agent: job.Agent, write: true, wait: x.flags.policy.busyWait(cmdChanged(x.cmd, "if-held")),
		busy: func(who string) { x.say("%s", who) },
	})
	if err != nil {
		return notRun(err)
	}
	defer be.close()
	job.Effect = dispatch.StartFunc(func(_ context.Context, p dispatch.Permit) (dispatch.Effect, error) {
		return x.start(job, p, forwarded)
	})
	if x.flags.policy.probe != "" {
		job.Probe = x.probe
	}
	d, err := be.dispatcher(nil)
	if err != nil {
		return notRun(err)
	}
	if x.flags.dryRun {
		return d.DryRun(ctx, job)
	}
	return d.Run(ctx, job)
}

// route passes signals to the child once there is one; before that, one that ends things ends the wait.
func (x *execution) route(ctx context.Context, from <-chan os.Signal, to chan<- os.Signal, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-from:
			x.mu.Lock()
			started := x.started
			x.mu.Unlock()
			switch {
			case started:
				select {
				case to <- sig:
				default: // sixteen are on their way
				}
			case child.Ends(sig):
				cancel(&dispatch.Interrupt{Signal: int(sig.(syscall.Signal))})
			}
		}
	}
}

func splay(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(rand.N(d)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// notRun is the answer when something failed before the path of a run was entered.
func notRun(err error) dispatch.Result {
	r := dispatch.Result{Code: dispatch.ExitNotRun, Ran: dispatch.No, Err: err}
	next := ""
	var sig *dispatch.Interrupt
	var mismatch *identity.MismatchError
	switch {
	case errors.As(err, &sig):
		r.Code = dispatch.ExitSignal + sig.Signal
	case isBusy(err):
		r.Code = dispatch.ExitBusy
		next = "; it serves one job at a time: --if-held wait=D waits longer, --endpoints of an etcd serves many"
	case errors.Is(err, coord.ErrRecovery):
		r.Code = dispatch.ExitGate
	case errors.As(err, &mismatch):
		next = "; if that is right, give it a data directory of its own (--data-dir DIR), or take it: syncnode recover adopt --reason TEXT"
	}
	r.Message = strings.ReplaceAll(fmt.Sprintf("%v; the command was not run%s", err, next), "\n", "; ")
	return r
}

// stdio gives the writers that the child uses: files as they are.
func (x *execution) stdio() (out, err io.Writer) { return x.cmd.OutOrStdout(), x.cmd.ErrOrStderr() }

// start is the effect: the command itself.
func (x *execution) start(job dispatch.Job, p dispatch.Permit, signals <-chan os.Signal) (dispatch.Effect, error) {
	out, errOut := x.stdio()
	x.mention("run %s of agent %s starts at epoch %d", p.Run, p.Agent, p.Epoch)
	// The lock makes signals that arrive now wait until the child can take them.
	x.mu.Lock()
	defer x.mu.Unlock()
	e, err := command.Start(p, child.Spec{
		Path: x.args[0], Args: x.args[1:], Stdin: x.stdin, Stdout: out, Stderr: errOut, Grace: job.Grace,
	}, signals)
	if err != nil {
		return nil, err
	}
	x.started = true
	return e, nil
}

// probe asks the user's program whether the effect of an attempt in doubt happened.
func (x *execution) probe(ctx context.Context, p dispatch.Permit) (happened, known bool, err error) {
	_, errOut := x.stdio()
	return command.Probe(ctx, p, child.Spec{Path: x.flags.policy.probe, Stdout: errOut, Stderr: errOut})
}
