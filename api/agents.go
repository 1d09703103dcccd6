package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/events"
)

type AgentPath struct {
	ID string `path:"id" maxLength:"128" doc:"The agent"`
}

type pauseIn struct {
	AgentPath
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why, for the record"`
		By     string `json:"by,omitempty" maxLength:"64" doc:"Who decides, for the record; a token's name is added"`
	}
}

type triggerIn struct {
	AgentPath
	Body struct {
		Occurrence string `json:"occurrence,omitempty" maxLength:"255" doc:"The name of the run: the same one is the same run for ever. A fresh one if empty"`
	}
}

type triggerOut struct {
	Location string `header:"Location"`
	Body     TriggeredRun
}

// A TriggeredRun is a run that was asked for beside the schedule.
type TriggeredRun struct {
	Agent      string `json:"agent"`
	Run        string `json:"run_id"`
	Occurrence string `json:"occurrence"`
}

type gateOut struct{ Body AgentState }

// An AgentState is an agent as ledger and configuration tell it together.
type AgentState struct {
	Agent
	Paused bool      `json:"paused"`
	By     string    `json:"by,omitempty" doc:"Who paused it"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Holder *Holder   `json:"holder,omitempty"`
}

func (s *Server) agentRoutes() {
	op := func(id, method, path, summary string, errors ...int) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{"agents"}, Errors: errors}
	}
	add(s, Observe, op("agent", http.MethodGet, "/v1/agents/{id}", "one agent: whether its runs may begin, and who holds it"), getAgent)
	add(s, Operate, op("pause", http.MethodPost, "/v1/agents/{id}/pause", "let no run of the agent begin; what runs goes on"), postPause)
	add(s, Operate, op("resume", http.MethodPost, "/v1/agents/{id}/resume", "let runs of the agent begin again"), postResume)
	trigger := op("trigger", http.MethodPost, "/v1/agents/{id}/trigger", "run an agent of the configuration once more", 409)
	trigger.DefaultStatus = http.StatusAccepted
	add(s, Operate, trigger, postTrigger)
}

// checkAgent says whether the caller may use the agent of the path.
func (p AgentPath) check(ctx context.Context) error {
	if err := ident.Check("agent", p.ID); err != nil {
		return problem("invalid-request", "%v", err)
	}
	return mayAgent(ctx, p.ID)
}

func getAgent(ctx context.Context, n *Node, in *AgentPath) (*gateOut, error) {
	if err := in.check(ctx); err != nil {
		return nil, err
	}
	return lookAt(ctx, n, in.ID)
}

// lookAt reads the gates of an agent: they come with the look at a run, whichever.
func lookAt(ctx context.Context, n *Node, agent string) (*gateOut, error) {
	v, err := n.Ledger.Look(ctx, coord.Question{Agent: agent, Run: ident.RunID(n.Namespace, agent, "key:-")})
	if err != nil {
		return nil, err
	}
	st := AgentState{Agent: Agent{Agent: agent}}
	for _, a := range n.agents() {
		if a.Agent == agent {
			st.Agent = a
		}
	}
	if g := v.Paused; g != nil {
		st.Paused, st.By, st.Reason, st.Since = true, g.By, g.Reason, g.At.UTC()
	}
	if v.Held {
		st.Holder = holderOf(v.Holder)
	}
	return &gateOut{Body: st}, nil
}

func (n *Node) agents() []Agent {
	if n.Agents == nil {
		return nil
	}
	return n.Agents()
}

func postPause(ctx context.Context, n *Node, in *pauseIn) (*gateOut, error) {
	if err := in.check(ctx); err != nil {
		return nil, err
	}
	g := coord.Gate{By: byOf(ctx, in.Body.By), Reason: in.Body.Reason, At: time.Now().UTC()}
	if err := n.Ledger.Pause(ctx, in.ID, g); err != nil {
		return nil, err
	}
	n.Desk.Note(events.Event{Kind: events.AgentPaused, Agent: in.ID, By: g.By})
	return lookAt(ctx, n, in.ID)
}

func postResume(ctx context.Context, n *Node, in *AgentPath) (*gateOut, error) {
	if err := in.check(ctx); err != nil {
		return nil, err
	}
	if err := n.Ledger.Resume(ctx, in.ID); err != nil {
		return nil, err
	}
	n.Desk.Note(events.Event{Kind: events.AgentResumed, Agent: in.ID, By: CallerOf(ctx).Name})
	return lookAt(ctx, n, in.ID)
}

func postTrigger(ctx context.Context, n *Node, in *triggerIn) (*triggerOut, error) {
	if err := in.check(ctx); err != nil {
		return nil, err
	}
	if n.Trigger == nil {
		return nil, problem("not-configured", "agent %s is not in the configuration of this node; a client claims it by POST /v1/runs", in.ID)
	}
	occurrence := ""
	if in.Body.Occurrence != "" {
		var err error
		if occurrence, err = ident.KeyOccurrence(in.Body.Occurrence); err != nil {
			return nil, problem("invalid-request", "%v", err)
		}
	}
	t, err := n.Trigger(ctx, in.ID, occurrence)
	if err != nil {
		return nil, err
	}
	return &triggerOut{Location: "/v1/runs/" + t.Run, Body: TriggeredRun(t)}, nil
}
