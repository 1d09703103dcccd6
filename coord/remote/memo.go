package remote

import (
	"fmt"
	"sync"

	"github.com/syncnode/syncnode/coord"
)

const (
	// maxRefusals is how many refused calls a session remembers.
	maxRefusals = 10_000
	// maxAnswers is of how many it knows the answer, which may bear all that the ledger has of a run.
	maxAnswers = 64
)

// errRefusedBefore answers a copy of a call whose answer is forgotten: nothing happened, and nothing will.
var errRefusedBefore = fmt.Errorf("%w: it is a copy of a call that was refused", coord.ErrNotSent)

// A memo has the last calls of a session that were refused and that a copy could yet carry out, by their ids. The network may
// deliver one once more when what refused it has gone; nobody would act on the attempt that it opens.
type memo struct {
	mu     sync.Mutex
	why    map[string]error
	calls  []string // a ring
	oldest int
	answer [maxAnswers]string // the calls whose answers are known, a ring
	next   int
}

// of is what the call was refused with; nil if it was not, or so long ago that it is forgotten.
func (m *memo) of(call string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why[call]
}

func (m *memo) add(call string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) < maxRefusals {
		m.calls = append(m.calls, call)
	} else {
		delete(m.why, m.calls[m.oldest])
		m.calls[m.oldest] = call
		m.oldest = (m.oldest + 1) % maxRefusals
	}
	if m.why == nil {
		m.why = map[string]error{}
	}
	m.why[call] = why
	if was := m.answer[m.next]; was != "" && m.why[was] != nil {
		m.why[was] = errRefusedBefore
	}
	m.answer[m.next] = call
	m.next = (m.next + 1) % maxAnswers
}
