package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// A serving is one serve, under whatever ids its device has one after another.
type serving struct {
	f      *serveFlags
	be     *backend
	log    *slog.Logger
	door   *door
	conf   *configured
	relays map[string]relay.Relay
	share  map[string]http.Handler // made once: processes that call have sessions there
}

// serve works until ctx ends.
func (f *serveFlags) serve(ctx context.Context, door *door, conf *configured) error {
	be, err := f.open(ctx, use{agent: "serve", write: true, wait: defaultBusyWait, busy: func(who string) { conf.log.Warn(who) }})
	if err != nil {
		return err
	}
	defer be.close()
	s := &serving{f: f, be: be, log: conf.log, door: door, conf: conf}
	hups, done := context.WithCancel(ctx)
	defer done()
	go conf.watch(hups)
	if s.relays, err = f.places.open(ctx, be, f.namespace); err != nil {
		return err
	}
	for {
		err := s.asDevice(ctx)
		if !errors.Is(err, session.ErrFrozen) {
			return err
		}
		if err := s.renew(ctx, err); err != nil {
			return err
		}
	}
}

// asDevice serves under the present id until ctx ends, or the id is frozen.
func (s *serving) asDevice(ctx context.Context) error {
	be := s.be
	if be.local.stuck != nil {
		return &exitError{code: exitRefused} // it was told when the device was opened
	}
	only, err := be.claim()
	if err != nil {
		return err
	}
	defer only.Close()
	n, err := be.local.reissue(ctx, true) // what ran under an earlier id may have recorded its end since
	if err != nil {
		return err
	}
	if n > 0 {
		s.log.Info("written again what no relay has of an earlier id", "device", be.device, "ops", n)
	}
	s.stepDown(ctx)
	s.offerFormer(ctx)
	sess, err := s.session(ctx)
	if err != nil {
		return err
	}
	d, err := be.dispatcher(s.door.shown.Ended)
	if err != nil {
		return err
	}
	node, err := s.node(sess, d)
	if err != nil {
		return err
	}
	clients, err := s.clients(d)
	if err != nil {
		return err
	}
	if clients.work, err = s.worker(sess, d, node, clients.holds); err != nil {
		return err
	}
	defer s.show(sess, clients)()
	s.f.started = true
	s.log.Info("serving", "device", be.device, "namespace", be.flags.namespace, "generation", be.coordinator.Generation(), "data_dir", be.dir)
	return s.together(ctx, node, clients)
}

// renew opens the device under a new id, and tells in one notice what happened.
func (s *serving) renew(ctx context.Context, because error) error {
	was := s.be.device
	frozen, noted, err := s.be.book.Journal().Frozen()
	if err != nil {
		return err
	}
	if !noted {
		return fmt.Errorf("device %s is frozen, and what of it no relay has could not be found out yet: start syncnode serve again: %w", was, because)
	}
	if err := s.be.openLocal(ctx, func(string) {}); err != nil {
		return fmt.Errorf("device %s is frozen (%s) and could not be given a new id: %w", was, reasonOf(frozen), err)
	}
	d := s.be.local
	if d.stuck != nil {
		return d.stuck
	}
	s.log.Warn("this device has a new id", "because", reasonOf(frozen), "was", was, "device", d.name, "written_again", d.again,
		"lost", "nothing", "do", "nothing, unless it was a surprise: then look for a copy of "+s.be.dir+" that is in use; the earlier journal stays in "+filepath.Join(d.dir, was))
	return nil
}

// stepDown makes the ids that a restored copy had before hold no collection back: nobody is they any more. After a fork the other copy
// may be. It may fail: then they are evicted one day.
func (s *serving) stepDown(ctx context.Context) {
	former, err := s.be.local.frozenBefore()
	if err != nil || len(former) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.be.flags.timeout)
	defer cancel()
	for _, r := range s.relays {
		roster, err := r.Roster(ctx)
		if err != nil {
			continue
		}
		for _, m := range roster {
			if m.Role != relay.Replica || !slices.Contains(former, m.Device) || s.be.local.forked(ctx, m.Device) {
				continue
			}
			if err := r.Register(ctx, m.Device, relay.Writer); err != nil {
				s.log.Debug("a former id goes on counting as a replica", "of", m.Device, "err", err)
			}
		}
	}
}

// claim makes this the only serve of the device on this ledger, for as long as the file is open.
func (be *backend) claim() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(be.local.home(), "serve.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 20)
		n, _ := file.ReadAt(pid, 0)
		file.Close()
		return nil, fmt.Errorf("device %s is served already from %s, by pid %s: leave that one to it, end it first, or give another --data-dir", be.device, be.dir, bytes.TrimSpace(pid[:n]))
	}
	if err := file.Truncate(0); err == nil {
		fmt.Fprintln(file, os.Getpid()) // for people only
	}
	return file, nil
}

// session opens the session; a checkpoint that was lost is fetched from a relay.
func (s *serving) session(ctx context.Context) (*session.Session, error) {
	cfg, err := s.be.local.sessionConfig(s.log)
	if err != nil {
		return nil, err
	}
	s.f.seal.warn(s.log, cfg.Seal, s.be.dir)
	cfg.Coordinator = holder{s.be.coordinator}
	opened, err := session.Open(ctx, cfg)
	lost, ok := errors.AsType[*session.CheckpointError](err)
	if !ok {
		return opened, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.relays)) {
		fetched := session.Restore(ctx, cfg, s.relays[name])
		if err = errors.Join(err, fetched); fetched == nil {
			s.log.Warn("the journal's checkpoint was lost or damaged, and was fetched again", "checkpoint", lost.Checkpoint, "relay", name, "cause", lost.Err)
			return session.Open(ctx, cfg)
		}
	}
	return nil, err
}

// node wires the session, the relays and the dispatcher's settling.
func (s *serving) node(sess *session.Session, d *dispatch.Dispatcher) (*node.Node, error) {
	be := s.be
	every := s.f.checkpoint
	if every == 0 {
		every = -1
	}
	j := be.book.Journal()
	return node.New(node.Config{
		Device: be.device, Session: sess, Keeper: sess, Watcher: sess, CheckpointEvery: every, StateFile: be.local.stateFile(),
		Settler: settling{d, be.local}, Rescuer: rescuing{be}, Leases: be.coordinator, Runs: be.coordinator, Relays: s.relays, Observer: s.door.shown, PumpEvery: s.f.pumpEvery, Logger: s.log,
		Fatal: func(err error) bool {
			if errors.Is(err, session.ErrFrozen) {
				_, noted, noteErr := j.Frozen()
				return noted && noteErr == nil // else the next pump notes it
			}
			// The journal cannot be used again in this process after a sync failed.
			return errors.Is(err, journal.ErrPoisoned)
		},
	})
}

// holder shows a session what it needs of a coordinator.
type holder struct{ leases coord.LeaseCoordinator }

// Current implements session.Holder.
func (h holder) Current(ctx context.Context, agent string) (string, uint64, bool, error) {
	l, held, err := h.leases.Current(ctx, agent)
	return l.Device, uint64(l.Epoch), held, err
}
