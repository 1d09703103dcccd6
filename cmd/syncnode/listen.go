package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/metrics"
)

// listenFlags say where a node answers, and whom.
type listenFlags struct {
	listen        []string
	tokens        string
	cert, key, ca string
	hosts         []string
	share         []string
}

func (l *listenFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&l.listen, "listen", nil, "answer on these `ADDRESSES`, and nowhere else: unix:PATH or HOST:PORT; none: nowhere (unix:<data-dir>/node.sock, "+
		"where exec, agent and run look for the node of a data directory: name it too)")
	flags.StringVar(&l.tokens, "tokens", "", "`FILE` that says who may use the API and for what; only its owner may read it; it is read again when it changes")
	flags.StringVar(&l.cert, "tls-cert", "", "`FILE` with the certificate of HOST:PORT; read again when it changes")
	flags.StringVar(&l.key, "tls-key", "", "`FILE` with the key of --tls-cert")
	flags.StringVar(&l.ca, "tls-client-ca", "", "`FILE` with the authorities of client certificates")
	flags.StringSliceVar(&l.hosts, "allow-host", nil, "further `NAMES` that clients may call HOST:PORT")
	flags.StringSliceVar(&l.share, "share", nil, "let others use this node's `PARTS` through --listen: relay, coord (leases and ledger); none unless given")
}

func (l *listenFlags) check() error {
	if (l.cert == "") != (l.key == "") || l.ca != "" && l.cert == "" {
		return usagef("--tls-cert and --tls-key belong together, and --tls-client-ca to them")
	}
	for _, a := range l.listen {
		if _, err := api.ParseAddress(a); err != nil && a != "none" {
			return usagef("--listen %v; or none", err)
		}
	}
	return l.checkShare()
}

// nodeSocket is where the node of a data directory answers if it was not told otherwise.
func nodeSocket(dataDir string) string { return filepath.Join(dataDir, "node.sock") }

// A door is the API of one serve, for as long as the process lives.
type door struct {
	server *api.Server
	events *events.Ring
	shown  *metrics.Metrics
	done   chan error // what the server ended with
	stop   context.CancelFunc
}

// open answers from now on; there is no node behind it yet.
func (l *listenFlags) open(dataDir string, log *slog.Logger, fail context.CancelCauseFunc) (*door, error) {
	cfg, sec, err := l.config(log)
	if err != nil {
		return nil, err
	}
	d := &door{events: events.New(), done: make(chan error, 1)}
	cfg.Events = d.events
	d.server = d.measured(cfg)
	listeners, err := l.listeners(dataDir, sec, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go func() {
		err := d.server.Serve(ctx, listeners...)
		if err != nil {
			fail(err)
		}
		d.done <- err
	}()
	return d, nil
}

func (l *listenFlags) config(log *slog.Logger) (cfg api.Config, sec api.Security, err error) {
	cfg = api.Config{Version: version, Logger: log, Hosts: slices.Clone(l.hosts), Mounts: l.mounts()}
	if l.tokens != "" {
		if cfg.Tokens, err = api.OpenTokens(l.tokens, log); err != nil {
			return cfg, sec, fmt.Errorf("--tokens: %w", err)
		}
		sec.Tokens = true
	}
	if l.cert != "" {
		var names []string
		if sec.TLS, names, err = api.ServerTLS(l.cert, l.key, l.ca); err != nil {
			return cfg, sec, err
		}
		cfg.Hosts = append(cfg.Hosts, names...)
	}
	return cfg, sec, nil
}

// listeners opens all addresses or none.
func (l *listenFlags) listeners(dataDir string, sec api.Security, log *slog.Logger) (all []*api.Listener, err error) {
	addrs := l.listen
	if dataDir != "" { // a node without a disk has none
		if err := os.MkdirAll(dataDir, 0o700); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	if len(addrs) == 0 {
		return l.ownSocket(dataDir, log), nil
	}
	for _, text := range addrs {
		if text == "none" {
			continue
		}
		a, err := api.ParseAddress(text)
		var one *api.Listener
		if err == nil {
			one, err = api.Listen(a, sec)
		}
		if err != nil {
			for _, open := range all {
				open.Close()
			}
			return nil, fmt.Errorf("--listen: %w", err)
		}
		if a.Unix == "" && !a.Loopback() && sec.TLS == nil {
			log.Warn("tokens go over the network in clear: give --tls-cert and --tls-key, or put TLS in front", "listen", text)
		}
		log.Info("API", "listen", text)
		all = append(all, one)
	}
	if own := nodeSocket(dataDir); dataDir != "" && len(all) > 0 && !slices.ContainsFunc(addrs, func(text string) bool { return samePath(text, own) }) {
		log.Info("no socket in the data directory: exec, agent and run there do not find this node by themselves", "add", "--listen unix:"+own)
	}
	return all, nil
}

// samePath reports whether an address is that socket, however its path is spelled.
func samePath(text, socket string) bool {
	a, err := api.ParseAddress(text)
	given, err1 := filepath.Abs(a.Unix)
	want, err2 := filepath.Abs(socket)
	return a.Unix != "" && errors.Join(err, err1, err2) == nil && given == want
}

// ownSocket opens the socket in the data directory. Nobody asked for it, so a node goes on without.
func (l *listenFlags) ownSocket(dataDir string, log *slog.Logger) []*api.Listener {
	path := nodeSocket(dataDir)
	a, err := api.ParseAddress("unix:" + path)
	var one *api.Listener
	if err == nil {
		one, err = api.Listen(a, api.Security{})
	}
	if err != nil {
		log.Warn("no API: give --listen", "err", err)
		return nil
	}
	log.Info("API", "listen", "unix:"+path)
	return []*api.Listener{one}
}

func (d *door) close() error {
	d.stop()
	return <-d.done
}
