// Package effect is what an agent of a node's configuration does: a command or a request, and who is told of its failure.
//
// # Guarantees
//
// A command is started as exec starts it: no shell, a process group of its own, an empty standard input, the
// SYNCNODE_RUN_ variables and no other of ours. What it prints goes to the node's [output.Store].
//
// A request is sent once, over a connection of its own, and what became of it is told strictly:
//
//	no connection, or the lease ran out on the way      never started: nothing was sent
//	a whole answer with a status of 2xx                 success
//	502, 504                                            not known: somebody between got no answer
//	another with Syncnode-Executed: maybe               not known: the server says so
//	any other answer                                    failure; the status is the exit code
//	no answer, or one of 2xx that broke off             not known
//	given up before anything was sent                   failure
//
// It carries the run id as Idempotency-Key, and Syncnode-Epoch, the fencing token. Redirects are not followed, proxies of
// the environment are not used, an answer is read up to [MaxAnswer] and its headers up to [MaxHeader]. Stop leaves a
// request alone, since nothing stops the server; Kill gives it up.
//
// A secret is read from its file at each use. It is in no error and no log; nor is a URL, but for its host.
//
// # Not promised
//
// That a notice of a failure arrives, or arrives once: see [Notify].
//
// # Concurrency
//
// Everything may be used by several goroutines at once.
package effect

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/child"
	"github.com/syncnode/syncnode/internal/command"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/output"
)

// Deps are what effects work with.
type Deps struct {
	// Path is where a path that is written in the configuration leads to; nil: it is taken as it is.
	Path func(written string) string
	// Output keeps what commands print and servers answer; nil: nobody does.
	Output *output.Store
	Logger *slog.Logger // nil: silent
	// Environ is what a command's environment begins with; nil: this process's.
	Environ []string
}

func (d Deps) path(written string) string {
	if d.Path == nil {
		return written
	}
	return d.Path(written)
}

func (d Deps) environ() []string {
	if d.Environ == nil {
		return os.Environ()
	}
	return d.Environ
}

func (d Deps) logger() *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger
}

// writer keeps what is printed under a name of a run's.
func (d Deps) writer(run, name string) io.WriteCloser {
	if d.Output == nil {
		return nowhere{}
	}
	return d.Output.Writer(run, name)
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }

// For returns what starts the agent's work; nil if it has none, so that runs of it are begun by clients alone.
func For(a config.Agent, d Deps) dispatch.Starter {
	switch {
	case len(a.Command) > 0:
		return dispatch.StartFunc(func(_ context.Context, p dispatch.Permit) (dispatch.Effect, error) { return startCommand(a, d, p) })
	case a.HTTP != nil:
		return dispatch.StartFunc(func(ctx context.Context, p dispatch.Permit) (dispatch.Effect, error) {
			return startRequest(ctx, *a.HTTP, d, p)
		})
	}
	return nil
}

// Probe returns what finds out whether the effect of an attempt in doubt happened, for dispatch.Job; nil if the agent has
// none. What it prints is kept as that of the attempt, with "-probe" behind its name.
func Probe(a config.Agent, d Deps) func(context.Context, dispatch.Permit) (happened, known bool, err error) {
	if len(a.Probe) == 0 {
		return nil
	}
	return func(ctx context.Context, p dispatch.Permit) (happened, known bool, err error) {
		out := d.writer(p.Run, p.Attempt+"-probe")
		defer out.Close()
		return command.Probe(ctx, p, spec(a.Probe, d, out))
	}
}

// spec is a command of the configuration. A relative path of the program begins where the paths of the configuration do; a
// name without a slash is looked up in PATH.
func spec(argv []string, d Deps, out io.Writer) child.Spec {
	program := argv[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = d.path(program)
	}
	return child.Spec{Path: program, Args: argv[1:], Env: d.Environ, Stdout: out, Stderr: out}
}

// startCommand starts the agent's command; what it prints is on its way to the disk when it is done.
func startCommand(a config.Agent, d Deps, p dispatch.Permit) (dispatch.Effect, error) {
	out := d.writer(p.Run, p.Attempt)
	s := spec(a.Command, d, out)
	s.Grace = a.Grace
	e, err := command.Start(p, s, nil)
	if err != nil {
		out.Close()
		return nil, err
	}
	c := &printing{Effect: e, done: make(chan struct{})}
	go func() {
		<-e.Done()
		out.Close()
		close(c.done)
	}()
	return c, nil
}

// A printing is a command that is done when what it printed is kept.
type printing struct {
	*command.Effect
	done chan struct{}
}

func (c *printing) Done() <-chan struct{} { return c.done }
