package guard_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/syncnode/syncnode/fence/guard"
	"github.com/syncnode/syncnode/internal/ident"
)

func TestAnOlderEpochIsRefused(t *testing.T) {
	var m guard.Memory
	for _, c := range []struct {
		agent string
		epoch int64
		want  error
	}{
		{"a", 3, nil},
		{"a", 3, nil}, // a run acts more than once
		{"a", 2, guard.ErrStale},
		{"b", 2, nil},
		{"a", guard.MaxEpoch, nil},
		{"a", 3, guard.ErrStale},
		{"b", 3, nil},
		{"b", 2, guard.ErrStale},
	} {
		if err := m.Admit(t.Context(), c.agent, c.epoch); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("epoch %d of %s: got %v, want %v", c.epoch, c.agent, err, c.want)
		}
	}
}

func TestWhatNoRunHandsOverIsAnErrorAndNotSeen(t *testing.T) {
	var m guard.Memory
	rows := new(answered)
	for _, s := range []guard.Store{&m, guard.In(rows)} {
		for _, epoch := range []int64{0, -1, guard.MaxEpoch + 1} {
			if err := s.Admit(t.Context(), "a", epoch); err == nil || errors.Is(err, guard.ErrStale) {
				t.Errorf("%T, epoch %d: %v", s, epoch, err)
			}
		}
		if err := s.Admit(t.Context(), "a/b", 1); !errors.Is(err, ident.ErrInvalid) {
			t.Errorf("%T: %v", s, err)
		}
	}
	if err := m.Admit(t.Context(), "a", 1); err != nil {
		t.Error(err)
	}
	if rows.asked != 0 {
		t.Errorf("the table was asked %d times", rows.asked)
	}
}

func TestOnceAnEpochWasAdmittedNoOlderOneIs(t *testing.T) {
	var (
		m      guard.Memory
		proved atomic.Int64 // admitted, and its answer seen
		wg     sync.WaitGroup
	)
	for worker := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				epoch, before := int64(1+i+worker*13%7), proved.Load()
				err := m.Admit(t.Context(), "a", epoch)
				if err == nil && epoch < before {
					t.Errorf("epoch %d was admitted after %d", epoch, before)
					return
				}
				for old := before; err == nil && epoch > old && !proved.CompareAndSwap(old, epoch); old = proved.Load() {
				}
			}
		})
	}
	wg.Wait()
}

// answered is a database whose next answers are given.
type answered struct {
	rows       int64
	err, count error
	asked      int
}

func (a *answered) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	a.asked++
	return a, a.err
}
func (a *answered) LastInsertId() (int64, error) { return 0, nil }
func (a *answered) RowsAffected() (int64, error) { return a.rows, a.count }

func TestTheTableAdmitsOnlyWhatChangedARow(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name string
		a    answered
		want error
	}{
		{"one row", answered{rows: 1}, nil},
		{"no row", answered{}, guard.ErrStale},
		{"an error", answered{rows: 1, err: down}, down},
		{"rows unknown", answered{rows: 1, count: down}, down},
	} {
		err := guard.In(&c.a).Admit(t.Context(), "a", 1)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}
