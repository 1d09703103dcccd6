package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
)

// A Handler answers the calls of one format.
type Handler struct {
	// Format is the version that is spoken.
	Format int
	// MaxAsk bounds the first line of a question, MaxTail what follows it, in bytes.
	MaxAsk, MaxTail int64
	// Verbs are the calls, by the last element of the path.
	Verbs map[string]func(*Call) (Answer, error)
	// Refuse makes a problem of an error of a verb.
	Refuse func(error) *Problem
}

// A Call is a question that arrived.
type Call struct {
	*http.Request
	Verb string
	ID   string // drawn for the call: one that bears it again is a copy
	Tail *Tail
	ask  json.RawMessage
}

// Ask reads a question that nothing follows; its error is a *Problem that says that nothing was done.
func (c *Call) Ask(into any) error {
	if err := c.Head(into); err != nil {
		return err
	}
	return c.End()
}

// Head reads the question of a call whose Tail is read next, and ended by End.
func (c *Call) Head(into any) error {
	if err := Decode(c.ask, into); err != nil {
		return Malformed(err)
	}
	return nil
}

// End checks that nothing more follows.
func (c *Call) End() error {
	if err := c.Tail.end(); err != nil {
		return Malformed(err)
	}
	return nil
}

// Malformed is the problem of a question that cannot be read.
func Malformed(err error) *Problem {
	return NewProblem(http.StatusBadRequest, nameMalformed, "The question cannot be read", "the question cannot be read, nothing was done: "+err.Error(), No)
}

// Denied is the problem of who may not.
func Denied(err error) *Problem {
	return NewProblem(http.StatusForbidden, nameDenied, "Not allowed", "not allowed, nothing was done: "+err.Error(), No)
}

// An Answer is what goes back, and what follows it.
type Answer struct {
	Body any
	Tail func(io.Writer) error
}

// mostDrained is how many bytes of a refused question are taken and thrown away.
const mostDrained = 2 << 20

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := path.Base(r.URL.Path)
	do := h.Verbs[verb]
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case do == nil:
		h.refuse(w, "", NewProblem(http.StatusNotFound, "no-such-call", "No such call", fmt.Sprintf("there is no call %.40q here, nothing was done", verb), No))
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		h.refuse(w, "", NewProblem(http.StatusMethodNotAllowed, "method", "Method not allowed", "every call is a POST, nothing was done", No))
		return
	case kind != MediaType:
		h.refuse(w, "", NewProblem(http.StatusUnsupportedMediaType, "media-type", "Unsupported media type", "a question has content type "+MediaType+", nothing was done", No))
		return
	}
	e, tail, problem := h.question(w, r)
	if problem != nil {
		h.refuse(w, e.ID, problem)
		return
	}
	answer, err := do(&Call{Request: r, Verb: verb, ID: e.ID, Tail: tail, ask: e.Ask})
	if err != nil {
		// Who is still sending would not see why it is refused.
		_, _ = io.CopyN(io.Discard, tail.r, min(h.MaxTail, mostDrained))
		problem, ok := err.(*Problem)
		if !ok {
			problem = h.Refuse(err)
		}
		h.refuse(w, e.ID, problem)
		return
	}
	h.answer(w, e.ID, answer)
}

// question reads the first line.
func (h *Handler) question(w http.ResponseWriter, r *http.Request) (envelope, *Tail, *Problem) {
	most := h.MaxAsk + h.MaxTail + 1
	body := bufio.NewReaderSize(http.MaxBytesReader(w, r.Body, most), 16<<10)
	line, err := readLine(body, h.MaxAsk)
	if err != nil {
		if errors.Is(err, errLong) {
			return envelope{}, nil, NewProblem(http.StatusRequestEntityTooLarge, "too-large", "Too large", fmt.Sprintf("the first line of a question is at most %d bytes, nothing was done", h.MaxAsk), No)
		}
		return envelope{}, nil, Malformed(err)
	}
	line = bytes.Clone(line) // the tail is read through the same buffer
	var version struct {
		V  int    `json:"v"`
		ID string `json:"id"`
	}
	if err := json.Unmarshal(line, &version); err != nil {
		return envelope{}, nil, Malformed(err)
	}
	if !isID(version.ID) {
		return envelope{}, nil, Malformed(errors.New("the call has no id of 32 lower-case hex digits"))
	}
	e := envelope{ID: version.ID}
	if version.V != h.Format {
		p := NewProblem(http.StatusBadRequest, nameFormat, "Another format", fmt.Sprintf("the question has format %d, this server speaks %d, nothing was done: upgrade the older of the two", version.V, h.Format), No)
		p.Formats = []int{h.Format}
		return e, nil, p
	}
	if err := Decode(line, &e); err != nil {
		return e, nil, Malformed(err)
	}
	if e.Ask == nil || e.Answer != nil {
		return e, nil, Malformed(errors.New("no question"))
	}
	return e, &Tail{r: body, left: h.MaxTail}, nil
}

// answer sends what was found. What cannot be sent in whole is cut off, so that it is not taken for an answer.
func (h *Handler) answer(w http.ResponseWriter, id string, a Answer) {
	body, err := raw(a.Body)
	if err != nil {
		panic(fmt.Sprintf("wire: %T: %v", a.Body, err))
	}
	line, err := encode(envelope{V: h.Format, ID: id, Answer: body})
	if err != nil {
		panic(fmt.Sprintf("wire: envelope: %v", err))
	}
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := bufio.NewWriterSize(w, 16<<10)
	_, err = out.Write(line)
	if err == nil && a.Tail != nil {
		err = a.Tail(out)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // half an answer is none
	}
}

func (h *Handler) refuse(w http.ResponseWriter, id string, p *Problem) {
	WriteProblem(w, p, h.Format, id)
}

// WriteProblem sends a problem; format and id tie it to a call, and are left out where there is none.
func WriteProblem(w http.ResponseWriter, p *Problem, format int, id string) {
	q := *p
	if q.ID = id; id != "" {
		q.V = format
	}
	text, err := encode(&q)
	if err != nil {
		panic(fmt.Sprintf("wire: problem: %v", err))
	}
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(q.Status)
	_, _ = w.Write(text) // whoever asked is gone if it fails
}

// parseProblem reads a problem. Members that it does not know are left out, as RFC 9457 asks.
func parseProblem(text []byte) (*Problem, error) {
	var p Problem
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("a problem that cannot be read: %w: %w", errBody, err)
	}
	if p.Title == "" && p.Detail == "" {
		p.Title = "refused without a word"
	}
	p.Detail, p.Title = clip(p.Detail), clip(p.Title)
	return &p, nil
}
