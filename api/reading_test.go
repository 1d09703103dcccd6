package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/bubble"
)

// silent is a ledger whose etcd says nothing, until it does.
type silent struct {
	api.Ledger
	slow time.Duration // how long an answer takes; 0: for ever
}

func (s *silent) wait(ctx context.Context) error {
	if s.slow > 0 {
		bubble.Pass(s.slow)
		return nil
	}
	<-ctx.Done()
	return coord.ErrNotSent
}

func (s *silent) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	if err := s.wait(ctx); err != nil {
		return coord.View{}, err
	}
	return s.Ledger.Look(ctx, q)
}

func (s *silent) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	if err := s.wait(ctx); err != nil {
		return coord.Page{}, err
	}
	return s.Ledger.List(ctx, f)
}

func (s *silent) Leases(ctx context.Context) ([]coord.Lease, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Ledger.Leases(ctx)
}

func TestWhatReadsIsRefusedSoonAfterTheEtcdFellSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		s := &silent{Ledger: w.c}
		w.node.Ledger, w.node.Probe = s, func(ctx context.Context) error { <-ctx.Done(); return coord.ErrNotSent }
		asked := 0
		for _, op := range w.server.Operations() {
			path, ok := strings.CutPrefix(op, "GET ")
			if !ok || path == "/v1/events" || path == "/v1/node" || !strings.HasPrefix(path, "/v1/") {
				continue // they ask no ledger
			}
			asked++
			began := time.Now()
			a := w.want(w.do("GET", strings.ReplaceAll(path, "{id}", runID("1")), nil), 503, "unavailable")
			w.wantExecuted(a, "no")
			if took := time.Since(began); took > api.ReadTime || !strings.Contains(a.text("detail"), "the etcd of the node did not answer within 5s") {
				t.Errorf("%s took %s: %s", path, took, a.raw)
			}
		}
		if asked < 5 {
			t.Errorf("%d operations were asked: the list was lost", asked)
		}
		s.slow = 20 * time.Second // it answers, and there is much to read
		for _, answer := range []error{nil, errors.New("the key of the node's own lease is damaged")} {
			w.node.Probe = func(context.Context) error { return answer }
			w.want(w.do("GET", "/v1/runs?state=in-doubt", nil), 200, "")
		}
	})
}
