package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/telling"
	"github.com/syncnode/syncnode/node/claim"
)

// Executed says whether the effect of the run in question happened, as far as it is known.
type Executed string

const (
	No    Executed = "no"    // not by this request, and nothing is known of another
	Maybe Executed = "maybe" // somebody may have begun it
	Yes   Executed = "yes"   // it was begun, and its end is known or told
)

// A Problem is every answer that is not what was asked for: RFC 9457, application/problem+json.
type Problem struct {
	Type     string   `json:"type" doc:"What kind of problem it is: stable, and served by the node itself" example:"/problems/run-in-progress"`
	Title    string   `json:"title" doc:"The same for every problem of the type"`
	Status   int      `json:"status" doc:"The HTTP status"`
	Detail   string   `json:"detail,omitempty" doc:"What happened here, and what to do"`
	Executed Executed `json:"executed" enum:"no,maybe,yes" doc:"Whether the effect of the run happened, as far as it is known. After no the request may be repeated without harm. Of an end that is refused it is what that tells, or maybe"`

	Run     string  `json:"run_id,omitempty"`
	Agent   string  `json:"agent,omitempty"`
	Attempt string  `json:"attempt,omitempty" doc:"The attempt that the answer rests on"`
	Epoch   uint64  `json:"epoch,omitempty"`
	State   string  `json:"state,omitempty" doc:"The state of the run or the attempt, if it is known"`
	Cause   string  `json:"cause,omitempty"`
	Holder  *Holder `json:"holder,omitempty" doc:"Who has the agent"`
	Errors  []Wrong `json:"errors,omitempty" doc:"With invalid-request and config-refused: each mistake"`

	after time.Duration // for Retry-After; 0: none
}

// A Holder says who has an agent.
type Holder struct {
	Device string    `json:"device"`
	Epoch  uint64    `json:"epoch,omitempty"`
	Run    string    `json:"run_id,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Host   string    `json:"host,omitempty"`
	PID    int       `json:"pid,omitempty"`
}

// A Wrong is a mistake in a request. The value is not repeated: it may be a secret in the wrong place.
type Wrong struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" example:"body.agent"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// GetStatus, ContentType and GetHeaders are what huma asks an error.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of RFC 9457.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders gives what belongs into the header of the answer.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.after.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="syncnode"`)
	}
	return h
}

const problemType = "application/problem+json"

// A kind is a type of problem.
type kind struct {
	status      int
	executed    Executed
	title, text string
}

// kinds are all types of problems, by the last part of their URI. They are a promise: docs/operations.md lists them.
var kinds = map[string]kind{
	"invalid-request":    {400, No, "the request makes no sense", "Correct it. Nothing was done."},
	"unauthenticated":    {401, No, "who are you?", "Send a token (Authorization: Bearer …) or a client certificate. Nothing was done."},
	"forbidden":          {403, No, "not allowed", "The caller has no role for this, or none for this agent. Nothing was done."},
	"wrong-host":         {403, No, "the request was meant for somebody else", "Host or Origin is not one of this node's: see --allow-host. Nothing was done."},
	"not-found":          {404, No, "there is no such thing", "Nothing was done."},
	"method-not-allowed": {405, No, "no such method here", "See the Allow header. Nothing was done."},
	"too-slow":           {408, No, "the request took too long to arrive", "Send it faster. Nothing was done."},
	"run-in-progress":    {409, Maybe, "the run is in progress", "Somebody claimed or began this very run. Wait for its end: Retry-After. Where you tell an end, nothing was recorded: tell it again after Retry-After, until that lease has ended."},
	"agent-held":         {409, No, "the agent is busy", "The agent is busy with another run, or another device holds it. This run was not begun. Try again after Retry-After."},
	"run-in-doubt":       {409, Maybe, "the run is in doubt", "An attempt may have happened and nobody saw its end. Find out, then resolve it."},
	"run-failed":         {409, Yes, "the run failed", "It was begun, and its end was seen. It is not begun again unless somebody permits a retry."},
	"agent-paused":       {409, No, "the agent is paused", "Nothing of it begins until somebody resumes it."},
	"recovery":           {409, No, "the recovery gate is set", "Nothing begins until a person lifts it: syncnode recover status."},
	"attempt-closed":     {409, Yes, "the attempt ended otherwise", "Another end, or the same with another result or exit code, is recorded for this attempt already. Nothing was changed. Of a run of which the commit alone is kept any commit is answered with 200, and its result is not compared."},
	"wrong-device":       {409, Maybe, "the attempt is another device's", "Tell its end to the node of that device. If there is none any more the run is in doubt once that lease has ended, and a person resolves it. Nothing was changed."},
	"moved":              {409, Maybe, "the run is not what was judged", "Look at it again, then decide. Nothing was changed."},
	"not-configured":     {409, No, "the node does not know how to run it", "The agent is not in the configuration of this node. Nothing was begun."},
	"config-refused":     {409, No, "the configuration was not taken", "The file has mistakes, or cannot be read. The one of before goes on. Nothing was changed."},
	"claim-unknown":      {412, No, "there is no such claim or attempt here", "Before the fence: nothing was begun; claim again. After it: stop, and tell the end."},
	"already-fenced":     {412, Maybe, "another request passed the fence", "Only one request of a claim gets yes. This is a no: do not act."},
	"stale-epoch":        {412, No, "the agent is not held at that epoch any more", "Nothing was begun by this request. Claim again."},
	"run-committed":      {412, Yes, "the run is committed", "This is a no: do not act. A claim gives the recorded result."},
	"too-large":          {413, No, "the request is too large", "A body may have 1 MiB. Nothing was done."},
	"media-type":         {415, No, "the body is not JSON", "Send Content-Type: application/json. Nothing was done."},
	"input-mismatch":     {422, No, "another input was recorded for this run", "The same occurrence was used with another input. Choose another occurrence, or give that input."},
	"too-many-requests":  {429, No, "too many requests at once", "Try again after Retry-After. Nothing was done."},
	"internal":           {500, Maybe, "a mistake in syncnode", "Please report it. What became of the request is not known: ask again."},
	"unavailable":        {503, No, "not now", "The node is starting, going down, or its etcd does not answer. Nothing was begun by this request. Try again after Retry-After."},
	"indeterminate":      {503, Maybe, "it is not known whether it happened", "Send the very same request again: it settles the first."},
	"not-recorded":       {503, Yes, "the end is not recorded yet", "Tell it again: the run is in doubt until it is recorded. Where fail tells ran, executed is that."},
}

