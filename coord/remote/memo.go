package remote

import "sync"

// maxRefusals is how many refused calls a session remembers.
const maxRefusals = 10_000

// A memo has the last calls of a session that were refused and that a copy could yet carry out, by their ids. The network may
// deliver one once more when what refused it has gone; nobody would act on the attempt that it opens.
type memo struct {
	mu     sync.Mutex
	why    map[string]error
	calls  []string // a ring
	oldest int
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
}
