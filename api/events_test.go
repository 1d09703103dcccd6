package api_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node/events"
)

// A tape is a watcher that reads everything.
type tape struct {
	header http.Header

	mu   sync.Mutex
	text bytes.Buffer
}

func (p *tape) Header() http.Header { return p.header }
func (p *tape) WriteHeader(int)     {}
func (p *tape) Flush()              {}
func (p *tape) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// seen are the names and data of the events, a line each.
func (p *tape) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for s := bufio.NewScanner(bytes.NewReader(p.text.Bytes())); s.Scan(); {
		if strings.HasPrefix(s.Text(), "event: ") {
			all = append(all, strings.TrimPrefix(s.Text(), "event: "))
		}
	}
	return all
}

func (p *tape) last(field string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := ""
	for s := bufio.NewScanner(bytes.NewReader(p.text.Bytes())); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), field+": "); ok {
			got = v
		}
	}
	return got
}

// watch opens a stream; done is closed when it ends.
func (w *world) watch(path, lastID string) (p *tape, leave func(), done chan struct{}) {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := api.OverSocket(httptest.NewRequestWithContext(ctx, "GET", path, nil))
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	p, done = &tape{header: http.Header{}}, make(chan struct{})
	go func() {
		defer close(done)
		w.server.ServeHTTP(p, r)
	}()
	synctest.Wait()
	return p, cancel, done
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("seen %v, want %v", got, want)
	}
}

func TestAWatcherSeesWhatChangesAndGoesOnWhereItStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		p, leave, done := w.watch("/v1/events", "")
		path, attempt := w.fenced("1")
		synctest.Wait()
		want(t, p.seen(), "run.claimed", "run.begun")
		if d := p.last("data"); !strings.Contains(d, attempt) || !strings.Contains(d, runID("1")) {
			t.Errorf("told %s", d)
		}
		leave()
		<-done
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
		w.want(w.do("POST", "/v1/agents/a/pause", obj{"reason": "x"}), 200, "")
		again, leave, done := w.watch("/v1/events", p.last("id"))
		want(t, again.seen(), "run.ended", "agent.paused")
		bubble.Pass(time.Minute)
		want(t, again.seen(), "run.ended", "agent.paused") // and signs of life
		leave()
		<-done
		only, leave, done := w.watch("/v1/events?agent=other", p.last("id"))
		want(t, only.seen())
		leave()
		<-done
	})
}

func TestAWatcherIsToldOfAGap(t *testing.T) {
	inWorld(t, func(w *world) {
		w.claim("1")
		p, leave, done := w.watch("/v1/events", "anotherlife-7")
		want(t, p.seen(), "gap", "run.claimed")
		leave()
		<-done
	})
}

func TestAWatcherThatFellBehindByMoreThanIsKeptIsToldAndDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		slow, _, done := w.watch("/v1/events", "")
		slow.mu.Lock()
		for range 2 * events.Size {
			w.ring.Publish(events.Event{Kind: events.RunEnded, Agent: "a"})
			if slow.text.Len() > 1<<20 {
				break
			}
		}
		slow.mu.Unlock()
		<-done
		if seen := slow.seen(); len(seen) == 0 || seen[len(seen)-1] != "gap" {
			t.Errorf("%d events, and then no gap", len(seen))
		}
	})
}

func TestANodeThatGoesEndsItsWatchers(t *testing.T) {
	inWorld(t, func(w *world) {
		detach := w.server.Attach(w.node)
		_, _, done := w.watch("/v1/events", "")
		detach()
		<-done
		w.want(w.claim("1"), 503, "unavailable")
	})
}
