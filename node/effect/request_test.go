package effect

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/output"
)

func permit() dispatch.Permit {
	return dispatch.Permit{
		Run: ident.RunID("default", "crm", "key:Zürich 1"), Agent: "crm", Occurrence: "key:Zürich 1", Epoch: 7, Attempt: strings.Repeat("a", 32),
		Deadline: time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC),
		Trusted:  func() error { return nil },
		Fence:    func(context.Context) error { return nil },
	}
}

func deps(t *testing.T) Deps {
	t.Helper()
	dir := t.TempDir()
	s, err := output.New(output.Config{Dir: filepath.Join(dir, "output"), Limits: output.Limits{PerRun: 1 << 20, Total: 8 << 20}, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return Deps{Path: func(p string) string { return filepath.Join(dir, p) }, Output: s}
}

func write(t *testing.T, d Deps, name, text string) {
	t.Helper()
	if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func printed(t *testing.T, d Deps, run, attempt string) string {
	t.Helper()
	r, err := d.Output.Open(run, attempt)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// request starts a request and gives how it ended.
func ended(t *testing.T, h config.HTTP, d Deps) dispatch.Ended {
	t.Helper()
	e, err := For(config.Agent{HTTP: &h}, d).Start(t.Context(), permit())
	if err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	return e.Ended()
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestARequestSaysWhichRunItIs(t *testing.T) {
	t.Parallel()
	var got *http.Request
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Clone(t.Context()) })
	d := deps(t)
	h := config.HTTP{
		Method: "PUT", URL: s.URL + "/sync?all=1",
		Headers:     map[string]string{"X-Team": "billing", "Content-Type": "application/json"},
		HeaderFiles: map[string]string{"Authorization": "token"},
	}
	for _, token := range []string{"Bearer first", "Bearer second"} {
		write(t, d, "token", token+"\n")
		if e := ended(t, h, d); !e.OK() {
			t.Fatalf("%+v", e)
		}
		want := map[string]string{
			"Authorization": token, "X-Team": "billing", "Content-Type": "application/json", "Content-Length": "0", "User-Agent": "syncnode",
			"Idempotency-Key": permit().Run, "Syncnode-Run": permit().Run, "Syncnode-Agent": "crm", "Syncnode-Occurrence": "Z%C3%BCrich%201",
			"Syncnode-Epoch": "7", "Syncnode-Attempt": permit().Attempt, "Syncnode-Deadline": "2026-03-29T02:00:00Z", "Connection": "close",
		}
		for name, value := range want {
			if got.Header.Get(name) != value {
				t.Errorf("%s is %q, want %q", name, got.Header.Get(name), value)
			}
			got.Header.Del(name)
		}
		if got.Method != "PUT" || got.URL.String() != "/sync?all=1" || len(got.Header) > 0 {
			t.Errorf("%s %s, and %v", got.Method, got.URL, got.Header)
		}
	}
}

// broken answers with some bytes and ends the connection.
func broken(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(c, answer)
			c.Close()
		}
	}
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// Only a whole answer of the server itself is an end that was seen.
func TestWhatIsNotCertainIsInDoubt(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		want   coord.RunState
		exit   int
		result string
	}{
		"200": {status(200, "sent 3"), coord.RunCommitted, 0, "sent 3"},
		"202": {status(202, ""), coord.RunCommitted, 0, ""},
		"204": {status(204, ""), coord.RunCommitted, 0, ""},
		"302": {status(302, ""), coord.RunFailed, 302, "HTTP 302 Found\n"},
		"307": {status(307, ""), coord.RunFailed, 307, "HTTP 307 Temporary Redirect\n"},
		"404": {status(404, "no such list"), coord.RunFailed, 404, "HTTP 404 Not Found\nno such list"},
		"412": {status(412, "epoch 6 is old"), coord.RunFailed, 412, "HTTP 412 Precondition Failed\nepoch 6 is old"},
		"500": {status(500, "oops"), coord.RunFailed, 500, "HTTP 500 Internal Server Error\noops"},
		"503": {status(503, ""), coord.RunFailed, 503, "HTTP 503 Service Unavailable\n"},
		"maybe": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Syncnode-Executed", "maybe")
			w.WriteHeader(409)
		}, coord.RunInDoubt, 0, ""},
		"502":                    {status(502, "upstream"), coord.RunInDoubt, 0, ""},
		"504":                    {status(504, "upstream"), coord.RunInDoubt, 0, ""},
		"101":                    {broken("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), coord.RunFailed, 101, "HTTP 101 Switching Protocols\n"},
		"no answer":              {broken(""), coord.RunInDoubt, 0, ""},
		"half a status":          {broken("HTTP/1.1 20"), coord.RunInDoubt, 0, ""},
		"nonsense":               {broken("secret-of-the-server\r\n\r\n"), coord.RunInDoubt, 0, ""},
		"a 200 that breaks off":  {broken("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), coord.RunInDoubt, 0, ""},
		"a 500 that breaks off":  {broken("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nhalf"), coord.RunFailed, 500, "HTTP 500 Internal Server Error\nhalf"},
		"a chunk that breaks":    {broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), coord.RunInDoubt, 0, ""},
		"headers without an end": {broken("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*MaxHeader)), coord.RunInDoubt, 0, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.answer(w, r)
			})
			job := dispatch.Job{Agent: "crm", Occurrence: "key:1", Run: ident.RunID("default", "crm", "key:1"), TTL: coord.MaxTTL,
				Effect: For(config.Agent{HTTP: &config.HTTP{Method: "POST", URL: s.URL}}, Deps{})}
			c2 := memory.New(memory.Config{}).Process(coord.Process{Host: "h"})
			d, err := dispatch.New(dispatch.Config{Coordinator: c2, Device: "h"})
			if err != nil {
				t.Fatal(err)
			}
			r := d.Run(t.Context(), job)
			if r.State != c.want || r.Ran != dispatch.Yes || c.want == coord.RunFailed && r.ExitCode != c.exit {
				t.Errorf("%+v, want %s", r, c.want)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the server was asked %d times", n)
			}
			if strings.Contains(r.Message, "secret-of-the-server") {
				t.Errorf("the message quotes what came: %s", r.Message)
			}
			v, err := c2.Look(t.Context(), coord.Question{Agent: job.Agent, Run: job.Run})
			if err != nil || v.State != c.want || len(v.Entry.Attempts) != 1 {
				t.Fatalf("%+v, %v", v, err)
			}
			if a := v.Entry.Attempts[0]; a.Result != c.result || a.Exit != c.exit {
				t.Errorf("recorded: exit %d, %q; want %d, %q", a.Exit, a.Result, c.exit, c.result)
			}
		})
	}
}

