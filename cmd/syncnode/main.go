// Command syncnode runs scheduled and triggered work whose effect must not happen twice, across a fleet.
//
// This package parses flags, wires the parts together, passes signals on and turns answers into exit
// codes. It decides nothing: the one path of a run is in package dispatch.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/ident"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, stdin *os.File, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code, message := verdictOf(cmd, err)
	switch {
	case message == "":
	case cmd.Name() == "exec":
		refuse(cmd, code, message)
	default:
		fmt.Fprintf(stderr, "syncnode: %s\n", told(message))
	}
	return code
}

// An exitError is an answer that is told by the exit code, with or without a message.
type exitError struct {
	code int
	err  error // nil: everything was said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// A usageError is a mistake in what was typed.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Exit codes of the verbs other than exec.
const (
	exitRefused = 1
	exitUsage   = 2
)

// verdictOf turns an error into the exit code and the message of the verb that gave it. Where a command was
// to be run, every message says whether it was.
func verdictOf(cmd *cobra.Command, err error) (int, string) {
	var exit *exitError
	var usage *usageError
	switch {
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code, ""
	case errors.As(err, &exit):
		return exit.code, exit.err.Error()
	case cmd != nil && cmd.Name() == "exec":
		message := fmt.Sprintf("%v; the command was not run", err)
		if errors.As(err, &usage) {
			message += " (see syncnode exec --help)"
		}
		return exitNotRun, message
	case cmd != nil && cmd.Name() == "fence":
		return exitNotRun, err.Error()
	case errors.As(err, &usage):
		return exitUsage, fmt.Sprintf("%v (see %s --help)", err, cmd.CommandPath())
	default:
		return exitRefused, err.Error()
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "syncnode",
		Short: "run a command at most once across a fleet, and show every doubt",
		Long: `syncnode runs scheduled and triggered work whose effect must not happen twice.

A run is one occurrence of one agent's work. It is begun at most once across all hosts that share an
etcd, its outcome is recorded, and where nobody can know how it ended it is shown as in doubt instead
of being repeated.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEnv(cmd.Root(), os.Environ()); err != nil {
				return err
			}
			return defaultsFromEnv(cmd.Flags())
		},
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version: versionText(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newExec(), newFence(), newID(), newVersion(), newRun(), newLease(), newLog(), newRelay(), newServe(), newKey(),
		newAgent(), newRecover(), newDoctor(), newSchedule(), newConfig(), newReady())
	return root
}

// noArgs refuses what is left over, with the word that was not understood.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
			return usagef("unknown command %q for %q; %s is meant?", args[0], cmd.CommandPath(), strings.Join(meant, " or "))
		}
		return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	return usagef("unexpected argument %q", args[0])
}

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q; usage: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// oneAgent asks for the id of an agent, and nothing else.
func oneAgent(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("usage: %s", cmd.UseLine())
	}
	if err := ident.Check("agent", args[0]); err != nil {
		return &usageError{err}
	}
	return nil
}

// envName is the variable that gives a flag its default: SYNCNODE_IF_HELD for --if-held.
func envName(flag string) string {
	return "SYNCNODE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv marks a flag whose value came from its variable.
const fromEnv = "syncnode-from-environment"

// defaultsFromEnv fills in the flags that were not given. SYNCNODE_RUN_… belongs to a run that this process
// is a part of and is never read as a flag.
func defaultsFromEnv(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		if err != nil || f.Changed || f.Name == "help" || strings.HasPrefix(name, "SYNCNODE_RUN_") {
			return
		}
		value, ok := os.LookupEnv(name)
		if !ok || value == "" {
			return
		}
		if e := flags.Set(f.Name, value); e != nil {
			err = flagError(nil, fmt.Errorf("%s: %w", name, e))
			return
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[fromEnv] = nil
	})
	return err
}
