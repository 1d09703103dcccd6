package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// Limits of what a file may say.
const (
	longest    = 10 * 365 * 24 * time.Hour
	maxLimit   = 1000
	maxRetries = 100
	maxOutput  = 1 << 40
)

// fileKeys are those of the file beside agents and defaults.
var fileKeys = []key[File]{
	{name: "version", doc: "The format of this file.",
		read: func(r *reader, v value, _ *File) { var n int; r.number(v, &n, 1, 1) },
		show: func(*File) (string, bool) { return "1", true }},
	{name: "drain", doc: "How long a stop waits for what runs, before it is told to end.",
		read: func(r *reader, v value, f *File) { r.span(v, &f.Drain, 0, longest) },
		show: func(f *File) (string, bool) { return showSpan(f.Drain), true }},
	{name: "catchup_rate", doc: "How many occurrences that are more than 30s late are begun, over all agents: N/s, N/m, N/h or none.",
		read: func(r *reader, v value, f *File) { r.rate(v, &f.CatchUpRate) },
		show: func(f *File) (string, bool) { return f.CatchUpRate.String(), true }},
	{name: "output", doc: "What commands print is kept on this node's disk: of a run, and in total. B, KiB, MiB, GiB.",
		read: func(r *reader, v value, f *File) { mapping(r, v, &f.Output, outputKeys) },
		show: func(f *File) (string, bool) { return flow(&f.Output, outputKeys), true }},
}

var outputKeys = []key[Output]{
	{name: "per_run",
		read: func(r *reader, v value, o *Output) { r.size(v, &o.PerRun, maxOutput) },
		show: func(o *Output) (string, bool) { return showSize(o.PerRun), true }},
	{name: "total",
		read: func(r *reader, v value, o *Output) { r.size(v, &o.Total, maxOutput) },
		show: func(o *Output) (string, bool) { return showSize(o.Total), true }},
}

// agentKeys are those of an agent that have no default.
var agentKeys = []key[Agent]{
	{name: "schedule", example: `"30 2 * * *"`, doc: "Five columns, or @hourly, @daily, @every 90s, …: see syncnode schedule next --help. Without: by API and trigger only.",
		read: func(*reader, value, *Agent) {}, // with tz: neither means anything alone
		show: func(a *Agent) (string, bool) {
			if a.Schedule == nil {
				return "", false
			}
			return strconv.Quote(a.Schedule.Spec().String()), true
		}},
	{name: "tz", example: "Europe/Berlin", doc: "The time zone of the schedule, an IANA name; UTC if not given, never the host's own.",
		read: func(*reader, value, *Agent) {},
		show: func(a *Agent) (string, bool) {
			if a.Schedule == nil {
				return "", false
			}
			return a.Schedule.Zone().String(), true
		}},
	{name: "command", example: `["/opt/report.sh", "--all"]`, doc: "The program and its arguments; no shell. Or:",
		read: func(r *reader, v value, a *Agent) { r.argv(v, &a.Command) },
		show: func(a *Agent) (string, bool) { return showList(a.Command), a.Command != nil }},
	{name: "http", doc: "A request: method (POST if not given), url, headers (name: value), header_files (name: file with the value; for secrets).",
		read: func(r *reader, v value, a *Agent) { r.http(v, a) },
		show: func(a *Agent) (string, bool) {
			if a.HTTP == nil {
				return "", false
			}
			return flow(a.HTTP, httpKeys), true
		}},
}

var httpKeys = []key[HTTP]{
	{name: "method",
		read: func(r *reader, v value, h *HTTP) {
			word(r, v, &h.Method, "POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")
		},
		show: func(h *HTTP) (string, bool) { return h.Method, true }},
	{name: "url",
		read: func(r *reader, v value, h *HTTP) { r.url(v, &h.URL) },
		show: func(h *HTTP) (string, bool) { return strconv.Quote(h.URL), true }},
	{name: "headers",
		read: func(r *reader, v value, h *HTTP) { h.Headers = r.headers(v, false) },
		show: func(h *HTTP) (string, bool) { return showMap(h.Headers), len(h.Headers) > 0 }},
	{name: "header_files",
		read: func(r *reader, v value, h *HTTP) { h.HeaderFiles = r.headers(v, true) },
		show: func(h *HTTP) (string, bool) { return showMap(h.HeaderFiles), len(h.HeaderFiles) > 0 }},
}

