package effect

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
)

// MaxAnswer is how much of an answer is read, in bytes; what comes after it is not waited for.
const MaxAnswer = 1 << 20

// roots are the authorities that servers are believed by; nil: those of the system. Tests set it.
var roots *x509.CertPool

// startRequest makes the connection and sends the request. Its error means that nothing was sent.
func startRequest(ctx context.Context, h config.HTTP, d Deps, p dispatch.Permit) (dispatch.Effect, error) {
	req, err := newRequest(h, d, p)
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, req.URL, roots)
	if err != nil {
		return nil, fmt.Errorf("no request was sent to %s: %w", req.URL.Host, err)
	}
	if err := p.Trusted(); err != nil { // the connection may have taken longer than a lease
		c.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &request{conn: c, host: req.URL.Host, out: d.writer(p.Run, p.Attempt), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cancel(nil)
		defer r.out.Close()
		defer c.Close()
		r.ended = r.send(ctx, req)
	}()
	return r, nil
}

// newRequest is the request with all its headers.
func newRequest(h config.HTTP, d Deps, p dispatch.Permit) (*http.Request, error) {
	req, err := http.NewRequest(h.Method, h.URL, nil)
	if err != nil {
		return nil, errors.New("the URL cannot be used") // its error has the URL
	}
	for name, value := range h.Headers {
		req.Header.Set(name, value)
	}
	for name, file := range h.HeaderFiles {
		value, err := readSecret(d.path(file))
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		req.Header.Set(name, string(value))
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "syncnode")
	}
	req.Header.Set("Idempotency-Key", p.Run)
	req.Header.Set("Syncnode-Run", p.Run)
	req.Header.Set("Syncnode-Agent", p.Agent)
	req.Header.Set("Syncnode-Occurrence", url.PathEscape(ident.OccurrenceText(p.Occurrence)))
	req.Header.Set("Syncnode-Epoch", strconv.FormatUint(uint64(p.Epoch), 10))
	req.Header.Set("Syncnode-Attempt", p.Attempt)
	if !p.Deadline.IsZero() {
		req.Header.Set("Syncnode-Deadline", p.Deadline.UTC().Format(time.RFC3339))
	}
	return req, nil
}

// A request is one that is on its way.
type request struct {
	conn   *conn
	host   string
	out    io.WriteCloser
	cancel context.CancelCauseFunc
	done   chan struct{}
	ended  dispatch.Ended // before done is closed
}

// Stop does nothing: the server cannot be stopped, and its answer is worth waiting for until Kill.
func (r *request) Stop(error) {}

// Kill gives the request up.
func (r *request) Kill(cause error)      { r.cancel(&givenUpError{cause}) }
func (r *request) Done() <-chan struct{} { return r.done }
func (r *request) Ended() dispatch.Ended { return r.ended }

// A givenUpError means that nobody waited for the end of the answer.
type givenUpError struct{ cause error }

func (e *givenUpError) Error() string { return fmt.Sprintf("it was given up: %v", e.cause) }
func (e *givenUpError) Unwrap() error { return e.cause }

// send sends the request and judges its answer.
func (r *request) send(ctx context.Context, req *http.Request) dispatch.Ended {
	answer, err := r.conn.http.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return r.unanswered(ctx, whyOf(ctx, plainly(err)))
	}
	defer answer.Body.Close()
	first := &head{room: coord.MaxResult}
	fmt.Fprintf(first, "HTTP %s\n", statusText(answer))
	if answer.StatusCode/100 == 2 {
		first = &head{room: coord.MaxResult} // of a success the words are enough
	}
	fmt.Fprintf(r.out, "HTTP %s\n", statusText(answer))
	if answer.StatusCode >= 200 { // else the body is the connection, and has no end
		_, err = io.Copy(io.MultiWriter(first, r.out), io.LimitReader(answer.Body, MaxAnswer))
	}
	if err != nil {
		err = whyOf(ctx, plainly(err))
	}
	return r.judge(answer, err, first.String())
}

// unanswered is the end of a request without an answer.
func (r *request) unanswered(ctx context.Context, err error) dispatch.Ended {
	if r.conn.sent.Load() {
		return dispatch.Ended{Err: fmt.Errorf("no answer of %s to a request that was sent: %w", r.host, err)}
	}
	e := dispatch.Ended{ExitCode: dispatch.ExitNotRun, Result: fmt.Sprintf("nothing was sent to %s: %v", r.host, err)}
	if up, ok := errors.AsType[*givenUpError](context.Cause(ctx)); ok {
		e.Stopped = up.cause
	}
	return e
}

// plainly is what went wrong on a connection, without anything that came over it: a server may send back what it was sent.
func plainly(err error) error {
	_, network := errors.AsType[net.Error](err)
	switch {
	case network:
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection ended")
	case strings.Contains(err.Error(), "headers exceeded"):
		return fmt.Errorf("its headers have more than %d bytes", MaxHeader)
	}
	return errors.New("it is no answer of HTTP")
}

// judge says what an answer means, whose body ended with err.
func (r *request) judge(answer *http.Response, err error, words string) dispatch.Ended {
	switch status := answer.StatusCode; {
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return dispatch.Ended{Err: fmt.Errorf("%s answered %s: somebody on the way got no answer", r.host, statusText(answer))}
	case status/100 != 2 && answer.Header.Get("Syncnode-Executed") == "maybe":
		return dispatch.Ended{Err: fmt.Errorf("%s answered %s, and that it may have been executed", r.host, statusText(answer))}
	case status/100 != 2:
		return dispatch.Ended{ExitCode: status, Result: words}
	case err != nil:
		return dispatch.Ended{Err: fmt.Errorf("the answer of %s, %s, broke off: %w", r.host, statusText(answer), err)}
	}
	return dispatch.Ended{Result: words}
}

// statusText is the status in our own words: a server may put anything behind the number.
func statusText(answer *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode)))
}

// A head keeps the first bytes that are written to it.
type head struct {
	kept []byte
	room int
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.room)
	h.kept = append(h.kept, b[:n]...)
	h.room -= n
	return len(b), nil
}

func (h *head) String() string { return string(h.kept) }
