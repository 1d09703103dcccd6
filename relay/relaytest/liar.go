package relaytest

import (
	"context"
	"sync"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A Lie is what a Liar does to what the relay behind it says and is told. Fields that are nil do nothing.
type Lie struct {
	Hello  func(device string, info *relay.Info)
	Push   func(ops []oplog.Op) []oplog.Op // what of a push reaches the relay; all of it is answered for
	Pull   func(page *relay.Page)
	Refuse func(ops []oplog.Op) error // in place of a push
	Ack    func(folded oplog.Frontier) oplog.Frontier
	Roster func(rows []relay.Member)
}

// A Liar is a relay between a caller and a relay that collects. It says what its Lie makes of the truth.
type Liar struct {
	inner relay.Relay
	relay.Collector

	mu  sync.Mutex
	lie Lie
}

var (
	_ relay.Relay     = (*Liar)(nil)
	_ relay.Collector = (*Liar)(nil)
)

// NewLiar returns a relay that is honest until it is told otherwise. It panics if inner is no relay.Collector.
func NewLiar(inner relay.Relay) *Liar { return &Liar{inner: inner, Collector: inner.(relay.Collector)} }

// Tell sets the lie from now on; the zero Lie is the truth.
func (l *Liar) Tell(lie Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lie = lie
}

func (l *Liar) now() Lie {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lie
}

// Hello implements relay.Relay.
func (l *Liar) Hello(ctx context.Context, device string) (relay.Info, error) {
	info, err := l.inner.Hello(ctx, device)
	if lie := l.now().Hello; lie != nil && err == nil {
		lie(device, &info)
	}
	return info, err
}

// Push implements relay.Relay.
func (l *Liar) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	lie := l.now()
	if lie.Refuse != nil {
		return relay.Pushed{}, lie.Refuse(ops)
	}
	if lie.Push == nil {
		return l.inner.Push(ctx, device, ops)
	}
	if kept := lie.Push(ops); len(kept) > 0 {
		if _, err := l.inner.Push(ctx, device, kept); err != nil {
			return relay.Pushed{}, err
		}
	}
	return relay.Pushed{Accepted: len(ops)}, nil
}

// Pull implements relay.Relay.
func (l *Liar) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	page, err := l.inner.Pull(ctx, device, want)
	if lie := l.now().Pull; lie != nil && err == nil {
		page.Ops = append([]oplog.Op(nil), page.Ops...)
		lie(&page)
	}
	return page, err
}

// Ack implements relay.Relay.
func (l *Liar) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	if lie := l.now().Ack; lie != nil {
		folded = lie(folded.Clone())
	}
	return l.inner.Ack(ctx, device, folded)
}

// Register implements relay.Relay.
func (l *Liar) Register(ctx context.Context, device string, role relay.Role) error {
	return l.inner.Register(ctx, device, role)
}

// Roster implements relay.Relay.
func (l *Liar) Roster(ctx context.Context) ([]relay.Member, error) {
	rows, err := l.inner.Roster(ctx)
	if lie := l.now().Roster; lie != nil && err == nil {
		lie(rows)
	}
	return rows, err
}
