package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/ident"
)

// occurrenceFlags name which firing of an agent's work is meant.
type occurrenceFlags struct {
	key   string
	every time.Duration
	at    string
}

func (o *occurrenceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.key, "occurrence", "", "the `TEXT` that names this occurrence: 1 to 255 bytes without control characters")
	flags.DurationVar(&o.every, "every", 0, "name the multiple of `D` since 1970 that is nearest to now; the trigger should fire on those multiples, not half-way between")
	flags.StringVar(&o.at, "at", "", "with --every: take this `INSTANT` as now, to name a run that was due earlier")
}

// choices is what exec says when it is not told which occurrence it is about.
const choices = `which occurrence is this? Give one of
  --occurrence TEXT   one run for ever under that name: an order number, a date, a build id
  --every D           one run for each multiple of D, for a trigger that fires every D (--every 1h)
A guess here would be a wrong guarantee`

// resolve gives the occurrence in its canonical form, `key:TEXT` or `at:INSTANT`.
func (o *occurrenceFlags) resolve(flags *pflag.FlagSet, now time.Time) (string, error) {
	byKey, byEvery := flags.Changed("occurrence"), flags.Changed("every")
	switch {
	case byKey && byEvery:
		return "", usagef("--occurrence and --every are two names for one thing: give one of them")
	case o.at != "" && !byEvery:
		return "", usagef("--at belongs to --every, whose multiples it chooses from")
	case byKey:
		occurrence, err := ident.KeyOccurrence(o.key)
		if err != nil {
			return "", usagef("--occurrence: %w", err)
		}
		return occurrence, nil
	case byEvery:
		if o.every < time.Second || o.every%time.Second != 0 {
			return "", usagef("--every %s: must be whole seconds, at least 1s", o.every)
		}
		if o.at != "" {
			var err error
			// Lists show an instant as at:INSTANT.
			if now, err = time.Parse(time.RFC3339, strings.TrimPrefix(o.at, "at:")); err != nil {
				return "", usagef("--at %q: want an RFC 3339 instant such as 2026-03-01T02:30:00Z", o.at)
			}
		}
		return ident.AtOccurrence(nearest(now, o.every)), nil
	default:
		return "", usagef("%s", choices)
	}
}

// nearest is the multiple of d since the Unix epoch that is nearest to t. A trigger of a fixed rhythm fires a
// little early or late, at the edge of a window; the nearest multiple is the same for both.
func nearest(t time.Time, d time.Duration) time.Time {
	step := int64(d / time.Second)
	ms := t.UnixMilli() + step*1000/2
	n := ms / (step * 1000)
	if ms%(step*1000) < 0 {
		n--
	}
	return time.Unix(n*step, 0).UTC()
}

func newID() *cobra.Command {
	var o occurrenceFlags
	var agent, namespace string
	var explain bool
	cmd := &cobra.Command{
		Use:   "id --agent A (--occurrence K | --every D)",
		Short: "print the id of a run; needs no etcd",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkNames(agent, namespace); err != nil {
				return err
			}
			occurrence, err := o.resolve(cmd.Flags(), time.Now())
			if err != nil {
				return err
			}
			id := ident.RunID(namespace, agent, occurrence)
			if explain {
				fmt.Fprintf(cmd.OutOrStdout(), "namespace %s\nagent %s\noccurrence %s\n", namespace, agent, occurrence)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}
	o.register(cmd.Flags())
	registerAgent(cmd.Flags(), &agent)
	registerNamespace(cmd.Flags(), &namespace)
	cmd.Flags().BoolVar(&explain, "explain", false, "also print what the id is made of")
	return cmd
}

func registerAgent(flags *pflag.FlagSet, agent *string) {
	flags.StringVar(agent, "agent", "", "the `ID` of what must not run in parallel: a job, an account, a tenant's worker")
}

func registerNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "namespace", "default", "the `ID` of the ledger; agents of different namespaces know nothing of each other")
}

// checkGiven checks the ids that were given, in pairs of a kind and an id; one that was not given is empty.
func checkGiven(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if err := ident.Check(pairs[i], pairs[i+1]); err != nil {
			return &usageError{err}
		}
	}
	return nil
}

func checkNames(agent, namespace string) error {
	if agent == "" {
		return usagef("--agent is missing: the job, account or worker that must not run in parallel")
	}
	if err := ident.Check("agent", agent); err != nil {
		return &usageError{err}
	}
	if err := ident.Check("namespace", namespace); err != nil {
		return &usageError{err}
	}
	return nil
}
