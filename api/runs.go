package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/events"
)

type claimIn struct {
	Key  string `header:"Idempotency-Key" maxLength:"600" doc:"Another spelling of occurrence; quoted or not"`
	Body struct {
		Agent       string `json:"agent" doc:"What must not run in parallel" example:"invoices"`
		Occurrence  string `json:"occurrence,omitempty" maxLength:"255" doc:"Which firing of the agent's work: the caller's own text. The same text is the same run for ever" example:"2026-11"`
		At          string `json:"at,omitempty" format:"date-time" doc:"Instead of occurrence: an instant of a schedule"`
		InputDigest string `json:"input_digest,omitempty" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the input, lower-case hex. The same occurrence with another one is refused"`
		Request     string `json:"request,omitempty" maxLength:"128" doc:"A random text of the client: a repeat with the same one gets the same claim"`
		IfFailed    string `json:"if_failed,omitempty" enum:"keep,retry" doc:"What to do if the run failed before"`
		OnDoubt     string `json:"on_doubt,omitempty" enum:"hold,retry" doc:"What to do if it is in doubt; retry is for effects that may happen twice"`
		HandOver    bool   `json:"hand_over,omitempty" doc:"Give the agent back with the end of the run, instead of keeping it for 2 s: the next run is expected elsewhere"`
		OnLost      string `json:"on_lost,omitempty" enum:"stop,keep" doc:"What the client does when the lease can no longer be trusted"`
	}
}

type claimOut struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Syncnode-Replayed" doc:"true: the run is committed, and this is its recorded result"`
	Body     Claimed
}

// A Claimed is a claim, or with Syncnode-Replayed the recorded result of the run.
type Claimed struct {
	Run        string    `json:"run_id"`
	Agent      string    `json:"agent"`
	Occurrence string    `json:"occurrence"`
	Device     string    `json:"device"`
	Epoch      uint64    `json:"epoch" doc:"The fencing token: hand it to the resource"`
	Claim      string    `json:"claim,omitempty" doc:"Names this claim at the fence"`
	TTL        int64     `json:"ttl_ms,omitempty" doc:"The claim is given up when nothing is heard of the client for that long"`
	State      string    `json:"state" enum:"free,committed"`
	Attempt    string    `json:"attempt,omitempty" doc:"Of a committed run"`
	Ended      time.Time `json:"ended,omitzero"`
	Result     string    `json:"result,omitempty" doc:"What was told at the commit"`
}

func (s *Server) runRoutes() {
	op := func(verb, summary string, errors ...int) huma.Operation {
		return huma.Operation{OperationID: verb, Method: http.MethodPost, Path: "/v1/runs/{id}/" + verb, Summary: summary, Tags: []string{"runs"}, Errors: errors}
	}
	add(s, Execute, huma.Operation{OperationID: "claim", Method: http.MethodPost, Path: "/v1/runs", DefaultStatus: http.StatusCreated,
		Summary: "reserve the agent for a run; nothing is begun", Tags: []string{"runs"}, Errors: []int{409, 422},
		Responses: map[string]*huma.Response{"200": {Description: "The run is committed: its recorded result, with Syncnode-Replayed: true"}}}, postRun)
	add(s, Execute, op("fence", "begin the run: only 200 permits to act", 412), postFence)
	add(s, Execute, op("check", "ask the ledger whether the open attempt may still act: anything but 200 is a no", 412), postCheck)
	add(s, Execute, op("heartbeat", "say that the client is there, and hear how long it may go on", 412), postHeartbeat)
	add(s, Execute, op("commit", "tell that the effect happened", 404, 409), postCommit)
	add(s, Execute, op("fail", "tell that the effect ended otherwise", 404, 409), postFail)
	add(s, Execute, op("unclaim", "give a claim up before the fence"), postUnclaim)
	add(s, Operate, op("resolve", "decide how a run in doubt ended", 404, 409), postResolve)
	retry := op("retry", "permit one more attempt of a failed run", 404, 409)
	retry.Description = "The node that runs the agent by a schedule looks for runs of that schedule every five minutes, and begins one run after the other. Any other begins when somebody claims it, or triggers it by its occurrence."
	add(s, Operate, retry, postRetry)
}

