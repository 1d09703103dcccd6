package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/output"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// file reads the outermost map: first what holds for all agents, wherever it stands, and then the agents.
func (r *reader) file(root *yaml.Node, f *File) {
	var agents, defaults *value
	keys := append(slices.Clone(fileKeys),
		key[File]{name: "defaults", read: func(_ *reader, v value, _ *File) { defaults = &v }},
		key[File]{name: "agents", read: func(_ *reader, v value, _ *File) { agents = &v }})
	top := value{root, ""}
	given := mapping(r, top, f, keys)
	if _, ok := given["version"]; !ok && root.Kind == yaml.MappingNode {
		r.fail(top, "has no version", "write: version: 1")
	}
	if defaults != nil {
		r.policyRules(mapping(r, *defaults, &f.Defaults, policyKeys), f.Defaults, *defaults)
	}
	if f.Output.PerRun > 0 && f.Output.PerRun < output.MinPerRun {
		r.fail(given["output"], "per_run is below "+showSize(output.MinPerRun), "write 0B to keep nothing")
	}
	if f.Output.PerRun > f.Output.Total {
		r.fail(given["output"], "per_run is above total", "")
	}
	if agents == nil {
		return
	}
	for _, p := range r.pairs(*agents) {
		if r.full() {
			return
		}
		if err := ident.Check("agent", p.name); err != nil {
			reason := err.Error()
			if e, ok := errors.AsType[*ident.Error](err); ok {
				reason = "the id " + e.Reason
			}
			r.fail(p.at, reason, "")
		} else if strings.HasPrefix(p.name, owner.Prefix) {
			r.fail(p.at, "the id begins with "+owner.Prefix+", as the leases of nodes do", "choose another")
		}
		a := Agent{ID: p.name, Policy: f.Defaults}
		r.agent(p.value, &a)
		f.Agents = append(f.Agents, a)
	}
	slices.SortFunc(f.Agents, func(a, b Agent) int { return strings.Compare(a.ID, b.ID) })
}

// agent reads one agent, which begins with the defaults.
func (r *reader) agent(v value, a *Agent) {
	keys := slices.Clone(agentKeys)
	for _, k := range policyKeys {
		keys = append(keys, key[Agent]{name: k.name, read: func(r *reader, v value, a *Agent) { k.read(r, v, &a.Policy) }})
	}
	before := len(r.found)
	given := mapping(r, v, a, keys)
	understood := len(r.found) == before
	spec, scheduled := given["schedule"]
	zone, zoned := given["tz"]
	r.schedule(spec, zone, scheduled, zoned, a)
	_, command := given["command"]
	request, http := given["http"]
	switch {
	case command && http:
		r.fail(request, "stands beside command", "an agent has one of the two")
	case understood && scheduled && !command && !http:
		r.fail(spec, "has nothing to run", "add command: [PROGRAM, ARG] or http: {url: URL}")
	}
	for _, name := range []string{"catchup", "catchup_window", "catchup_limit"} {
		if at, ok := given[name]; ok && !scheduled {
			r.fail(at, "means nothing without a schedule", "add schedule, or leave it out")
		}
	}
	if at, ok := given["catchup_limit"]; ok && scheduled && a.CatchUp != due.CatchUpAll {
		r.fail(at, "means nothing with catchup: "+string(a.CatchUp), "write catchup: all, or leave it out")
	}
	if http && len(a.Retry.ExitCodes) > 0 {
		if at, ok := given["retry"]; ok && has(at, "exit_codes") {
			r.fail(at, "exit_codes mean nothing with http: a request has none", "leave them out")
		}
		a.Retry.ExitCodes = nil // of the defaults
	}
	r.policyRules(given, a.Policy, v)
}

// has says whether a map has a key.
func has(v value, name string) bool {
	for i := 0; i < len(v.Content); i += 2 {
		if v.Content[i].Value == name {
			return true
		}
	}
	return false
}

// schedule reads spec and zone, and puts their mistakes where they are in the file.
func (r *reader) schedule(specAt, zoneAt value, scheduled, zoned bool, a *Agent) {
	name := "UTC"
	if zoned {
		text, ok := r.text(zoneAt, "the name of a time zone, such as Europe/Berlin")
		if !ok {
			zoned = false
		} else {
			name = text
		}
	}
	zone, err := schedule.LoadZone(name)
	if err != nil {
		reason, hint := err.Error(), ""
		if e, ok := errors.AsType[*schedule.ZoneError](err); ok {
			reason = short(e.Name) + " " + e.Reason
		}
		r.fail(zoneAt, reason, hint)
	}
	if !scheduled {
		if zoned {
			r.fail(zoneAt, "means nothing without a schedule", "add schedule, or leave it out")
		}
		return
	}
	text, ok := r.text(specAt, `a schedule such as "30 2 * * *"`)
	if !ok {
		return
	}
	spec, err := schedule.Parse(text)
	if e, ok := errors.AsType[*schedule.ParseError](err); ok {
		line, column := r.inside(specAt, e.Offset)
		reason := e.Reason
		if e.Column != "" {
			reason = e.Column + ": " + reason
		}
		r.add(line, column, specAt.key, reason, e.Hint)
		return
	}
	if err != nil {
		r.fail(specAt, err.Error(), "")
		return
	}
	if note := spec.Note(); note != "" {
		r.notes = append(r.notes, Note{specAt.Line, specAt.Column, specAt.key, note})
	}
	if zone != nil {
		a.Schedule = schedule.In(spec, zone)
	}
}

