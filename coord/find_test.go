package coord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/ident"
)

// smallPages gives two entries a page, and calls turn before each with how many were given before.
type smallPages struct {
	coord.Looker
	turn  func(page int) error
	asked []coord.Filter
}

func (s *smallPages) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	s.asked = append(s.asked, f)
	if s.turn != nil {
		if err := s.turn(len(s.asked) - 1); err != nil {
			return coord.Page{}, err
		}
	}
	f.Limit = 2
	return s.Looker.List(ctx, f)
}

func runOf(agent string) string { return ident.RunID("default", agent, "key:1") }

// fiveRuns is a ledger with a committed run of each of the agents a0 to a4; those of a0 and a1 are of device d0, the others of d1.
func fiveRuns(t *testing.T) coord.Looker {
	t.Helper()
	c := memory.New(memory.Config{}).Process(coord.Process{})
	for i := range 5 {
		agent, device := fmt.Sprintf("a%d", i), fmt.Sprintf("d%d", min(i/2, 1))
		err := c.Finish(t.Context(), coord.Outcome{Agent: agent, Run: runOf(agent), Occurrence: "key:1",
			Attempt: coord.Attempt{ID: coord.NewNonce(), Device: device, Epoch: 1, State: coord.Committed}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestARunIsFoundByItsIDAloneOnWhateverPageItIs(t *testing.T) {
	ledger := fiveRuns(t)
	for i, pages := range []int{1, 1, 2, 2, 3} {
		agent := fmt.Sprintf("a%d", i)
		l := &smallPages{Looker: ledger}
		v, err := coord.Find(t.Context(), l, coord.Filter{}, runOf(agent))
		if err != nil || !v.Found || v.Entry.Agent != agent || v.Entry.Run != runOf(agent) || v.State != coord.RunCommitted {
			t.Errorf("%s: %+v, %v", agent, v, err)
		}
		if len(l.asked) != pages || slices.ContainsFunc(l.asked, func(f coord.Filter) bool { return f.Limit != coord.MaxPage }) {
			t.Errorf("%s: asked for %+v, want %d pages of %d", agent, l.asked, pages, coord.MaxPage)
		}
	}
}

func TestARunThatIsNotFoundSaysWhereItWasLookedForAndWhatToDo(t *testing.T) {
	ledger := fiveRuns(t)
	for _, c := range []struct {
		f          coord.Filter
		run, where string
	}{
		{coord.Filter{}, runOf("other"), "is in no entry of the ledger; name its agent if it is old"},
		{coord.Filter{Device: "d1"}, runOf("a1"), "is in no entry of the ledger with an attempt of device d1; name its agent if it is old"},
	} {
		v, err := coord.Find(t.Context(), &smallPages{Looker: ledger}, c.f, c.run)
		if !errors.Is(err, coord.ErrNotFound) || v.Found || !strings.Contains(err.Error(), "run "+c.run+" "+c.where) {
			t.Errorf("%+v: %+v, %v", c.f, v, err)
		}
	}
	if v, err := coord.Find(t.Context(), ledger, coord.Filter{Device: "d1"}, runOf("a4")); err != nil || v.Entry.Agent != "a4" {
		t.Errorf("of its device: %+v, %v", v, err)
	}
}

func TestAFailureWhileARunIsLookedForIsNotTakenForItsAbsence(t *testing.T) {
	ledger := fiveRuns(t)
	away := fmt.Errorf("%w: etcd is away", coord.ErrNotSent)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	for _, c := range []struct {
		name string
		turn func(page int) error
		want error
		most int // pages
	}{
		{"no first page", func(int) error { return away }, away, 1},
		{"no third page", func(page int) error {
			if page == 2 {
				return away
			}
			return nil
		}, away, 3},
		{"cancelled after the first page", func(page int) error {
			if page == 1 {
				cancel(enough)
			}
			return nil
		}, enough, 2},
		{"cancelled before", nil, enough, 1},
	} {
		l := &smallPages{Looker: ledger, turn: c.turn}
		v, err := coord.Find(ctx, l, coord.Filter{}, runOf("a4"))
		if !errors.Is(err, c.want) || !errors.Is(err, coord.ErrNotSent) || errors.Is(err, coord.ErrNotFound) || v.Found || len(l.asked) != c.most {
			t.Errorf("%s: %+v, %v, %d pages", c.name, v, err, len(l.asked))
		}
	}
}
