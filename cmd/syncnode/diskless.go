package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node"
)

// withDisk are the flags of a node that has a disk, and why another cannot have them.
var withDisk = map[string]string{
	"config":           "what a schedule misses is a record of the log",
	"relay":            "there is no log to exchange",
	"pump-every":       "there is no log to exchange",
	"checkpoint-every": "there is no log to bound",
	"segment-bytes":    "there is no log",
	"seal":             "there is no log to seal",
	"seal-keys":        "there is no log to seal",
	"member-name":      "a member of an etcd keeps its data",
	"member-cluster":   "a member of an etcd keeps its data",
}

// checkDiskless refuses what --no-journal cannot be together with. What the environment gives a whole fleet counts as what is typed does.
func (f *serveFlags) checkDiskless(flags *pflag.FlagSet) error {
	if !f.noJournal {
		return nil
	}
	var err error
	flags.Visit(func(given *pflag.Flag) {
		why, ok := withDisk[given.Name]
		if ok && err == nil && !(given.Name == "relay" && f.places.none()) {
			err = usagef("--%s is for a node with a disk: with --no-journal %s", given.Name, why)
		}
	})
	switch {
	case err != nil:
		return err
	case len(f.endpoints) == 0:
		return usagef("--no-journal needs --endpoints: an etcd of our own would need a disk")
	case len(f.api.listen) == 0 || slices.Contains(f.api.listen, "none"):
		return usagef("--no-journal needs --listen unix:PATH or HOST:PORT: there is no data directory for a socket, and nothing else to do")
	case slices.Contains(f.api.share, shareRelay):
		return usagef("--share relay is for a node with a relay: with --no-journal there is none")
	}
	f.places.places, f.dataDir = []string{"none"}, ""
	return nil
}

// serveDiskless serves a device that is gone with this process: clients claim runs, and the ledger is the only record.
func (f *serveFlags) serveDiskless(ctx context.Context, door *door, conf *configured) error {
	outliveReaders()
	door.shown.Diskless()
	be, err := f.reach(ctx, conf.log)
	if err != nil {
		return err
	}
	defer be.close()
	be.device = podDevice(f.deviceID)
	s := &serving{f: f, be: be, log: conf.log, door: door, conf: conf}
	go conf.watch(ctx)
	d, err := be.dispatcher(door.shown.Ended)
	if err != nil {
		return err
	}
	n, err := node.New(node.Config{Device: be.device, Settler: disklessSettler{d, be}, Runs: be.coordinator, Observer: door.shown, Logger: s.log})
	if err != nil {
		return err
	}
	c, err := s.clients(d)
	if err != nil {
		return err
	}
	defer s.show(nil, c)()
	f.started = true
	s.log.Info("serving", "device", be.device, "namespace", f.namespace, "generation", be.coordinator.Generation(), "journal", "none")
	err = s.together(ctx, n, c)
	lastOffer(context.WithoutCancel(ctx), d, s.log)
	return err
}

// lastOffer tells the ledger what this process owes it before it is gone with the process.
func lastOffer(ctx context.Context, d *dispatch.Dispatcher, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, dispatch.DefaultRecordTimeout)
	defer cancel()
	for {
		left, err := d.Settle(ctx)
		if err == nil {
			return
		}
		if !pause(ctx, 250*time.Millisecond) {
			log.Error("the ledger could not be told all before the end; what it was not told is in doubt", "ends", left.Owed, "err", err)
			return
		}
	}
}

// reach opens the backend as soon as its etcd answers. A supervisor could do no better than to start the node again, and meanwhile what it
// stands beside would not start.
func (f *serveFlags) reach(ctx context.Context, log *slog.Logger) (*backend, error) {
	told := ""
	for {
		be, err := f.open(ctx, use{})
		switch {
		case err == nil:
			if told != "" {
				log.Info("etcd answers")
			}
			return be, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, coord.ErrNotSent) && !errors.Is(err, coord.ErrIndeterminate) && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
		if text := err.Error(); text != told {
			told = text
			log.Warn("etcd cannot be used yet; nothing begins before, and it is tried again", "err", err)
		}
		pause(ctx, time.Second)
	}
}

// A disklessSettler tells the ledger what this process owes it.
type disklessSettler struct {
	*dispatch.Dispatcher
	be *backend
}

// Settle implements node.Settler. It asks for something also when nothing is owed, so that metrics and log tell of an etcd that is away.
func (s disklessSettler) Settle(ctx context.Context) (dispatch.Settling, error) {
	done, err := s.Dispatcher.Settle(ctx)
	if err != nil {
		return done, err
	}
	if _, _, err := s.be.coordinator.Current(ctx, node.Agent(s.be.device)); err != nil {
		return done, fmt.Errorf("ask the ledger: %w", err)
	}
	return done, nil
}