// A run whose request never left is free.
func TestARequestThatNeverLeftWasNeverStarted(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	count := func(http.ResponseWriter, *http.Request) { asked.Add(1) }
	plain := serve(t, count)
	secure := httptest.NewTLSServer(http.HandlerFunc(count)) // by an authority that nobody knows
	defer secure.Close()
	secure.Config.ErrorLog = nil
	refused := httptest.NewServer(nil)
	refused.Close()
	deaf := serve(t, count)
	d := deps(t)
	write(t, d, "two-lines", "hunter2\nhunter3\n")
	write(t, d, "empty", "\n")
	lost := errors.New("the lease is gone")
	for what, c := range map[string]struct {
		h       config.HTTP
		trusted error
		want    string
	}{
		"refused":                         {config.HTTP{URL: refused.URL}, nil, "connection refused"},
		"no such host":                    {config.HTTP{URL: "http://host.invalid/hunter2"}, nil, "no request was sent to host.invalid"},
		"unknown authority":               {config.HTTP{URL: secure.URL}, nil, "TLS: "},
		"no TLS there":                    {config.HTTP{URL: strings.Replace(plain.URL, "http:", "https:", 1)}, nil, "TLS: "},
		"no file of a header":             {config.HTTP{URL: deaf.URL, HeaderFiles: map[string]string{"Authorization": "none"}}, nil, "header Authorization"},
		"two lines":                       {config.HTTP{URL: deaf.URL, HeaderFiles: map[string]string{"Authorization": "two-lines"}}, nil, "more than one line"},
		"an empty file":                   {config.HTTP{URL: deaf.URL, HeaderFiles: map[string]string{"Authorization": "empty"}}, nil, "it is empty"},
		"a lease that is over on the way": {config.HTTP{URL: deaf.URL}, lost, lost.Error()},
	} {
		p := permit()
		p.Trusted = func() error { return c.trusted }
		c.h.Method = "POST"
		e, err := For(config.Agent{HTTP: &c.h}, d).Start(t.Context(), p)
		if e != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", what, e, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error has a secret: %v", what, err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestAServerThatIsTrustedIsAskedOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(status(200, "ok"))
	defer s.Close()
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	defer func() { roots = nil }()
	if e := ended(t, config.HTTP{Method: "GET", URL: s.URL}, deps(t)); !e.OK() || e.Result != "ok" {
		t.Errorf("%+v", e)
	}
}

// Stop cannot stop a server: its answer counts. Kill is the end of waiting, and nobody knows then.
func TestAStopWaitsForTheAnswerAndAKillDoesNot(t *testing.T) {
	t.Parallel()
	arrived, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
	})
	start := func() dispatch.Effect {
		e, err := For(config.Agent{HTTP: &config.HTTP{Method: "POST", URL: s.URL}}, Deps{}).Start(t.Context(), permit())
		if err != nil {
			t.Fatal(err)
		}
		<-arrived
		return e
	}
	e := start()
	e.Stop(dispatch.ErrTimeout)
	goOn <- struct{}{}
	<-e.Done()
	if got := e.Ended(); !got.OK() || got.Stopped != nil {
		t.Errorf("stopped, and answered with 200: %+v", got)
	}
	e = start()
	e.Stop(dispatch.ErrTimeout)
	e.Kill(dispatch.ErrTimeout)
	<-e.Done()
	if got := e.Ended(); !errors.Is(got.Err, dispatch.ErrTimeout) {
		t.Errorf("killed: %+v", got)
	}
	e.Kill(nil) // at any time
}