// problem makes a problem of a kind.
func problem(name, format string, args ...any) *Problem {
	k := kinds[name]
	p := &Problem{Type: "/problems/" + name, Title: k.title, Status: k.status, Executed: k.executed, Detail: telling.Text(fmt.Sprintf(format, args...))}
	if k.status == http.StatusServiceUnavailable || k.status == http.StatusTooManyRequests {
		p.after = time.Second
	}
	return p
}

// problemOf says what an error of the node means to a client.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := problem(nameOf(err), "%v", err)
	p.about(err)
	return p
}

// ErrNotConfigured means that the configuration of the node has nothing to run under the agent's name. Nothing was begun.
var ErrNotConfigured = errors.New("not in the configuration of this node")

// named are the problems by what an error matches; the first counts.
var named = []struct {
	is   error
	name string
}{
	{ErrNotConfigured, "not-configured"},
	{claim.ErrDraining, "unavailable"},
	{claim.ErrUnknown, "claim-unknown"},
	{claim.ErrGone, "claim-unknown"},
	{claim.ErrFenced, "already-fenced"},
	{claim.ErrForeign, "wrong-device"},
	{coord.ErrIndeterminate, "indeterminate"},
	{coord.ErrInput, "input-mismatch"},
	{coord.ErrCommitted, "run-committed"}, // a claim of it is answered otherwise
	{coord.ErrRecovery, "recovery"},
	{coord.ErrPaused, "agent-paused"},
	{coord.ErrInProgress, "run-in-progress"},
	{coord.ErrInDoubt, "run-in-doubt"},
	{coord.ErrFailed, "run-failed"},
	{coord.ErrClosed, "attempt-closed"},
	{coord.ErrMoved, "moved"},
	{coord.ErrNotFound, "not-found"},
	{coord.ErrHeld, "agent-held"},
	{coord.ErrNotHeld, "stale-epoch"},
	{coord.ErrStale, "stale-epoch"},
	{coord.ErrLost, "stale-epoch"},
	{coord.ErrReleased, "stale-epoch"},
	{coord.ErrInvalid, "invalid-request"},
	{coord.ErrNotSent, "unavailable"},
	{coord.ErrFull, "unavailable"},
	{coord.ErrGeneration, "unavailable"},
	{coord.ErrUnverifiable, "unavailable"},
	{context.DeadlineExceeded, "unavailable"},
	{context.Canceled, "unavailable"},
}

func nameOf(err error) string {
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return "config-refused"
	}
	for _, n := range named {
		if errors.Is(err, n.is) {
			return n.name
		}
	}
	if refused, ok := errors.AsType[*claim.RefusedError](err); ok && refused.Result.Ran == dispatch.No {
		return "unavailable"
	}
	return "internal"
}

