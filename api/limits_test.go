package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/node/events"
)

// short is a limit in time that a test reaches; patience is far from it, and shorter than every other limit that could end a wait instead.
const (
	short    = 50 * time.Millisecond
	patience = 30 * time.Second
)

// A line is a client's end of a connection.
type line struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// within serves on a socket within changed limits, and gives back how to connect. answered has the pattern of each request when it is over.
func within(t *testing.T, cfg api.Config, change func(*api.Limits)) (dial func() *line, answered chan string) {
	t.Helper()
	answered = make(chan string, 1000)
	cfg.Answered = func(pattern string, _ int, _ time.Duration) { answered <- pattern }
	s := api.Within(cfg, change)
	detach := s.Attach(&api.Node{})
	t.Cleanup(detach)
	path := filepath.Join(shortDir(t), "node.sock")
	listening(t, s, "unix:"+path, api.Security{})
	return func() *line {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return &line{t, c, bufio.NewReader(c)}
	}, answered
}

func (l *line) say(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l, format, args...); err != nil {
		l.t.Fatal(err)
	}
}

// hear reads the head of an answer.
func (l *line) hear() *http.Response {
	l.t.Helper()
	r, err := http.ReadResponse(l.in, nil)
	if err != nil {
		l.t.Fatalf("no answer: %v", err)
	}
	return r
}

// live asks whether the server is there.
func (l *line) live() {
	l.t.Helper()
	l.say("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	l.lives()
}

func (l *line) lives() {
	l.t.Helper()
	r := l.hear()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != 200 {
		l.t.Fatalf("live: %d, %v", r.StatusCode, err)
	}
}

// dropped waits until the server has closed the connection.
func (l *line) dropped() {
	l.t.Helper()
	if _, err := io.Copy(io.Discard, l.in); err != nil {
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
			l.t.Fatal("the connection is kept")
		}
	}
}

// watches opens a stream.
func (l *line) watches() {
	l.t.Helper()
	l.say("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	r := l.hear()
	if first, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil || first != ": watching\n" {
		l.t.Fatalf("status %d, %q, %v", r.StatusCode, first, err)
	}
}

// over waits for the end of a request.
func over(t *testing.T, answered chan string, pattern string) {
	t.Helper()
	for late := time.After(patience); ; {
		select {
		case got := <-answered:
			if got == pattern {
				return
			}
		case <-late:
			t.Fatalf("%s goes on", pattern)
		}
	}
}

func TestAWatcherThatDoesNotReadIsDropped(t *testing.T) {
	ring := events.New()
	dial, answered := within(t, api.Config{Events: ring}, func(l *api.Limits) { l.Write = time.Second })
	c := dial()
	c.watches()
	ring.Publish(events.Event{Kind: events.RunEnded, Agent: strings.Repeat("a", 8<<20)}) // more than the socket takes
	over(t, answered, "GET /v1/events")
	c.dropped()
}

func TestWatchersAreBoundedAndAPlaceIsFreeAgain(t *testing.T) {
	dial, answered := within(t, api.Config{}, func(l *api.Limits) { l.Watchers = 2 })
	first := dial()
	first.watches()
	dial().watches()
	more := dial()
	more.say("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	refused(t, more.hear(), 429, "too-many-requests", "no")
	over(t, answered, "GET /v1/events")
	dial().live() // watchers take no places of others
	first.Close()
	over(t, answered, "GET /v1/events")
	dial().watches()
}

func TestConnectionsAreBoundedAndTheNextWaits(t *testing.T) {
	dial, _ := within(t, api.Config{}, func(l *api.Limits) { l.Connections = 2 })
	a, b := dial(), dial()
	a.live()
	b.live()
	third := dial()
	third.say("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	var free atomic.Bool
	heard := make(chan error, 1)
	go func() {
		_, err := third.in.Peek(1)
		if err == nil && !free.Load() {
			err = errors.New("it is answered while both places are taken")
		}
		heard <- err
	}()
	for range 100 { // as long as it takes to answer others
		a.live()
		b.live()
	}
	free.Store(true)
	a.Close()
	if err := <-heard; err != nil {
		t.Fatal(err)
	}
	third.lives()
	b.live()
}

func TestAHeaderIsBounded(t *testing.T) {
	dial, _ := within(t, api.Config{}, func(*api.Limits) {})
	for size, status := range map[int]int{8 << 10: 200, 32 << 10: 431} {
		c := dial()
		c.say("GET /livez HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", size))
		if r := c.hear(); r.StatusCode != status {
			t.Errorf("a header of %d bytes: %d, want %d", size, r.StatusCode, status)
		}
	}
	c := dial()
	c.say("GET /livez HTTP/1.1\r\nHost: x\r\n")
	go func() { // without an end
		for junk := "X: " + strings.Repeat("x", 1000) + "\r\n"; ; {
			if _, err := io.WriteString(c, junk); err != nil {
				return
			}
		}
	}()
	c.dropped()
}

func TestAClientThatFallsSilentIsDropped(t *testing.T) {
	t.Run("within a header", func(t *testing.T) {
		dial, _ := within(t, api.Config{}, func(l *api.Limits) { l.HeaderTime = short })
		c := dial()
		c.say("GET /livez HTTP/1.1\r\nHost: x\r\n")
		c.dropped()
	})
	t.Run("between requests", func(t *testing.T) {
		dial, _ := within(t, api.Config{}, func(l *api.Limits) { l.Idle = short })
		c := dial()
		c.live()
		c.dropped()
	})
	for path, executed := range map[string]string{"/v1/runs": "no", "/v1/runs/x/commit": "maybe"} {
		t.Run("within a body to "+path, func(t *testing.T) {
			dial, answered := within(t, api.Config{}, func(l *api.Limits) { l.Body = short })
			c := dial()
			c.say("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"agent\":", path)
			refused(t, c.hear(), 408, "too-slow", executed)
			<-answered
			c.dropped()
		})
	}
}

func refused(t *testing.T, r *http.Response, status int, problem, executed string) {
	t.Helper()
	var p struct{ Type, Executed string }
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.StatusCode != status || p.Type != "/problems/"+problem || p.Executed != executed {
		t.Errorf("%d, %+v, %v", r.StatusCode, p, err)
	}
}