// occurrence is what the request names, however it spells it.
func (in *claimIn) occurrence() (string, error) {
	key := in.Key
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	text := in.Body.Occurrence
	switch {
	case key != "" && text != "" && key != text:
		return "", problem("invalid-request", "Idempotency-Key and occurrence differ: they are two spellings of one thing")
	case text == "":
		text = key
	}
	if (text == "") == (in.Body.At == "") {
		return "", problem("invalid-request", "exactly one of occurrence (or Idempotency-Key) and at is required")
	}
	if in.Body.At != "" {
		at, err := time.Parse(time.RFC3339Nano, in.Body.At)
		if err != nil {
			return "", problem("invalid-request", "at: %v", err)
		}
		return ident.AtOccurrence(at), nil
	}
	return ident.KeyOccurrence(text)
}

func postRun(ctx context.Context, n *Node, in *claimIn) (*claimOut, error) {
	occurrence, err := in.occurrence()
	if err == nil {
		err = ident.Check("agent", in.Body.Agent)
	}
	if errors.Is(err, ident.ErrInvalid) {
		return nil, problem("invalid-request", "%v", err)
	}
	if err == nil {
		err = mayAgent(ctx, in.Body.Agent)
	}
	if err != nil {
		return nil, err
	}
	b := in.Body
	c, err := n.Desk.Claim(ctx, claim.Ask{Agent: b.Agent, Occurrence: occurrence, Input: b.InputDigest, Request: b.Request,
		IfFailed: dispatch.IfFailed(b.IfFailed), OnDoubt: dispatch.OnDoubt(b.OnDoubt), OnLost: dispatch.OnLost(b.OnLost), HandOver: b.HandOver})
	if done, ok := errors.AsType[*coord.VerdictError](err); ok && done.Kind == coord.ErrCommitted {
		return replayed(b.Agent, occurrence, done), nil
	}
	if err != nil {
		p := problemOf(err)
		p.Agent, p.Run = b.Agent, ident.RunID(n.Namespace, b.Agent, occurrence)
		return nil, p
	}
	return &claimOut{Status: http.StatusCreated, Location: "/v1/runs/" + c.Run, Body: Claimed{Run: c.Run, Agent: c.Agent, Occurrence: c.Occurrence,
		Device: c.Device, Epoch: uint64(c.Epoch), Claim: c.ID, TTL: c.TTL.Milliseconds(), State: string(coord.RunFree)}}, nil
}

func replayed(agent, occurrence string, done *coord.VerdictError) *claimOut {
	a := done.Attempt
	return &claimOut{Status: http.StatusOK, Location: "/v1/runs/" + done.Run, Replayed: "true", Body: Claimed{Run: done.Run, Agent: agent, Occurrence: occurrence,
		Device: a.Device, Epoch: uint64(a.Epoch), State: string(coord.RunCommitted), Attempt: a.ID, Ended: a.Ended, Result: a.Result}}
}

func mayAgent(ctx context.Context, agent string) error {
	if c := CallerOf(ctx); !c.MayAgent(agent) {
		return problem("forbidden", "%s is not bound to agent %s", c.Name, agent)
	}
	return nil
}

// mayRun finds the agent of a run and whether the caller may use it.
func mayRun(ctx context.Context, n *Node, run, agent string) (string, error) {
	if err := ident.CheckRunID(run); err != nil {
		return "", problem("invalid-request", "%v", err)
	}
	if known, ok := n.Desk.AgentOf(run); ok {
		agent = known
	}
	if agent == "" {
		v, err := coord.Find(ctx, n.Ledger, coord.Filter{}, run)
		if err != nil {
			return "", err
		}
		agent = v.Entry.Agent
	}
	if err := ident.Check("agent", agent); err != nil {
		return "", problem("invalid-request", "%v", err)
	}
	return agent, mayAgent(ctx, agent)
}

// RunPath, PageQuery, ListQuery, AgentPath and Decision are parts of requests: huma reads only exported ones.
type RunPath struct {
	ID string `path:"id" maxLength:"128" doc:"The run id" example:"r1-…"`
}

