package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
	coordremote "github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/relay"
	relayremote "github.com/syncnode/syncnode/relay/remote"
)

// What a node may share, and under which pattern.
const (
	shareRelay, relayPattern = "relay", "POST " + relayremote.Prefix + "{verb}"
	shareCoord, coordPattern = "coord", "POST " + coordremote.Prefix + "{verb}"
)

// checkShare checks what is shared.
func (l *listenFlags) checkShare() error {
	for _, part := range l.share {
		if part != shareRelay && part != shareCoord {
			return usagef("--share %q: want relay, coord or both", part)
		}
	}
	if len(l.share) > 0 && slices.Equal(l.listen, []string{"none"}) {
		return usagef("--share is for those who call --listen, and --listen is none")
	}
	return nil
}

// mounts are the routes of what is shared. Its handlers bound what they read by themselves, a little below this. The ledger is
// always there for who owns the node: verbs of this data directory ask it.
func (l *listenFlags) mounts() (all []api.Mount) {
	if slices.Contains(l.share, shareRelay) {
		all = append(all, api.Mount{Pattern: relayPattern, Role: api.Execute, MaxBody: 8<<20 + relay.MaxCheckpoint + 1<<20})
	}
	return append(all, api.Mount{Pattern: coordPattern, Role: api.Execute, MaxBody: 2 << 20})
}

// shared are the handlers of what is shared.
func (s *serving) shared() map[string]http.Handler {
	if s.share != nil {
		return s.share
	}
	s.share = map[string]http.Handler{}
	if r, ok := s.relays[s.f.places.places[0]]; ok {
		s.share[relayPattern] = relayremote.NewHandler(relayremote.HandlerConfig{Relay: r, Allow: mayRelay})
	}
	s.share[coordPattern] = s.unlessShared(coordremote.NewHandler(coordremote.HandlerConfig{Open: s.process, Allow: mayCoord}))
	return s.share
}

// unlessShared keeps the ledger for the owner of the node where it is not shared.
func (s *serving) unlessShared(h http.Handler) http.Handler {
	if slices.Contains(s.f.api.share, shareCoord) {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.CallerOf(r.Context()).Owner {
			api.NotThere(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// process opens a coordinator for a process that calls. What it held at a node that died is proved dead by nobody but itself.
func (s *serving) process(ctx context.Context, p coord.Process, dead func(string) bool) (coord.Coordinator, error) {
	return etcd.Open(ctx, etcd.Config{
		Client: s.be.client, Namespace: s.be.flags.namespace, Process: p, Logger: s.log,
		Dead: func(liveness string, _ coord.Process) bool { return dead(liveness) },
	})
}

// mayRelay binds a caller to its devices. The logs in a relay tell of all agents, so it is for who may see all.
func mayRelay(r *http.Request, c relayremote.Call) error {
	who := api.CallerOf(r.Context())
	if !slices.Contains(who.Agents, "*") {
		return fmt.Errorf("%s is bound to some agents, and a relay is of all: its token needs agents=*", who.Name)
	}
	if c.Device != "" && !who.MayDevice(c.Device) {
		return fmt.Errorf("%s is not bound to device %s", who.Name, c.Device)
	}
	return nil
}

// mayCoord binds a caller to its agents and devices, and leaves to people what is theirs.
func mayCoord(r *http.Request, c coordremote.Call) error {
	who := api.CallerOf(r.Context())
	people := slices.ContainsFunc(coordremote.Verbs(), func(v coordremote.Verb) bool { return v.Name == c.Verb && v.People })
	all := strings.Contains(" leases list ", " "+c.Verb+" ") && c.Agent == ""
	switch {
	case people && !who.May(api.Operate):
		return fmt.Errorf("%s may not %s: that is for the role operate", who.Name, c.Verb)
	case c.Agent != "" && !who.MayAgent(c.Agent):
		return fmt.Errorf("%s is not bound to agent %s", who.Name, c.Agent)
	case all && !slices.Contains(who.Agents, "*"):
		return fmt.Errorf("%s is bound to some agents, and may not list all", who.Name)
	case c.Device != "" && !who.MayDevice(c.Device):
		return fmt.Errorf("%s is not bound to device %s", who.Name, c.Device)
	}
	return nil
}
