package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/relay"
	relaydir "github.com/syncnode/syncnode/relay/dir"
	relayetcd "github.com/syncnode/syncnode/relay/etcd"
	relayremote "github.com/syncnode/syncnode/relay/remote"
)

// placeFlags say where peers meet.
type placeFlags struct {
	relay    string
	max      int64
	token    string // a file
	cacert   string
	cert     string
	key      string
	existing bool // a folder is not made: the verb shows or decides about what is there
}

const places = "etcd, dir:PATH (a shared or synchronised folder), or where a node shares its relay: https://HOST:PORT, http://HOST:PORT or unix:PATH"

func (p *placeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.relay, "relay", "etcd", "the `PLACE` where peers meet: "+places)
	p.registerAccess(flags)
}

func (p *placeFlags) registerAccess(flags *pflag.FlagSet) {
	flags.Int64Var(&p.max, "relay-max-bytes", relayetcd.DefaultMaxBytes, "the `BYTES` of op lines that the relay may hold in etcd")
	flags.StringVar(&p.token, "relay-token-file", "", "`FILE` with the token for the node that shares the relay; read again for each call")
	flags.StringVar(&p.cacert, "relay-cacert", "", "`FILE` with the certificates that the node's own must be signed by")
	flags.StringVar(&p.cert, "relay-cert", "", "`FILE` with our certificate for the node")
	flags.StringVar(&p.key, "relay-key", "", "`FILE` with the key of --relay-cert")
}

// remote reports whether another node shares the relay.
func (p *placeFlags) remote() bool {
	scheme, _, _ := strings.Cut(p.relay, ":")
	return scheme == "http" || scheme == "https" || scheme == "unix"
}

// dir is the folder of --relay dir:PATH; empty if it is another relay.
func (p *placeFlags) dir() string {
	path, is := strings.CutPrefix(p.relay, "dir:")
	if !is {
		return ""
	}
	return path
}

func (p *placeFlags) check() error {
	if err := p.checkAccess(p.remote()); err != nil {
		return err
	}
	return p.checkPlace()
}

// checkAccess checks what is for relays that nodes share only.
func (p *placeFlags) checkAccess(remote bool) error {
	switch {
	case (p.cert == "") != (p.key == ""):
		return usagef("--relay-cert and --relay-key belong together")
	case !remote && p.token+p.cacert+p.cert != "":
		return usagef("--relay-token-file, --relay-cacert and --relay-cert are for a relay that a node shares: --relay https://HOST:PORT")
	}
	return nil
}

// wantPlace is what --relay takes, but for none.
const wantPlace = "want etcd, dir:PATH, https://HOST:PORT, http://HOST:PORT or unix:PATH"

func (p *placeFlags) checkPlace() error {
	switch {
	case p.remote():
		if _, err := relayremote.New(p.client(nil)); err != nil {
			return usagef("--relay: %v", err)
		}
		return nil
	case p.relay == "etcd", p.dir() != "":
		return nil
	}
	return usagef("--relay %q: %s", p.relay, wantPlace)
}

// client says where the node is that shares the relay.
func (p *placeFlags) client(settings *tls.Config) relayremote.Config {
	cfg := relayremote.Config{URL: p.relay, TLS: settings}
	if p.token != "" {
		cfg.Token = func() (string, error) {
			text, err := os.ReadFile(p.token)
			token := strings.TrimSpace(string(text))
			if err == nil && token == "" {
				err = fmt.Errorf("%s is empty", p.token)
			}
			return token, err
		}
	}
	return cfg
}

// dial opens the relay that a node shares. Nothing is asked of it yet.
func (p *placeFlags) dial() (relay.Relay, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.cacert != "" {
		pem, err := os.ReadFile(p.cacert)
		if err != nil {
			return nil, fmt.Errorf("--relay-cacert: %w", err)
		}
		if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--relay-cacert: %s has no certificate", p.cacert)
		}
	}
	if p.cert != "" {
		pair, err := tls.LoadX509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, fmt.Errorf("--relay-cert: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return relayremote.New(p.client(settings))
}

// open opens the relay; a folder needs no backend. It is open for as long as the process lives.
func (p *placeFlags) open(ctx context.Context, be *backend, namespace string) (relay.Relay, error) {
	if path := p.dir(); path != "" {
		r, err := relaydir.Open(relaydir.Config{Path: path, Namespace: namespace, Existing: p.existing})
		if p.existing && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no relay of namespace %s in the folder %s, and none was made: syncnode serve --relay dir:%s makes one", namespace, path, path)
		}
		return r, err
	}
	if p.remote() {
		return p.dial()
	}
	f := be.flags
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("%s did not answer within %s", be.where, f.timeout))
	defer cancel()
	r, err := relayetcd.Open(ctx, relayetcd.Config{Client: be.client, Namespace: namespace, MaxBytes: p.max})
	return r, causeOf(ctx, err)
}
