package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

// policyFlags are the rules of a run.
type policyFlags struct {
	ifHeld, ifDone, ifFailed, onDoubt, onLost string
	probe                                     string
	timeout, ttl, grace, splay                time.Duration
}

func (p *policyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.ifHeld, "if-held", "skip", "`POLICY` when the agent is busy: skip, wait, wait=D or fail")
	flags.StringVar(&p.ifDone, "if-done", "ok", "`POLICY` when the run is committed already: ok (0) or fail (110)")
	flags.StringVar(&p.ifFailed, "if-failed", "keep", "`POLICY` when the run failed before: keep (115) or retry")
	flags.StringVar(&p.onDoubt, "on-doubt", "hold", "`POLICY` when an earlier attempt may have run: hold (112), retry (for effects that may happen twice) or probe")
	flags.StringVar(&p.probe, "probe", "", "with --on-doubt probe: an executable (`PATH`, no shell) that exits 0 if it happened, 1 if it did not")
	flags.StringVar(&p.onLost, "on-lost", "stop", "`POLICY` when the lease can no longer be trusted: stop the command, or keep it running")
	flags.DurationVar(&p.timeout, "timeout", 0, "stop the command after `D` (124)")
	flags.DurationVar(&p.ttl, "ttl", coord.DefaultTTL, "how long the lease lives without a renewal; rounded up to 2, 5, 15, 30, 60 or 300 s")
	flags.DurationVar(&p.grace, "grace", dispatch.DefaultGrace, "from TERM to KILL")
	flags.DurationVar(&p.splay, "splay", 0, "wait a random time up to `D` before the start, so that a fleet does not ask at once")
}

// job turns the flags into rules, or says which one is wrong.
func (p *policyFlags) job() (dispatch.Job, error) {
	j := dispatch.Job{
		IfDone: dispatch.IfDone(p.ifDone), IfFailed: dispatch.IfFailed(p.ifFailed), OnDoubt: dispatch.OnDoubt(p.onDoubt),
		OnLost: dispatch.OnLost(p.onLost), Timeout: p.timeout, TTL: p.ttl, Grace: p.grace,
	}
	word, wait, given := strings.Cut(p.ifHeld, "=")
	j.IfHeld = dispatch.IfHeld(word)
	if given {
		d, err := time.ParseDuration(wait)
		if err != nil || d <= 0 || word != "wait" {
			return j, p.wrongIfHeld()
		}
		j.HeldWait = d
	}
	if !slices.Contains([]string{"skip", "wait", "fail"}, word) {
		return j, p.wrongIfHeld()
	}
	for _, c := range []struct {
		flag, got string
		want      []string
	}{
		{"if-done", p.ifDone, []string{"ok", "fail"}},
		{"if-failed", p.ifFailed, []string{"keep", "retry"}},
		{"on-doubt", p.onDoubt, []string{"hold", "retry", "probe"}},
		{"on-lost", p.onLost, []string{"stop", "keep"}},
	} {
		if err := oneOf(c.flag, c.got, c.want...); err != nil {
			return j, err
		}
	}
	if (p.onDoubt == "probe") != (p.probe != "") {
		return j, usagef("--on-doubt probe and --probe PATH belong together")
	}
	for flag, d := range map[string]time.Duration{"timeout": p.timeout, "grace": p.grace, "splay": p.splay} {
		if d < 0 {
			return j, usagef("--%s %s is negative", flag, d)
		}
	}
	return j, checkTTL(p.ttl)
}

func checkTTL(ttl time.Duration) error {
	if ttl <= 0 || ttl > coord.MaxTTL {
		return usagef("--ttl %s: must be above 0 and at most %s", ttl, coord.MaxTTL)
	}
	return nil
}

func (p *policyFlags) wrongIfHeld() error {
	return usagef("--if-held %q: want skip, wait, wait=D (such as wait=10m) or fail", p.ifHeld)
}

// oneOf refuses a word that is not among those that a flag takes, two or more.
func oneOf(flag, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	last := len(want) - 1
	return usagef("--%s %q: want %s or %s", flag, got, strings.Join(want[:last], ", "), want[last])
}

// defaultBusyWait is how long a busy embedded directory is waited for where nothing else was said.
const defaultBusyWait = time.Minute

// busyWait is how long to wait for an embedded etcd that another process uses. Busy is not held: what is waited
// for is the directory, whichever agent uses it.
func (p *policyFlags) busyWait(given bool) time.Duration {
	word, wait, _ := strings.Cut(p.ifHeld, "=")
	d, err := time.ParseDuration(wait)
	switch {
	case word == "fail":
		return 0
	case err == nil:
		return d
	case given && word == "wait":
		return 365 * 24 * time.Hour
	default:
		return defaultBusyWait
	}
}

func cmdChanged(cmd *cobra.Command, flag string) bool { return cmd.Flags().Changed(flag) }
