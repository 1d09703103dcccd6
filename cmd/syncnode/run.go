package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// A runRow is a run as lists and JSON show it.
type runRow struct {
	Agent      string       `json:"agent"`
	Run        string       `json:"run_id"`
	Occurrence string       `json:"occurrence,omitempty"`
	State      string       `json:"state"`
	Commits    int          `json:"commits,omitempty"` // of a double, two or more
	Cause      string       `json:"cause,omitempty"`
	Device     string       `json:"device,omitempty"`
	Epoch      uint64       `json:"epoch,omitempty"`
	Since      string       `json:"since,omitempty"`
	Input      string       `json:"input_digest,omitempty"`
	Attempts   []attemptRow `json:"attempts,omitempty"`
	Output     []outputRow  `json:"output,omitempty"` // on this host
	Next       string       `json:"next,omitempty"`

	// Of a gap of missed occurrences: its last one if it is not the first, and how many they are.
	Last    string `json:"last_occurrence,omitempty"`
	Count   int    `json:"count,omitempty"`
	AtLeast bool   `json:"at_least,omitempty"`
	Open    bool   `json:"open,omitempty"` // it is not over

	at time.Time // Since, or when the last of a gap was due
}

type attemptRow struct {
	ID        string `json:"attempt"`
	Device    string `json:"device"`
	Epoch     uint64 `json:"epoch"`
	State     string `json:"state"`
	Alive     bool   `json:"alive,omitempty"`
	Cause     string `json:"cause,omitempty"`
	Exit      int    `json:"exit_code"`
	Begun     string `json:"begun"`
	Ended     string `json:"ended,omitempty"`
	By        string `json:"by,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"`
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func runRowOf(v coord.View) runRow {
	r := runRow{Agent: v.Entry.Agent, Run: v.Entry.Run, Occurrence: v.Entry.Occurrence, State: string(v.State), Commits: v.Entry.Double(), Input: v.Entry.Input}
	for _, a := range v.Entry.Attempts {
		r.Attempts = append(r.Attempts, attemptRow{
			ID: a.ID, Device: a.Device, Epoch: uint64(a.Epoch), State: string(a.State), Alive: a.State == coord.Open && v.Alive[a.Liveness],
			Cause: a.Cause, Exit: a.Exit, Begun: rfc3339(a.Begun), Ended: rfc3339(a.Ended), By: a.By, Reason: a.Reason, Abandoned: a.Abandoned,
		})
	}
	if a, ok := v.Deciding(); ok {
		r.Device, r.Epoch, r.Cause = a.Device, uint64(a.Epoch), a.Cause
	}
	r.at = v.Since()
	r.Since = rfc3339(r.at)
	r.Next = nextForRun(v)
	return r
}

func nextForRun(v coord.View) string {
	if n := v.Entry.Double(); n > 0 {
		return fmt.Sprintf("it committed %d times, so what it does may have happened that often: compare the committed attempts with what you find, and undo what is too much; it will not be run again", n)
	}
	switch v.State {
	case coord.RunInDoubt:
		return fmt.Sprintf("nobody alive saw how it ended: find out, then `syncnode run resolve %s --as committed|failed --reason TEXT`", v.Entry.Run)
	case coord.RunFailed:
		return fmt.Sprintf("it is not run again by itself: `syncnode run retry %s --reason TEXT` permits one more attempt", v.Entry.Run)
	case coord.RunRunning:
		return "it is running: wait for it"
	case coord.RunCommitted:
		return "it is done and will not be run again"
	}
	switch {
	case v.Recovery != nil:
		return "nothing begins before the recovery gate is lifted: see `syncnode recover status`"
	case v.Paused != nil:
		return fmt.Sprintf("it does not begin while its agent is paused (by %s: %s): `syncnode agent resume %s`", plain(v.Paused.By), plain(v.Paused.Reason), v.Entry.Agent)
	case len(v.Entry.Attempts) == 0:
		return "the ledger has nothing of it: it was never begun under this name; it may be run"
	case v.Permitted() && strings.HasPrefix(v.Entry.Occurrence, "at:") && v.Entry.Input == "":
		return fmt.Sprintf("one more attempt is permitted: a node that runs %s by a schedule which has this instant looks for it every five minutes, and begins one run after the other; elsewhere begin it by "+
			"`syncnode exec --agent %[1]s` with --every or --cron, --at %s and the command", v.Entry.Agent, strings.TrimPrefix(v.Entry.Occurrence, "at:"))
	case v.Permitted():
		return fmt.Sprintf("one more attempt is permitted, and nothing begins it by itself: begin it by `syncnode exec --agent %s` that names this occurrence, "+
			"or, if a node has the command in its --config, by `syncnode agent trigger %[1]s --occurrence TEXT`", v.Entry.Agent)
	default:
		return "it may be run"
	}
}

func newRun() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "see runs, and decide what is in doubt", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newRunList(), newRunShow(), newRunOutput(), newRunResolve(), newRunRetry())
	return cmd
}

