package api

import (
	"context"
	"slices"
	"strings"
)

// A Role is what a caller may do. No role contains another.
type Role string

const (
	// Open routes answer everybody: they tell nothing about runs.
	Open Role = "open"
	// Observe may look.
	Observe Role = "observe"
	// Execute may claim runs and be their effect.
	Execute Role = "execute"
	// Operate may decide about runs and agents as a person does.
	Operate Role = "operate"
)

var roles = []Role{Observe, Execute, Operate}

// A Caller is who sent a request, and what they may do. The zero Caller may do nothing but ask what is open.
type Caller struct {
	Name  string
	Roles []Role
	// Agents and Devices are ids, or beginnings of ids followed by "*".
	Agents, Devices []string
	// Owner: it is the user of this process, or root, at the other end of the socket.
	Owner bool
}

// May reports whether the caller has the role.
func (c Caller) May(r Role) bool { return r == Open || slices.Contains(c.Roles, r) }

// MayAgent reports whether the caller may see and use the agent.
func (c Caller) MayAgent(id string) bool { return matches(c.Agents, id) }

// MayDevice reports whether the caller may act as the device.
func (c Caller) MayDevice(id string) bool { return matches(c.Devices, id) }

func matches(patterns []string, id string) bool {
	for _, p := range patterns {
		if begin, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(id, begin) || p == id {
			return true
		}
	}
	return false
}

// everything is a caller that is bound to no agent or device.
func everything(name string, roles ...Role) Caller {
	return Caller{Name: name, Roles: roles, Agents: []string{"*"}, Devices: []string{"*"}}
}

type callerKey struct{}

// CallerOf is who sent the request with this context.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}
