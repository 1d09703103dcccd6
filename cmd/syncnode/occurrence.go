package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/schedule"
)

// occurrenceFlags name which firing of an agent's work is meant.
type occurrenceFlags struct {
	key   string
	every time.Duration
	cron  string
	tz    string
	late  time.Duration
	at    string
}

func (o *occurrenceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.key, "occurrence", "", "the `TEXT` that names this occurrence: 1 to 255 bytes without control characters")
	flags.DurationVar(&o.every, "every", 0, "name the multiple of `D` since 1970 that is nearest to now; the trigger should fire on those multiples, not half-way between")
	flags.StringVar(&o.cron, "cron", "", "name the instant of the schedule `SPEC` that is nearest to now; farther than 30s from each is an error")
	registerZone(flags, &o.tz)
	flags.DurationVar(&o.late, "late", 0, "with --cron: a trigger that comes up to `D` after an instant still means that one")
	flags.StringVar(&o.at, "at", "", "with --every or --cron: take this `INSTANT` as now, to name a run that was due earlier")
}

// registerZone adds --tz. The host's own zone is never the default: two hosts would name other instants.
func registerZone(flags *pflag.FlagSet, zone *string) {
	flags.StringVar(zone, "tz", "UTC", "with --cron: the time `ZONE` of the schedule, an IANA name such as Europe/Berlin; never the host's own")
}

// choices is what exec says when it is not told which occurrence it is about.
const choices = `which occurrence is this? Give one of these: --occurrence TEXT: one run for ever under that name, such as an order number, a date, a build id
--every D: one run for each multiple of D, for a trigger that fires every D (--every 1h)
--cron SPEC: one run for each instant of a schedule (--cron '30 2 * * *' --tz Europe/Berlin)
A guess here would be a wrong guarantee`

// resolve gives the occurrence in its canonical form, `key:TEXT` or `at:INSTANT`.
func (o *occurrenceFlags) resolve(flags *pflag.FlagSet, now time.Time) (string, error) {
	var given []string
	for _, name := range []string{"occurrence", "every", "cron"} {
		if flags.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch {
	case len(given) == 0 && o.at == "":
		return "", usagef("%s", choices)
	case len(given) > 1:
		return "", usagef("%s are names for one thing: give one of them", strings.Join(given, " and "))
	case o.at != "" && (len(given) == 0 || given[0] == "--occurrence"):
		return "", usagef("--at belongs to --every and --cron, which name an instant near it")
	case given[0] != "--cron" && typed(flags, "tz"):
		return "", usagef("--tz belongs to --cron; the multiples of --every are UTC")
	case given[0] != "--cron" && typed(flags, "late"):
		return "", usagef("--late belongs to --cron")
	}
	if o.at != "" {
		var err error
		// Lists show an instant as at:INSTANT.
		if now, err = time.Parse(time.RFC3339, strings.TrimPrefix(o.at, "at:")); err != nil {
			return "", usagef("--at %q: want an RFC 3339 instant such as 2026-03-01T02:30:00Z", o.at)
		}
	}
	switch given[0] {
	case "--cron":
		return o.ofCron(now)
	case "--every":
		if o.every < time.Second || o.every%time.Second != 0 {
			return "", usagef("--every %s: must be whole seconds, at least 1s", o.every)
		}
		return ident.AtOccurrence(schedule.Multiple(now, o.every)), nil
	}
	occurrence, err := ident.KeyOccurrence(o.key)
	if err != nil {
		return "", usagef("--occurrence: %w", err)
	}
	return occurrence, nil
}

// ofCron names the instant of the schedule that a trigger at now means.
func (o *occurrenceFlags) ofCron(now time.Time) (string, error) {
	if o.late < 0 {
		return "", usagef("--late %s is negative", o.late)
	}
	s, err := scheduleOf("--cron: ", o.cron, o.tz)
	if err != nil {
		return "", err
	}
	at, err := s.Nearest(now, o.late)
	if err != nil {
		return "", usagef("--cron: %w. The trigger has to fire within %s of an instant: compare its zone and its schedule with these, "+
			"or give --late D if it may come D after one, or --at INSTANT to name one", err, schedule.Tolerance)
	}
	return ident.AtOccurrence(at), nil
}

// typed says whether a flag was given with this command: its variable holds for all commands of a host, also for
// those that have no use for it.
func typed(flags *pflag.FlagSet, name string) bool {
	f := flags.Lookup(name)
	_, byVariable := f.Annotations[fromEnv]
	return f.Changed && !byVariable
}

func newID() *cobra.Command {
	var o occurrenceFlags
	var agent, namespace string
	var explain bool
	cmd := &cobra.Command{
		Use:   "id --agent A (--occurrence K | --every D | --cron SPEC)",
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