// Between the connection and the request there is a moment in which a request can still be given up for good.
func TestARequestGivenUpBeforeItLeftHasFailed(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	req, err := newRequest(config.HTTP{Method: "POST", URL: s.URL}, Deps{}, permit())
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(t.Context(), req.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &request{conn: c, host: req.URL.Host, out: nowhere{}, cancel: cancel}
	r.Kill(dispatch.ErrDrain)
	if got := r.send(ctx, req); got.Err != nil || got.OK() || !errors.Is(got.Stopped, dispatch.ErrDrain) {
		t.Errorf("%+v", got)
	}
}

func TestAnAnswerIsKeptAndReadWithinLimits(t *testing.T) {
	t.Parallel()
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	})
	d := deps(t)
	e := ended(t, config.HTTP{Method: "POST", URL: endless.URL}, d)
	if !e.OK() || e.Result != strings.Repeat("x", coord.MaxResult) {
		t.Errorf("%d bytes, %+v", len(e.Result), e.Err)
	}
	list, err := d.Output.List(permit().Run)
	if err != nil || len(list) != 1 || list[0].Kept+list[0].Cut != MaxAnswer+int64(len("HTTP 200 OK\n")) {
		t.Errorf("%+v, %v", list, err)
	}
	s := serve(t, status(409, "held by n2"))
	ended(t, config.HTTP{Method: "POST", URL: s.URL}, d)
	if got := printed(t, d, permit().Run, permit().Attempt); got != "HTTP 409 Conflict\nheld by n2" {
		t.Errorf("kept %q", got)
	}
}

// A server that gives a connection back and breaks the next request on it gets no second one: the request would be sent
// again by itself.
func TestNoRequestIsSentTwice(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for n := 0; ; n++ {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					requests.Add(1)
					if n > 0 {
						return
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
		}
	})
	for range 3 {
		if e := ended(t, config.HTTP{Method: "POST", URL: "http://" + l.Addr().String()}, Deps{}); !e.OK() {
			t.Errorf("%+v", e)
		}
	}
	l.Close()
	serving.Wait()
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests arrived, want 3", n)
	}
}