type fenceIn struct {
	RunPath
	Body struct {
		Claim   string `json:"claim" maxLength:"128"`
		Request string `json:"request" minLength:"8" maxLength:"128" doc:"A random text of the client for this very request: only a repeat with the same one hears yes again"`
	}
}

// A Standing says how long a client may go on.
type Standing struct {
	Run       string    `json:"run_id"`
	Agent     string    `json:"agent"`
	Attempt   string    `json:"attempt,omitempty" doc:"Names the attempt in heartbeat, commit and fail"`
	Epoch     uint64    `json:"epoch" doc:"The fencing token: hand it to the resource"`
	Deadline  time.Time `json:"deadline" doc:"Be gone by then unless a later answer says more; by the node's clock"`
	Valid     int64     `json:"valid_ms" doc:"The deadline as a span, from when this request was sent"`
	StopAfter int64     `json:"stop_after_ms" doc:"Begin to stop then, unless a later answer says more; from when this request was sent"`
	Heartbeat int64     `json:"heartbeat_ms" doc:"How often to say that the client is there"`
	TTL       int64     `json:"ttl_ms" doc:"The client is taken for gone when nothing is heard of it for that long"`
	Stop      bool      `json:"stop" doc:"Stop now"`
	Cause     string    `json:"cause,omitempty" enum:"lost,timeout,drain,signal" doc:"Why to stop"`
}

type standingOut struct{ Body Standing }

func standingOf(s claim.Standing) *standingOut {
	out := &standingOut{Body: Standing{Run: s.Run, Agent: s.Agent, Attempt: s.Attempt, Epoch: uint64(s.Epoch), Deadline: s.Deadline.UTC(),
		Valid: max(0, s.Deadline.Sub(s.At).Milliseconds()), StopAfter: max(0, s.StopBy.Sub(s.At).Milliseconds()),
		Heartbeat: (s.TTL / 5).Milliseconds(), TTL: s.TTL.Milliseconds()}}
	if s.Stop != nil {
		out.Body.Stop, out.Body.Cause = true, dispatch.CauseOf(s.Stop)
	}
	return out
}

func postFence(ctx context.Context, n *Node, in *fenceIn) (*standingOut, error) {
	agent, ok := n.Desk.AgentOf(in.ID)
	if !ok {
		p := problem("claim-unknown", "run %.70s is not claimed at this node: nothing was begun; claim it again", in.ID)
		p.Run = in.ID
		return nil, p
	}
	if err := mayAgent(ctx, agent); err != nil {
		return nil, err
	}
	st, err := n.Desk.Fence(ctx, in.ID, in.Body.Claim, in.Body.Request)
	if err != nil {
		p := problemOf(err).atFence()
		p.Run, p.Agent = in.ID, agent
		return nil, p
	}
	return standingOf(st), nil
}

type heartbeatIn struct {
	RunPath
	Body struct {
		Attempt string `json:"attempt,omitempty" maxLength:"128"`
		Claim   string `json:"claim,omitempty" maxLength:"128" doc:"Before the fence, instead of attempt"`
	}
}

func postHeartbeat(ctx context.Context, n *Node, in *heartbeatIn) (*standingOut, error) {
	if agent, ok := n.Desk.AgentOf(in.ID); ok {
		if err := mayAgent(ctx, agent); err != nil {
			return nil, err
		}
	}
	st, err := n.Desk.Heartbeat(in.ID, in.Body.Attempt, in.Body.Claim)
	if err != nil {
		p := problemOf(err)
		p.Run = in.ID
		if in.Body.Attempt != "" {
			p.Executed = Maybe
		}
		return nil, p
	}
	return standingOf(st), nil
}

type checkIn struct {
	RunPath
	Body struct {
		Attempt string `json:"attempt" maxLength:"128"`
	}
}

