package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/coord"
)

// halfRead is a ledger without an end, of whose runs only the first can be read.
type halfRead struct {
	coord.Ledger
	asked int
}

func (h *halfRead) List(_ context.Context, f coord.Filter) (coord.Page, error) {
	page := coord.Page{Next: "a/r"}
	for range f.Limit {
		if h.asked++; h.asked == 1 {
			page.Views = append(page.Views, coord.View{})
			continue
		}
		page.Unreadable = append(page.Unreadable, coord.UnreadableRun{Agent: "a", Run: fmt.Sprint("r", h.asked)})
	}
	return page, nil
}

func TestRunsThatCannotBeReadCountForTheLimitOfAList(t *testing.T) {
	for _, limit := range []int{1, 3, 1000, 2500} {
		h := &halfRead{}
		views, unread, more, err := listRuns(t.Context(), h, coord.Filter{}, limit)
		if err != nil || !more || len(views) != 1 || len(views)+len(unread) != limit || h.asked != limit {
			t.Errorf("--limit %d: %d runs and %d that cannot be read, of %d; more: %t; %v", limit, len(views), len(unread), h.asked, more, err)
		}
	}
}
