package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/relay"
	relaydir "github.com/syncnode/syncnode/relay/dir"
	relayetcd "github.com/syncnode/syncnode/relay/etcd"
)

// placeFlags say where peers meet.
type placeFlags struct {
	relay    string
	max      int64
	existing bool // a folder is not made: the verb shows or decides about what is there
}

func (p *placeFlags) register(flags *pflag.FlagSet, none bool) {
	places := "etcd or dir:PATH (a shared or synchronised folder)"
	if none {
		places = "etcd, dir:PATH (a shared or synchronised folder) or none"
	}
	flags.StringVar(&p.relay, "relay", "etcd", "the `PLACE` where peers meet: "+places)
	flags.Int64Var(&p.max, "relay-max-bytes", relayetcd.DefaultMaxBytes, "the `BYTES` of op lines that the relay may hold in etcd")
}

// dir is the folder of --relay dir:PATH; empty if it is another relay.
func (p *placeFlags) dir() string {
	path, is := strings.CutPrefix(p.relay, "dir:")
	if !is {
		return ""
	}
	return path
}

func (p *placeFlags) check(none bool) error {
	switch {
	case p.relay == "etcd", p.dir() != "", p.relay == "none" && none:
		return nil
	case none:
		return usagef("--relay %q: want etcd, dir:PATH or none", p.relay)
	}
	return usagef("--relay %q: want etcd or dir:PATH", p.relay)
}

// open opens the relay under its name; a folder needs no backend. It is open for as long as the process lives.
func (p *placeFlags) open(ctx context.Context, be *backend, namespace string) (name string, r relay.Relay, err error) {
	if path := p.dir(); path != "" {
		r, err := relaydir.Open(relaydir.Config{Path: path, Namespace: namespace, Existing: p.existing})
		if p.existing && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no relay of namespace %s in the folder %s, and none was made: syncnode serve --relay dir:%s makes one", namespace, path, path)
		}
		return "dir", r, err
	}
	f := be.flags
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("%s did not answer within %s", be.where, f.timeout))
	defer cancel()
	r, err = relayetcd.Open(ctx, relayetcd.Config{Client: be.client, Namespace: namespace, MaxBytes: p.max})
	return "etcd", r, causeOf(ctx, err)
}