func postCheck(ctx context.Context, n *Node, in *checkIn) (*standingOut, error) {
	if agent, ok := n.Desk.AgentOf(in.ID); ok {
		if err := mayAgent(ctx, agent); err != nil {
			return nil, err
		}
	}
	err := n.Desk.Check(ctx, in.ID, in.Body.Attempt)
	var st claim.Standing
	if err == nil {
		st, err = n.Desk.Heartbeat(in.ID, in.Body.Attempt, "")
	}
	if err != nil {
		p := problemOf(err).atFence()
		p.Run, p.Attempt, p.Executed = in.ID, in.Body.Attempt, Maybe
		return nil, p
	}
	return standingOf(st), nil
}

type unclaimIn struct {
	RunPath
	Body struct {
		Claim string `json:"claim" maxLength:"128"`
	}
}

type unclaimOut struct {
	Body struct {
		Run string `json:"run_id"`
	}
}

func postUnclaim(ctx context.Context, n *Node, in *unclaimIn) (*unclaimOut, error) {
	if agent, ok := n.Desk.AgentOf(in.ID); ok {
		if err := mayAgent(ctx, agent); err != nil {
			return nil, err
		}
		n.Desk.Unclaim(in.ID, in.Body.Claim)
	}
	out := &unclaimOut{}
	out.Body.Run = in.ID
	return out, nil
}

type commitIn struct {
	RunPath
	Body struct {
		Attempt string `json:"attempt" maxLength:"128"`
		Agent   string `json:"agent,omitempty" maxLength:"128" doc:"Spares the node a search when it was restarted since"`
		Result  string `json:"result,omitempty" maxLength:"1024" doc:"At most 1 KiB for whoever asks for this run again"`
	}
}

type failIn struct {
	RunPath
	Body struct {
		Attempt  string `json:"attempt" maxLength:"128"`
		Agent    string `json:"agent,omitempty" maxLength:"128" doc:"Spares the node a search when it was restarted since"`
		Result   string `json:"result,omitempty" maxLength:"1024"`
		Ran      string `json:"ran,omitempty" enum:"yes,no,maybe" doc:"no: nothing happened at all, and the run is free again. maybe: its end cannot be learned, and it is in doubt. Otherwise yes"`
		Cause    string `json:"cause,omitempty" enum:"exit,signal,timeout,lost,drain"`
		ExitCode int    `json:"exit_code,omitempty" minimum:"-1" maximum:"255"`
		Signal   int    `json:"signal,omitempty" minimum:"0" maximum:"64"`
	}
}

type endedOut struct{ Body Ended }

// An Ended says how an attempt stands after its end was told.
type Ended struct {
	Run     string `json:"run_id"`
	Agent   string `json:"agent"`
	Attempt string `json:"attempt"`
	Epoch   uint64 `json:"epoch,omitempty"`
	State   string `json:"state" enum:"committed,failed,free,in doubt,running"`
	Cause   string `json:"cause,omitempty"`
	Settled bool   `json:"settled" doc:"false: it stands in the node's journal, and reaches the ledger when that answers"`
}

// tells is what the body of an end says of the effect, by operation.
var tells = map[string]func(body []byte) Executed{
	"commit": func([]byte) Executed { return Yes },
	"fail": func(body []byte) Executed {
		b := struct{ Ran Executed }{Yes}
		if json.Unmarshal(body, &b) != nil || b.Ran != Yes && b.Ran != No {
			return Maybe
		}
		return b.Ran
	},
}

func postCommit(ctx context.Context, n *Node, in *commitIn) (*endedOut, error) {
	return end(ctx, n, claim.End{Run: in.ID, Agent: in.Body.Agent, Attempt: in.Body.Attempt, State: coord.Committed, Result: in.Body.Result})
}

func postFail(ctx context.Context, n *Node, in *failIn) (*endedOut, error) {
	b := in.Body
	state := map[string]coord.State{"no": coord.Void, "maybe": coord.Open}[b.Ran]
	if state == "" {
		state = coord.Failed
	}
	return end(ctx, n, claim.End{Run: in.ID, Agent: b.Agent, Attempt: b.Attempt, State: state, Cause: b.Cause, Exit: b.ExitCode, Signal: b.Signal, Result: b.Result})
}