// policyKeys are those of an agent that have a default; they may stand in defaults too.
var policyKeys = []key[Policy]{
	{name: "timeout", doc: "A run that takes longer is stopped; 0s: never.",
		read: func(r *reader, v value, p *Policy) { r.span(v, &p.Timeout, 0, longest) },
		show: func(p *Policy) (string, bool) { return showSpan(p.Timeout), true }},
	{name: "overlap", doc: "An occurrence that comes due while a run of the agent goes on: skip, or queue (the newest waits, within catchup_window).",
		read: func(r *reader, v value, p *Policy) { word(r, v, &p.Overlap, due.OverlapSkip, due.OverlapQueue) },
		show: func(p *Policy) (string, bool) { return string(p.Overlap), true }},
	{name: "catchup", doc: "What came due while no node looked: none, last (the newest one), or all (the newest catchup_limit ones).",
		read: func(r *reader, v value, p *Policy) {
			word(r, v, &p.CatchUp, due.CatchUpNone, due.CatchUpLast, due.CatchUpAll)
		},
		show: func(p *Policy) (string, bool) { return string(p.CatchUp), true }},
	{name: "catchup_window", doc: "An occurrence that is later than this is not begun any more; at least 30s.",
		read: func(r *reader, v value, p *Policy) { r.span(v, &p.Window, schedule.Tolerance, longest) },
		show: func(p *Policy) (string, bool) { return showSpan(p.Window), true }},
	{name: "catchup_limit", doc: "With catchup: all: how many may wait, 1 to 1000.",
		read: func(r *reader, v value, p *Policy) { r.number(v, &p.Limit, 1, maxLimit) },
		show: func(p *Policy) (string, bool) { return strconv.Itoa(p.Limit), true }},
	{name: "on_doubt", doc: "A run whose earlier attempt may have happened: hold (a person decides), retry (for effects that may happen twice), or probe.",
		read: func(r *reader, v value, p *Policy) {
			word(r, v, &p.OnDoubt, dispatch.DoubtHold, dispatch.DoubtRetry, dispatch.DoubtProbe)
		},
		show: func(p *Policy) (string, bool) { return string(p.OnDoubt), true }},
	{name: "probe", example: `["/opt/did-it-happen"]`, doc: "With on_doubt: probe: a command that exits 0 if it happened, 1 if it did not.",
		read: func(r *reader, v value, p *Policy) { r.argv(v, &p.Probe) },
		show: func(p *Policy) (string, bool) { return showList(p.Probe), p.Probe != nil }},
	{name: "on_lost", doc: "When the lease can no longer be trusted: stop what runs, or keep it running.",
		read: func(r *reader, v value, p *Policy) { word(r, v, &p.OnLost, dispatch.LostStop, dispatch.LostKeep) },
		show: func(p *Policy) (string, bool) { return string(p.OnLost), true }},
	{name: "if_failed", doc: "A run that failed elsewhere or earlier: keep it so, or retry.",
		read: func(r *reader, v value, p *Policy) {
			word(r, v, &p.IfFailed, dispatch.FailedKeep, dispatch.FailedRetry)
		},
		show: func(p *Policy) (string, bool) { return string(p.IfFailed), true }},
	{name: "retry", doc: "A failed attempt is repeated count times (0: never), after backoff, doubled each time up to backoff_max;\nwith exit_codes ([75]) only after these.",
		read: func(r *reader, v value, p *Policy) { r.retry(v, p) },
		show: func(p *Policy) (string, bool) { return flow(&p.Retry, retryKeys), true }},
	{name: "on_failure", doc: "Who is told of a run that failed for good: command (a list), or webhook (URL) with secret_file (its content signs the\nbody); {}: nobody.",
		read: func(r *reader, v value, p *Policy) { r.failure(v, p) },
		show: func(p *Policy) (string, bool) { return flow(&p.Failure, failureKeys), true }},
	{name: "ttl", doc: "How long a lease lives without renewal: above 0s, at most 5m; rounded up to 2s, 5s, 15s, 30s, 1m or 5m.",
		read: func(r *reader, v value, p *Policy) { r.span(v, &p.TTL, 1, coord.MaxTTL) },
		show: func(p *Policy) (string, bool) { return showSpan(p.TTL), true }},
	{name: "grace", doc: "From TERM to KILL; above 0s.",
		read: func(r *reader, v value, p *Policy) { r.span(v, &p.Grace, 1, longest) },
		show: func(p *Policy) (string, bool) { return showSpan(p.Grace), true }},
}

