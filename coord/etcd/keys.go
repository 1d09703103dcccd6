package etcd

import (
	"strings"

	"github.com/syncnode/syncnode/internal/ident"
)

// rootBucket is the bucket that holds every packed run of an agent until it is split.
const rootBucket = "r1-"

// A layout spells the keys of one namespace. Ids have passed the check for ids, so that a slash in a
// key always ends an id.
type layout struct{ prefix string }

// Prefix is what all keys of a namespace begin with, those of its relay too: a role for syncnode needs no others.
func Prefix(namespace string) string { return "/syncnode/" + namespace + "/" }

func newLayout(namespace string) layout { return layout{Prefix(namespace)} }

func (l layout) meta() string               { return l.prefix + "meta" }
func (l layout) recovery() string           { return l.prefix + "recovery" }
func (l layout) offers() string             { return l.prefix + "offer/" }
func (l layout) offer(device string) string { return l.prefix + "offer/" + device }
func (l layout) leases() string             { return l.prefix + "lease/" }
func (l layout) epoch(agent string) string  { return l.prefix + "lease/" + agent + "/epoch" }
func (l layout) holder(agent string) string { return l.prefix + "lease/" + agent + "/holder" }
func (l layout) paused(agent string) string { return l.prefix + "agent/" + agent + "/paused" }
func (l layout) runs() string               { return l.prefix + "run/" }
func (l layout) runsOf(agent string) string { return l.prefix + "run/" + agent + "/" }
func (l layout) run(agent, run string) string {
	return l.prefix + "run/" + agent + "/" + run
}

// live is the liveness key of a process; empty if there is none.
func (l layout) live(device, liveness string) string {
	if liveness == "" {
		return ""
	}
	return l.prefix + "live/" + device + "/" + liveness
}

// bucket is the key of the bucket at the given depth that a run belongs to: its name is a prefix of
// the run's id, and each split makes it longer by one character.
func (l layout) bucket(agent, run string, depth int) string {
	name := rootBucket
	if rest, ok := strings.CutPrefix(run, rootBucket); ok {
		name += rest[:min(depth, len(rest))]
	}
	return l.prefix + "done/" + agent + "/" + name
}

// parseRun splits the key of a run's entry. A key with a name that nothing can have is none.
func (l layout) parseRun(key string) (agent, run string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.runs())
	if !ok {
		return "", "", false
	}
	agent, run, ok = strings.Cut(rest, "/")
	return agent, run, ok && ident.Check("agent", agent) == nil && ident.Check("run", run) == nil
}

// parseLease splits a key below leases.
func (l layout) parseLease(key string) (agent, kind string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.leases())
	if !ok {
		return "", "", false
	}
	agent, kind, ok = strings.Cut(rest, "/")
	return agent, kind, ok && agent != "" && (kind == "epoch" || kind == "holder")
}
