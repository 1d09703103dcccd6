package guard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// A Config says how a Guard works. Its zero fields take the defaults named here.
type Config struct {
	Store   Store        // a new Memory
	MaxBody int64        // the greatest body of a request in bytes; 1 MiB
	Keep    int64        // how many bytes of keys and answers are remembered; 64 MiB. The oldest are forgotten first
	Logger  *slog.Logger // hears of refused epochs and of a Store that fails; nobody
}

// MaxAnswer is the greatest answer that is remembered, in bytes of its body. What is longer reaches its caller whole; a
// repeated call is told that it was executed, and that the answer is not there any more.
const MaxAnswer = 64 << 10

// A Guard stands before the handlers of a service.
type Guard struct {
	store   Store
	maxBody int64
	log     *slog.Logger
	keys    keys
}

// New returns a Guard.
func New(cfg Config) *Guard {
	if cfg.Store == nil {
		cfg.Store = new(Memory)
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 1 << 20
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 64 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Guard{store: cfg.Store, maxBody: cfg.MaxBody, log: cfg.Logger, keys: keys{keep: cfg.Keep, by: map[string]*record{}}}
}

// Handler lets through to next what is admitted, whatever its method: put it before what has an effect. It answers by itself, with
// application/problem+json and executed no, maybe or yes, as far as this Guard remembers:
//
//	400  a header is missing, doubled or not understood                                  no
//	409  a call with this key is being executed                                          maybe
//	409  this was executed, and its answer was too long to be remembered                 yes
//	412  an older epoch                                                                  no
//	413  the body is longer than Config.MaxBody                                          no
//	422  the key was used for another request: other method, address or body             no
//	500  the handler for this key panicked                                               maybe
//	503  the Store could not say                                                         no
//
// A key that was executed gets the answer of that time again, whatever it was and at whatever epoch: a server error proves nothing.
// A handler that knows better sets Syncnode-Executed in its answer, which then is not remembered, and the next call with the key
// is executed: no, if nothing happened (see [Refuse]); maybe, if it will settle by itself what happened when it is asked again.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, print, err := g.read(w, r)
		if err != nil {
			Refuse(w, err)
			return
		}
		rec, mine := g.keys.claim(call.Agent+" "+call.Key, print)
		if !mine {
			g.again(w, rec, print)
			return
		}
		if err := g.store.Admit(r.Context(), call.Agent, call.Epoch); err != nil {
			g.keys.forget(rec)
			g.tell(r.Context(), call, err)
			Refuse(w, err)
			return
		}
		g.execute(w, r.WithContext(context.WithValue(r.Context(), callKey{}, call)), next, rec)
	})
}

func (g *Guard) tell(ctx context.Context, c Call, err error) {
	log := g.log.With("agent", c.Agent, "epoch", c.Epoch)
	if errors.Is(err, ErrStale) {
		log.InfoContext(ctx, "an older epoch was refused")
		return
	}
	log.WarnContext(ctx, "an epoch could not be checked, and was refused", "error", err)
}

func (g *Guard) execute(w http.ResponseWriter, r *http.Request, next http.Handler, rec *record) {
	t := &tee{ResponseWriter: w, a: answer{doubt: true}}
	defer func() {
		if said := t.a.header.Get(HeaderExecuted); said == "no" || said == "maybe" {
			g.keys.forget(rec)
			return
		}
		g.keys.done(rec, t.a)
	}()
	next.ServeHTTP(t, r)
	t.WriteHeader(http.StatusOK) // what net/http does for a handler that wrote nothing
	t.a.doubt = false
}

// again answers a call whose key was seen before.
func (g *Guard) again(w http.ResponseWriter, rec *record, print [sha256.Size]byte) {
	a, over := g.keys.look(rec)
	switch {
	case rec.print != print:
		Refuse(w, &refusal{status: http.StatusUnprocessableEntity, kind: "key-reused", title: "This Idempotency-Key was used for another request", executed: "no"})
	case !over:
		w.Header().Set("Retry-After", "1")
		Refuse(w, &refusal{status: http.StatusConflict, kind: "in-progress", title: "A call with this Idempotency-Key is being executed", executed: "maybe"})
	case a.doubt:
		Refuse(w, &refusal{status: http.StatusInternalServerError, kind: "in-doubt", title: "The handler for this Idempotency-Key did not come to its end", executed: "maybe"})
	case a.long:
		Refuse(w, &refusal{status: http.StatusConflict, kind: "answer-forgotten", title: "This was executed, and its answer was too long to be remembered", executed: "yes"})
	default:
		for name, values := range a.header {
			w.Header()[name] = values
		}
		w.Header().Set(HeaderReplayed, "true")
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // nobody is left to be told
	}
}

// read takes the headers, and the body for the fingerprint of the request.
func (g *Guard) read(w http.ResponseWriter, r *http.Request) (c Call, print [sha256.Size]byte, err error) {
	if c, err = callOf(r.Header); err != nil {
		return c, print, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return c, print, &refusal{status: http.StatusRequestEntityTooLarge, kind: "too-long", executed: "no",
			title: fmt.Sprintf("The body is longer than %d bytes", g.maxBody)}
	case err != nil:
		return c, print, bad("the body could not be read: %v", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", r.Method, r.URL.RequestURI())
	h.Write(body)
	return c, [sha256.Size]byte(h.Sum(nil)), nil
}