// policyRules checks what belongs together, where the policy is written.
func (r *reader) policyRules(given map[string]value, p Policy, all value) {
	probe, hasProbe := given["probe"]
	doubt, hasDoubt := given["on_doubt"]
	switch {
	case hasProbe && p.OnDoubt != dispatch.DoubtProbe:
		r.fail(probe, "means nothing with on_doubt: "+string(p.OnDoubt), "write on_doubt: probe, or leave it out")
	case hasDoubt && p.OnDoubt == dispatch.DoubtProbe && p.Probe == nil && !hasProbe:
		r.fail(doubt, "probe needs a command", "add probe: [PROGRAM, ARG]")
	}
	if retry, ok := given["retry"]; ok && p.Retry.BackoffMax < p.Retry.Backoff {
		r.fail(retry, "backoff_max "+showSpan(p.Retry.BackoffMax)+" is below backoff "+showSpan(p.Retry.Backoff), "")
	}
}

func (r *reader) http(v value, a *Agent) {
	h := HTTP{Method: "POST"}
	given := mapping(r, v, &h, httpKeys)
	if _, ok := given["url"]; !ok && v.Kind == yaml.MappingNode {
		r.fail(v, "has no url", "")
	}
	for name := range h.HeaderFiles {
		for other := range h.Headers {
			if strings.EqualFold(name, other) {
				r.fail(given["header_files"], "has "+name+", which is in headers too", "leave one of them out")
			}
		}
	}
	a.HTTP = &h
}

// retry changes what is given of the defaults.
func (r *reader) retry(v value, p *Policy) { mapping(r, v, &p.Retry, retryKeys) }

// failure takes the place of the defaults.
func (r *reader) failure(v value, p *Policy) {
	var f Failure
	given := mapping(r, v, &f, failureKeys)
	_, command := given["command"]
	hook, webhook := given["webhook"]
	secret, signed := given["secret_file"]
	if command && webhook {
		r.fail(hook, "stands beside command", "one of the two is told")
	}
	if signed && !webhook {
		r.fail(secret, "means nothing without webhook", "")
	}
	p.Failure = f
}

// url reads an address that has no password in it.
func (r *reader) url(v value, into *string) {
	text, ok := r.text(v, "a URL")
	if !ok {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		said := short(text)
		if strings.Contains(text, "@") {
			said = "this" // there may be a password in it; the parser's own reason would quote it, too
		}
		r.fail(v, said+" is not a URL", "write http://HOST:PORT/PATH or https://…")
	case u.User != nil:
		r.fail(v, "has a user or password in it", "write header_files: {Authorization: FILE}")
	case u.Fragment != "":
		r.fail(v, "has a fragment (#), which is never sent", "leave it out")
	default:
		*into = text
	}
}

// secretHeaders are not written into a file; ownHeaders are the node's.
var (
	secretHeaders = []string{"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"}
	ownHeaders    = []string{"idempotency-key", "host", "content-length", "transfer-encoding", "connection"}
)

// headers reads names with values, or with files that hold them.
func (r *reader) headers(v value, files bool) map[string]string {
	all, seen := map[string]string{}, map[string]bool{}
	for _, p := range r.pairs(v) {
		lower := strings.ToLower(p.name)
		switch {
		case !isToken(p.name):
			r.fail(p.at, "is not the name of a header", "")
		case seen[lower] && !p.repeated:
			r.fail(p.at, "is there twice: the case of letters does not count", "")
		case slices.Contains(ownHeaders, lower) || strings.HasPrefix(lower, "syncnode-"):
			r.fail(p.at, "is set by the node", "leave it out")
		case !files && slices.Contains(secretHeaders, lower):
			r.fail(p.at, "holds a secret, which is not written into this file", "write header_files: {"+p.name+": FILE}")
		}
		seen[lower] = true
		var text string
		if files {
			r.path(p.value, &text)
		} else if s, ok := r.text(p.value, "a text"); ok && strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			r.fail(p.value, "has more than one line, or control characters", "")
		} else {
			text = s
		}
		all[p.name] = text
	}
	if len(all) == 0 {
		return nil // as if it was not there
	}
	return all
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