// atFence makes every refusal of the fence a failed precondition: it is a no, whatever the reason.
func (p *Problem) atFence() *Problem {
	switch p.Status {
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusNotFound:
		p.Status = http.StatusPreconditionFailed
	}
	return p
}

// retryRun is when to ask again about what a client does.
const retryRun = 2 * time.Second

// about adds the facts that the error carries.
func (p *Problem) about(err error) {
	if v, ok := errors.AsType[*coord.VerdictError](err); ok {
		p.Run, p.Attempt, p.Epoch, p.Cause = v.Run, v.Attempt.ID, uint64(v.Attempt.Epoch), v.Attempt.Cause
		if v.Kind == coord.ErrInProgress {
			p.Holder = &Holder{Device: v.Attempt.Device, Epoch: uint64(v.Attempt.Epoch), Run: v.Run, Since: v.Attempt.Begun.UTC()}
			p.after = retryRun
		}
	}
	if h, ok := errors.AsType[*coord.HeldError](err); ok {
		p.Agent, p.Epoch, p.Holder = h.Holder.Agent, uint64(h.Holder.Epoch), holderOf(h.Holder)
		p.after = max(time.Second, h.Holder.TTL/5)
	}
	if b, ok := errors.AsType[*claim.BusyError](err); ok {
		p.Agent, p.Run, p.Attempt, p.after = b.Agent, b.Asked, b.Attempt, retryRun
		p.Holder = &Holder{Device: b.Device, Epoch: uint64(b.Epoch), Run: b.Run}
	}
	if g, ok := errors.AsType[*coord.GateError](err); ok {
		p.Agent = g.Agent
	}
	if c, ok := errors.AsType[*claim.ClosedError](err); ok {
		p.Run, p.Attempt, p.Epoch, p.State, p.Cause = c.Run, c.Attempt.ID, uint64(c.Attempt.Epoch), string(c.Attempt.State), c.Attempt.Cause
	}
	if c, ok := errors.AsType[*ConfigError](err); ok {
		for _, text := range c.Mistakes {
			p.Errors = append(p.Errors, Wrong{Message: text})
		}
	}
	if m, ok := errors.AsType[*coord.MovedError](err); ok {
		p.Run, p.Agent, p.State = m.View.Entry.Run, m.View.Entry.Agent, string(m.View.State)
	}
}

func holderOf(l coord.Lease) *Holder {
	return &Holder{Device: l.Device, Epoch: uint64(l.Epoch), Run: l.Note, Since: l.Since.UTC(), Host: l.Process.Host, PID: l.Process.PID}
}

type toldKey struct{}

// withTold notes what the end in a request says of the effect.
func withTold(ctx context.Context, e Executed) context.Context {
	return context.WithValue(ctx, toldKey{}, e)
}

// of is the problem as the answer to the request with this context. Where that tells an end a refusal does not make the effect
// undone: executed is what is told, unless more is known; and what did not happen is that the end was taken.
func (p *Problem) of(ctx context.Context) *Problem {
	told, ok := ctx.Value(toldKey{}).(Executed)
	if !ok {
		return p
	}
	if p.Executed == No {
		p.Executed = told
		p.Detail += "; the end was not taken: "
		if p.after == 0 {
			p.Detail += "put that right, and "
		}
		p.Detail += "tell it again"
	}
	if p.Status == http.StatusServiceUnavailable {
		late := problem("not-recorded", "%s", p.Detail)
		late.Executed, late.Run, late.Agent, late.Attempt = told, p.Run, p.Agent, p.Attempt
		return late
	}
	return p
}

// refuse sends the problem as the answer to a request from outside of huma.
func (p *Problem) refuse(w http.ResponseWriter, r *http.Request) { p.of(r.Context()).write(w) }

// write sends the problem from outside of huma.
func (p *Problem) write(w http.ResponseWriter) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(encode(p)) // whoever asked may have gone
}

// ofHuma makes a problem of what huma found wrong with a request before any code of ours saw it.
func ofHuma(status int, msg string, errs ...error) *Problem {
	name := map[int]string{401: "unauthenticated", 403: "forbidden", 404: "not-found", 405: "method-not-allowed", 408: "too-slow",
		413: "too-large", 415: "media-type", 500: "internal"}[status]
	if name == "" {
		name = "invalid-request" // huma says 422 for what is not valid
	}
	p := problem(name, "%s", msg)
	for _, err := range errs {
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			p.Errors = append(p.Errors, Wrong{Message: d.Message, Location: d.Location})
		} else if err != nil {
			p.Errors = append(p.Errors, Wrong{Message: err.Error()})
		}
	}
	return p
}
