package etcd

import (
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// A Right is a permission of etcd on a key, or on all that begin with it.
type Right struct {
	Key    string
	Prefix bool
	Write  bool // and read
	For    string
}

// Rights are the least that a device needs to run the agents under the namespace; all agents if none are named. relay adds what a node needs
// to exchange logs through the same etcd, operator what a person needs who pauses agents.
func Rights(namespace, device string, agents []string, relay, operator bool) ([]Right, error) {
	err := ident.Check("namespace", namespace)
	if err == nil {
		err = ident.Check("device", device)
	}
	for _, a := range agents {
		if err == nil {
			err = ident.Check("agent", a)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	k := newLayout(namespace)
	all := []Right{
		{Key: k.prefix, Prefix: true, For: "read the whole ledger"},
		{Key: k.meta(), Write: true, For: "make the ledger, once"},
		{Key: k.prefix + "live/" + device + "/", Prefix: true, Write: true, For: "show that its processes are alive"},
		{Key: k.offer(device), Write: true, For: "say what it told a ledger that went back"},
		{Key: k.recovery(), Write: true, For: "set the recovery gate"},
	}
	if len(agents) == 0 {
		all = append(all, Right{Key: k.leases(), Prefix: true, Write: true, For: "hold agents"}, Right{Key: k.runs(), Prefix: true, Write: true, For: "record runs"})
	}
	for _, a := range slices.Compact(slices.Sorted(slices.Values(agents))) {
		all = append(all, Right{Key: k.leases() + a + "/", Prefix: true, Write: true, For: "hold the agent"}, Right{Key: k.runsOf(a), Prefix: true, Write: true, For: "record its runs"})
	}
	if relay {
		all = append(all, Right{Key: k.prefix + "relay/", Prefix: true, Write: true, For: "exchange logs (syncnode serve with --relay etcd)"})
		if len(agents) > 0 {
			all = append(all, Right{Key: k.leases() + "node." + device + "/", Prefix: true, Write: true, For: "show that it is served"})
		}
	}
	if operator {
		all = append(all, Right{Key: k.prefix + "agent/", Prefix: true, Write: true, For: "pause and resume agents"})
	}
	return all, nil
}