var retryKeys = []key[Retry]{
	{name: "count",
		read: func(r *reader, v value, x *Retry) { r.number(v, &x.Count, 0, maxRetries) },
		show: func(x *Retry) (string, bool) { return strconv.Itoa(x.Count), true }},
	{name: "backoff",
		read: func(r *reader, v value, x *Retry) { r.span(v, &x.Backoff, 0, longest) },
		show: func(x *Retry) (string, bool) { return showSpan(x.Backoff), true }},
	{name: "backoff_max",
		read: func(r *reader, v value, x *Retry) { r.span(v, &x.BackoffMax, 0, longest) },
		show: func(x *Retry) (string, bool) { return showSpan(x.BackoffMax), true }},
	{name: "exit_codes",
		read: func(r *reader, v value, x *Retry) { r.codes(v, &x.ExitCodes) },
		show: func(x *Retry) (string, bool) {
			return strings.ReplaceAll(fmt.Sprint(x.ExitCodes), " ", ", "), true
		}},
}

var failureKeys = []key[Failure]{
	{name: "command",
		read: func(r *reader, v value, x *Failure) { r.argv(v, &x.Command) },
		show: func(x *Failure) (string, bool) { return showList(x.Command), x.Command != nil }},
	{name: "webhook",
		read: func(r *reader, v value, x *Failure) { r.url(v, &x.Webhook) },
		show: func(x *Failure) (string, bool) { return strconv.Quote(x.Webhook), x.Webhook != "" }},
	{name: "secret_file",
		read: func(r *reader, v value, x *Failure) { r.path(v, &x.SecretFile) },
		show: func(x *Failure) (string, bool) { return strconv.Quote(x.SecretFile), x.SecretFile != "" }},
}

// places says where a key belongs that stands in the wrong map.
var places = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	note := func(name, place string) { all[name] = cmp.Or(all[name], place) }
	for _, k := range policyKeys {
		note(k.name, "an agent or defaults")
	}
	for _, k := range agentKeys {
		note(k.name, "an agent")
	}
	for _, k := range fileKeys {
		note(k.name, "the outermost map")
	}
	note("agents", "the outermost map")
	note("defaults", "the outermost map")
	for _, k := range retryKeys {
		note(k.name, "retry")
	}
	for _, k := range httpKeys {
		note(k.name, "http")
	}
	for _, k := range failureKeys {
		note(k.name, "on_failure")
	}
	for _, k := range outputKeys {
		note(k.name, "output")
	}
	return all
})

// flow shows a map on one line.
func flow[T any](v *T, keys []key[T]) string {
	var items []string
	for _, k := range keys {
		if text, ok := k.show(v); ok {
			items = append(items, k.name+": "+text)
		}
	}
	if len(items) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

func showList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func showMap(m map[string]string) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		items = append(items, strconv.Quote(name)+": "+strconv.Quote(m[name]))
	}
	return "{ " + strings.Join(items, ", ") + " }"
}