const runListLong = `list shows the runs of the ledger and what was missed, the newest first: by when a run ended, or began if it has not ended, and when
the last of a gap was due, each by the clock of its device. The ledger has runs by agent and id: of more than --limit the first of
that order are shown, which are not the newest. --since 24h looks through all of them for those of the last day.`

// sinceOf is the instant from which on runs are wanted; zero: all.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if at, err := fromOf(text, time.UTC); err == nil {
		return at, nil
	}
	return time.Time{}, usagef("--since %q: want a time that has gone by, such as 90m or 24h, or an instant such as 2026-03-01T02:30:00Z, 2026-03-01T02:30 or 2026-03-01", text)
}

// newestFirst orders rows by when they came to be as they are; those of one instant by agent and id.
func newestFirst(rows []runRow) {
	slices.SortStableFunc(rows, func(a, b runRow) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Run, b.Run), strings.Compare(a.Occurrence, b.Occurrence))
	})
}

func newRunList() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	var agent, device string
	var states []string
	var since string
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "list runs with their state, and since when, the newest first", Long: runListLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := coord.Filter{Agent: agent, Device: device}
			if err := checkGiven("agent", agent, "device", device); err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit %d: must be at least 1", limit)
			}
			var err error
			if filter.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}
			gaps := len(states) == 0 || slices.Contains(states, stateMissed)
			only := len(states) == 1 && gaps
			for _, s := range states {
				if s == stateMissed {
					continue
				}
				state, err := parseRunState(s)
				if err != nil {
					return err
				}
				filter.States = append(filter.States, state)
			}
			return b.ask(cmd, &out, &via, use{there: true}, func(ctx context.Context, c coord.Coordinator) error {
				var views []coord.View
				var unread []coord.UnreadableRun
				var more bool
				var err error
				if !only {
					if views, unread, more, err = listRuns(ctx, c, filter, limit); err != nil {
						return err
					}
				}
				if more {
					fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: these are the first %d by agent and id, not the newest ones; there are more: --since 24h, --limit N, --agent A or --state S\n", len(views)+len(unread))
				}
				rows := make([]runRow, len(views))
				for i, v := range views {
					rows[i] = runRowOf(v)
				}
				if gaps {
					missed, err := b.missedRows(ctx, c.Generation(), filter)
					if err != nil {
						return err
					}
					missed = append(missed, via.openGaps(ctx, &b, c.Generation(), filter)...)
					newestFirst(missed)
					rows = append(rows, missed[:min(len(missed), max(1, limit-len(rows)))]...)
				}
				newestFirst(rows)
				err = printRows(out, cmd.OutOrStdout(), rows, "AGENT\tRUN\tSTATE\tCAUSE\tDEVICE\tEPOCH\tSINCE\tOCCURRENCE", func(r runRow) string {
					return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s", r.Agent, dash(r.Run), r.shown(), dash(r.Cause), dash(r.Device), r.Epoch, dash(r.Since), r.span())
				})
				if err == nil && len(unread) > 0 {
					err = fmt.Errorf("of the runs in the ledger %w; the others are listed", coord.Unread(unread))
				}
				return err
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	registerAgent(cmd.Flags(), &agent)
	cmd.Flags().StringVar(&device, "device", "", "only runs with an attempt of this `DEVICE`")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only those in these `STATES`: running, in-doubt, failed, committed, free, missed")
	cmd.Flags().StringVar(&since, "since", "", "only those that began, ended or were missed within this `TIME`: 90m, 24h; or from an instant on: 2026-03-01T02:30:00Z, or without an offset in UTC")
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most this many")
	return cmd
}

func parseRunState(s string) (coord.RunState, error) {
	state := coord.RunState(strings.ReplaceAll(s, "-", " "))
	switch state {
	case coord.RunFree, coord.RunRunning, coord.RunInDoubt, coord.RunFailed, coord.RunCommitted:
		return state, nil
	}
	return "", usagef("--state %q: want running, in-doubt, failed, committed, free or missed", s)
}

// listRuns gives the first runs up to limit, with those among them that cannot be read, and whether there are more.
func listRuns(ctx context.Context, c coord.Ledger, f coord.Filter, limit int) (views []coord.View, unread []coord.UnreadableRun, more bool, err error) {
	for {
		f.Limit = min(1000, limit-len(views)-len(unread))
		page, err := c.List(ctx, f)
		if err != nil {
			return nil, nil, false, err
		}
		views, unread = append(views, page.Views...), append(unread, page.Unreadable...)
		if page.Next == "" || len(views)+len(unread) >= limit {
			return views, unread, page.Next != "", nil
		}
		f.After = page.Next
	}
}

// runName says which run a verb is about: an id, or agent and occurrence.
type runName struct {
	agent string
	o     occurrenceFlags
}

func (n *runName) register(cmd *cobra.Command) {
	registerAgent(cmd.Flags(), &n.agent)
	n.o.register(cmd.Flags())
}

// resolve says which run was named, before anything is asked.
func (n *runName) resolve(cmd *cobra.Command, namespace string, args []string) (run string, err error) {
	if err := checkGiven("agent", n.agent); err != nil {
		return "", err
	}
	switch {
	case len(args) == 1:
		if err := ident.CheckRunID(args[0]); err != nil {
			return "", &usageError{err}
		}
		return args[0], nil
	case n.agent == "":
		return "", usagef("which run? Give its id, or --agent with --occurrence, --every or --cron")
	}
	occurrence, err := n.o.resolve(cmd.Flags(), time.Now())
	if err != nil {
		return "", err
	}
	return ident.RunID(namespace, n.agent, occurrence), nil
}

// find looks the run up. An id alone is looked for in the list.
func (n *runName) find(ctx context.Context, run string, c coord.Ledger) (coord.View, error) {
	if n.agent == "" {
		return coord.Find(ctx, c, coord.Filter{}, run)
	}
	return c.Look(ctx, coord.Question{Agent: n.agent, Run: run})
}

func newRunShow() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	var n runName
	cmd := &cobra.Command{Use: "show (ID | --agent A --occurrence K)", Short: "show a run: its attempts, their devices, epochs and ends", Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := n.resolve(cmd, b.namespace, args)
			if err != nil {
				return err
			}
			return b.ask(cmd, &out, &via, use{there: true}, func(ctx context.Context, c coord.Coordinator) error {
				v, err := n.find(ctx, run, c)
				if err != nil {
					return err
				}
				r := runRowOf(v)
				if r.Output, err = outputOf(b.dataDir, b.namespace, run); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: the output that is kept here cannot be listed: %s\n", told(err.Error()))
				}
				return printRun(cmd, out, r)
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	n.register(cmd)
	return cmd
}

func printRun(cmd *cobra.Command, out outputFlag, r runRow) error {
	var text strings.Builder
	fmt.Fprintf(&text, "run         %s\nagent       %s\noccurrence  %s\nstate       %s", r.Run, r.Agent, plain(dash(r.Occurrence)), r.shown())
	if r.Cause != "" {
		fmt.Fprintf(&text, " (%s)", r.Cause)
	}
	fmt.Fprintln(&text)
	if r.Device != "" {
		fmt.Fprintf(&text, "device      %s\nepoch       %d\nsince       %s\n", r.Device, r.Epoch, r.Since)
	}
	for _, a := range r.Attempts {
		fmt.Fprintf(&text, "attempt     %s  %s", a.ID, a.State)
		switch {
		case a.Exit != 0:
			fmt.Fprintf(&text, " (%s, exit %d)", a.Cause, a.Exit)
		case a.Cause != "":
			fmt.Fprintf(&text, " (%s)", a.Cause)
		}
		fmt.Fprintf(&text, "  device %s  epoch %d  begun %s", a.Device, a.Epoch, a.Begun)
		switch {
		case a.Ended != "":
			fmt.Fprintf(&text, "  ended %s", a.Ended)
		case a.Alive && a.Abandoned:
			text.WriteString("  the process that began it is alive, and did not see its end; look for what it started")
		case a.Alive:
			text.WriteString("  the process that began it is alive")
		default:
			text.WriteString("  the process that began it is gone; look for what it started")
		}
		if a.By != "" {
			fmt.Fprintf(&text, "  by %s: %s", plain(a.By), plain(a.Reason))
		}
		fmt.Fprintln(&text)
	}
	for _, o := range r.Output {
		fmt.Fprintf(&text, "output      %d bytes here: syncnode run output %s --attempt %s\n", o.Kept, r.Run, o.Attempt)
	}
	fmt.Fprintf(&text, "next        %s\n", r.Next)
	return printOne(out, cmd.OutOrStdout(), r, text.String())
}

// decisionFlags are those of a person who decides about a run.
type decisionFlags struct {
	by, reason, attempt string
	force               bool
}

func (d *decisionFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.reason, "reason", "", "why, for the record (`TEXT`)")
	cmd.Flags().StringVar(&d.by, "by", whoami(), "who decides, for the record (`NAME`)")
	cmd.Flags().StringVar(&d.attempt, "attempt", "", "the `ATTEMPT` that was judged; the open one if there is only one")
}

func (d *decisionFlags) resolution(v coord.View, state coord.State) (coord.Resolution, error) {
	r := coord.Resolution{Agent: v.Entry.Agent, Run: v.Entry.Run, Attempt: d.attempt, By: d.by, Reason: d.reason, Force: d.force}
	if r.Attempt != "" {
		return r, nil
	}
	for _, a := range v.Entry.Attempts {
		switch {
		case a.State != state:
		case r.Attempt != "" && state == coord.Open:
			return r, usagef("run %s has several open attempts: name one by --attempt", v.Entry.Run)
		default:
			r.Attempt = a.ID
		}
	}
	if r.Attempt == "" {
		return r, fmt.Errorf("run %s is %s and has no %s attempt; nothing was changed", v.Entry.Run, v.State, state)
	}
	return r, nil
}

func newRunResolve() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	var n runName
	var d decisionFlags
	var as string
	cmd := &cobra.Command{Use: "resolve (ID | --agent A --occurrence K) --as committed|failed --reason TEXT",
		Short: "say how a run in doubt ended", Args: atMost(1),
		Long: `resolve closes an open attempt of which nobody alive saw the end. --as committed: it happened; the run is done.
--as failed: it did not happen; the run is free and may be run again. A later report of the device that it did
happen overrides the latter.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			state, ok := map[string]coord.State{"committed": coord.Committed, "failed": coord.Void}[as]
			if !ok {
				return usagef("--as %q: want committed (it happened) or failed (it did not)", as)
			}
			if d.reason == "" {
				return usagef("resolve needs --reason TEXT, for the record")
			}
			run, err := n.resolve(cmd, b.namespace, args)
			if err != nil {
				return err
			}
			return b.ask(cmd, &out, &via, use{agent: n.agent, write: true, there: true}, func(ctx context.Context, c coord.Coordinator) error {
				v, err := n.find(ctx, run, c)
				if err != nil {
					return err
				}
				r, err := d.resolution(v, coord.Open)
				if err != nil {
					return err
				}
				r.As = state
				v, err = c.Resolve(ctx, r)
				if errors.Is(err, coord.ErrInProgress) {
					return fmt.Errorf("%w; the process that began it, a node or an exec, is alive, nothing was changed: wait for its end, or say --force", err)
				}
				if err != nil {
					return err
				}
				return printRun(cmd, out, runRowOf(v))
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	n.register(cmd)
	d.register(cmd)
	cmd.Flags().StringVar(&as, "as", "", "the `END`: committed (it happened) or failed (it did not)")
	cmd.Flags().BoolVar(&d.force, "force", false, "also while the process that began the attempt, a node or an exec, is alive")
	return cmd
}

const runRetryLong = `retry permits one more attempt of a run that is known to have failed. A node that runs the agent by a schedule looks
for runs of that schedule every five minutes, and begins one run after the other, when nothing is due. What comes due meanwhile is missed or
waits, as overlap says; if it was missed, the next of the schedule is begun before another permitted run. Any other run is begun by an exec
that names it (with --at, if it was due earlier), or by agent trigger --occurrence. A run in doubt may have happened, so it is refused: find
out, then say how it ended by syncnode run resolve: --as failed says that it did not happen, and frees the run of the doubt. An
effect that may happen twice is begun again over a doubt by exec --on-doubt retry.`

// mayRetry refuses what is not known to have failed, and says what to do instead.
func mayRetry(v coord.View) error {
	switch v.State {
	case coord.RunInDoubt:
		return fmt.Errorf("run %s is in doubt: it may have happened, and a retry is for what is known to have failed; nothing was changed. Find out, then: "+
			"syncnode run resolve %[1]s --as committed|failed --reason TEXT", v.Entry.Run)
	case coord.RunRunning:
		return fmt.Errorf("run %s is running; nothing was changed: wait for its end", v.Entry.Run)
	}
	return nil
}

func newRunRetry() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	var n runName
	var d decisionFlags
	cmd := &cobra.Command{Use: "retry (ID | --agent A --occurrence K) --reason TEXT",
		Short: "permit one more attempt of a failed run; the next exec that names it, or its node, begins it", Long: runRetryLong, Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.reason == "" {
				return usagef("retry needs --reason TEXT, for the record")
			}
			run, err := n.resolve(cmd, b.namespace, args)
			if err != nil {
				return err
			}
			return b.ask(cmd, &out, &via, use{agent: n.agent, write: true, there: true}, func(ctx context.Context, c coord.Coordinator) error {
				v, err := n.find(ctx, run, c)
				if err != nil {
					return err
				}
				if err := mayRetry(v); err != nil {
					return err
				}
				r, err := d.resolution(v, coord.Failed)
				if err != nil {
					return err
				}
				if v, err = c.Permit(ctx, r); err != nil {
					return err
				}
				return printRun(cmd, out, runRowOf(v))
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	n.register(cmd)
	d.register(cmd)
	return cmd
}
