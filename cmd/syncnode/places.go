package main

import (
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/relay"
)

// placesFlags say at which relays a node meets its peers.
type placesFlags struct {
	placeFlags          // what is said of all of them; its relay is not used
	places     []string // as they were given
}

func (p *placesFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&p.places, "relay", []string{"etcd"}, "the `PLACES` where peers meet, each pumped at its own pace: "+places+"; none")
	p.registerAccess(flags)
}

// none reports whether this node meets nobody.
func (p *placesFlags) none() bool { return slices.Equal(p.places, []string{"none"}) }

// each gives the flags of every place, in their order.
func (p *placesFlags) each() (all []placeFlags) {
	if p.none() {
		return nil
	}
	for _, at := range p.places {
		one := p.placeFlags
		one.relay = at
		all = append(all, one)
	}
	return all
}

func (p *placesFlags) check() error {
	all, remote := p.each(), false
	for i, one := range all {
		remote = remote || one.remote()
		switch {
		case one.relay == "none":
			return usagef("--relay none goes with no other place")
		case slices.Contains(p.places[:i], one.relay):
			return usagef("--relay %s is given twice", one.relay)
		}
		if err := one.checkPlace(); err != nil {
			return usagef("%v, or none", err)
		}
	}
	if len(p.places) == 0 {
		return usagef("--relay is empty: %s, or none", wantPlace)
	}
	return p.checkAccess(remote)
}

// open opens every relay under what it was given as.
func (p *placesFlags) open(ctx context.Context, be *backend, namespace string) (map[string]relay.Relay, error) {
	relays := map[string]relay.Relay{}
	for _, one := range p.each() {
		r, err := one.open(ctx, be, namespace)
		if err != nil {
			return nil, err
		}
		relays[one.relay] = r
	}
	return relays, nil
}