func end(ctx context.Context, n *Node, e claim.End) (*endedOut, error) {
	agent, err := mayRun(ctx, n, e.Run, e.Agent)
	if err != nil {
		return nil, notTaken(err, e)
	}
	e.Agent = agent
	got, err := n.Desk.End(ctx, e)
	if err != nil {
		return nil, notTaken(err, e)
	}
	return &endedOut{Body: Ended{Run: got.Run, Agent: got.Agent, Attempt: got.Attempt, Epoch: uint64(got.Epoch), State: string(got.State), Cause: got.Cause, Settled: got.Settled}}, nil
}

// notTaken says which end it is that was refused.
func notTaken(err error, e claim.End) *Problem {
	p := problemOf(err)
	p.Run, p.Attempt = e.Run, e.Attempt
	return p
}

type Decision struct {
	Agent   string `json:"agent,omitempty" maxLength:"128" doc:"Spares the node a search"`
	Attempt string `json:"attempt,omitempty" maxLength:"128" doc:"The attempt that was judged; the only one if there is one"`
	Reason  string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why, for the record"`
	By      string `json:"by,omitempty" maxLength:"64" doc:"Who decides, for the record; a token's name is added"`
}

type resolveIn struct {
	RunPath
	Body struct {
		Decision
		As    string `json:"as" enum:"committed,failed" doc:"committed: it happened. failed: it did not, and the run is free"`
		Force bool   `json:"force,omitempty" doc:"Also while the process that began the attempt, a node or an exec, is alive"`
	}
}

type retryIn struct {
	RunPath
	Body struct{ Decision }
}

func postResolve(ctx context.Context, n *Node, in *resolveIn) (*runOut, error) {
	as := map[string]coord.State{"committed": coord.Committed, "failed": coord.Void}[in.Body.As]
	return decide(ctx, n, in.ID, in.Body.Decision, coord.Open, func(r coord.Resolution) (coord.View, error) {
		r.As, r.Force = as, in.Body.Force
		return n.Ledger.Resolve(ctx, r)
	})
}

func postRetry(ctx context.Context, n *Node, in *retryIn) (*runOut, error) {
	return decide(ctx, n, in.ID, in.Body.Decision, coord.Failed, func(r coord.Resolution) (coord.View, error) { return n.Ledger.Permit(ctx, r) })
}

func decide(ctx context.Context, n *Node, run string, in Decision, state coord.State, do func(coord.Resolution) (coord.View, error)) (*runOut, error) {
	agent, err := mayRun(ctx, n, run, in.Agent)
	if err != nil {
		return nil, err
	}
	v, err := n.Ledger.Look(ctx, coord.Question{Agent: agent, Run: run})
	if err != nil {
		return nil, err
	}
	r := coord.Resolution{Agent: agent, Run: run, Attempt: in.Attempt, By: byOf(ctx, in.By), Reason: in.Reason}
	if r.Attempt, err = judged(v, in.Attempt, state); err != nil {
		return nil, err
	}
	if v, err = do(r); err != nil {
		return nil, err
	}
	n.Desk.Note(events.Event{Kind: events.RunDecided, Agent: agent, Run: run, Occurrence: v.Entry.Occurrence, Attempt: r.Attempt, State: string(v.State), By: r.By})
	return &runOut{Body: runOf(v)}, nil
}

// judged is the attempt that a decision is about.
func judged(v coord.View, given string, state coord.State) (string, error) {
	if given != "" {
		return given, nil
	}
	found := ""
	for _, a := range v.Entry.Attempts {
		switch {
		case a.State != state:
		case found != "" && state == coord.Open:
			return "", problem("invalid-request", "the run has several open attempts: name one")
		default:
			found = a.ID
		}
	}
	if found == "" {
		p := problem("moved", "run %s is %s and has no %s attempt; nothing was changed", v.Entry.Run, v.State, state)
		p.State = string(v.State)
		return "", p
	}
	return found, nil
}

// byOf is who decides: the owner of the socket may say so, of others the name of the token is part of it.
func byOf(ctx context.Context, given string) string {
	c := CallerOf(ctx)
	switch {
	case given == "" || given == c.Name:
		return c.Name
	case c.Owner:
		return given
	}
	return fmt.Sprintf("%s (%.32s)", given, c.Name)
}
