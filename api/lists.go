package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/telling"
)

// A Run is a run as the ledger shows it.
type Run struct {
	Agent      string    `json:"agent"`
	Run        string    `json:"run_id"`
	Occurrence string    `json:"occurrence,omitempty"`
	State      string    `json:"state" enum:"free,running,in doubt,failed,committed"`
	Commits    int       `json:"commits,omitempty" doc:"How often it committed, if that is more than once: what it does may have happened that often"`
	Cause      string    `json:"cause,omitempty"`
	Device     string    `json:"device,omitempty"`
	Epoch      uint64    `json:"epoch,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Input      string    `json:"input_digest,omitempty"`
	Result     string    `json:"result,omitempty"`
	Attempts   []Attempt `json:"attempts,omitempty"`
}

// An Attempt is one try at a run.
type Attempt struct {
	ID        string    `json:"attempt"`
	Device    string    `json:"device"`
	Epoch     uint64    `json:"epoch"`
	State     string    `json:"state" enum:"open,void,failed,committed"`
	Alive     bool      `json:"alive,omitempty" doc:"Open, and the process that began it, a node or an exec, is there; a client of the API may be gone"`
	Cause     string    `json:"cause,omitempty"`
	Exit      int       `json:"exit_code"`
	Begun     time.Time `json:"begun,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	By        string    `json:"by,omitempty" doc:"Who decided, if it was not the device"`
	Reason    string    `json:"reason,omitempty"`
	Abandoned bool      `json:"abandoned,omitempty"`
	Permitted bool      `json:"permitted,omitempty" doc:"One more attempt was permitted"`
}

// A Lease is who holds an agent.
type Lease struct {
	Agent   string    `json:"agent"`
	Device  string    `json:"device"`
	Epoch   uint64    `json:"epoch"`
	TTL     int64     `json:"ttl_ms"`
	Expired bool      `json:"expired" doc:"Its process is gone and nobody took it yet"`
	Since   time.Time `json:"since,omitzero"`
	Run     string    `json:"run_id,omitempty" doc:"What it was taken for"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
}

// A NodeLease is a device that a node serves.
type NodeLease struct {
	Device  string    `json:"device"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Expired bool      `json:"expired" doc:"The node is gone"`
}

// A page is a part of a list.
type page[T any] struct {
	Body struct {
		Items []T    `json:"items"`
		Next  string `json:"next,omitempty" doc:"Give it as cursor for the next page; none at the end"`
	}
}

func pageOf[T any](items []T, next string) *page[T] {
	out := &page[T]{}
	out.Body.Items, out.Body.Next = items, next
	if items == nil {
		out.Body.Items = []T{}
	}
	return out
}

// An Unreadable is a run of which the ledger holds what cannot be read.
type Unreadable struct {
	Agent  string `json:"agent"`
	Run    string `json:"run_id"`
	Reason string `json:"reason"`
}

// A pageRun is a part of the list of runs.
type pageRun struct {
	Body struct {
		Items      []Run        `json:"items"`
		Unreadable []Unreadable `json:"unreadable,omitempty" doc:"Runs that cannot be read, whatever state was asked for: a person has to look. They count for the limit"`
		Next       string       `json:"next,omitempty" doc:"Give it as cursor for the next page; none at the end"`
	}
}

// A PageQuery asks for a part of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"300" doc:"What the last page gave as next"`
}

// A ListQuery asks for a part of a list of agents' things.
type ListQuery struct {
	PageQuery
	Agent  string `query:"agent" maxLength:"128" doc:"Only this agent"`
	Device string `query:"device" maxLength:"128" doc:"Only this device"`
}

type nodesIn struct {
	PageQuery
	Device string `query:"device" maxLength:"128" doc:"Only this device"`
}

type runsIn struct {
	ListQuery
	State []string  `query:"state" enum:"free,running,in-doubt,failed,committed" doc:"Only runs in these states"`
	Since time.Time `query:"since" doc:"Only runs that began or ended then or later: their field since, by the clock of their device" example:"2026-11-30T00:00:00Z"`
}

type runIn struct {
	RunPath
	Agent string `query:"agent" maxLength:"128" doc:"Spares the node a search, and finds runs of long ago"`
}

type runOut struct{ Body Run }

func (s *Server) listRoutes() {
	op := func(id, path, tag, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Tags: []string{tag}}
	}
	add(s, Observe, op("runs", "/v1/runs", "runs", "runs of the ledger, by agent and id: a page is not in the order of time"), getRuns)
	one := op("run", "/v1/runs/{id}", "runs", "one run with its attempts")
	one.Errors = []int{404}
	add(s, Observe, one, getRun)
	add(s, Observe, op("agents", "/v1/agents", "agents", "agents of the configuration, and those that somebody holds"), getAgents)
	add(s, Observe, op("leases", "/v1/leases", "leases", "who holds which agent"), getLeases)
	add(s, Observe, op("nodes", "/v1/nodes", "nodes", "devices that nodes serve"), getNodes)
}

func getRuns(ctx context.Context, n *Node, in *runsIn) (*pageRun, error) {
	f := coord.Filter{Agent: in.Agent, Device: in.Device, Since: in.Since, Limit: in.Limit, After: in.Cursor}
	for _, st := range in.State {
		f.States = append(f.States, coord.RunState(strings.ReplaceAll(st, "-", " ")))
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	c := CallerOf(ctx)
	out := &pageRun{}
	out.Body.Items = []Run{}
	if in.Agent != "" && !c.MayAgent(in.Agent) {
		return out, nil
	}
	last := ""
	for {
		got, err := n.Ledger.List(ctx, f)
		if err != nil {
			return nil, err
		}
		full := false
		for _, l := range inOrder(got) {
			if !c.MayAgent(l.agent) {
				continue
			}
			if full = len(out.Body.Items)+len(out.Body.Unreadable) == in.Limit; full {
				break
			}
			if last = l.agent + "/" + l.run; l.unreadable != "" {
				out.Body.Unreadable = append(out.Body.Unreadable, Unreadable{Agent: l.agent, Run: l.run, Reason: telling.Text(l.unreadable)})
			} else {
				out.Body.Items = append(out.Body.Items, runOf(l.view))
			}
		}
		// A cursor names an agent and a run. Where the caller may not see those it is the last run shown, or it is looked on.
		agent, _, _ := strings.Cut(got.Next, "/")
		switch shown := got.Next == "" || c.MayAgent(agent); {
		case !full && shown:
			out.Body.Next = got.Next
			return out, nil
		case last != "":
			out.Body.Next = last
			return out, nil
		}
		f.After, f.Limit = got.Next, coord.MaxPage
	}
}

// A line of a page of the ledger is a view, or says why there is none.
type line struct {
	agent, run, unreadable string
	view                   coord.View
}

// inOrder are the lines of a page by agent and run.
func inOrder(p coord.Page) []line {
	var all []line
	for _, v := range p.Views {
		all = append(all, line{agent: v.Entry.Agent, run: v.Entry.Run, view: v})
	}
	for _, u := range p.Unreadable {
		all = append(all, line{agent: u.Agent, run: u.Run, unreadable: u.Reason})
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Or(strings.Compare(a.agent, b.agent), strings.Compare(a.run, b.run)) })
	return all
}

func getRun(ctx context.Context, n *Node, in *runIn) (*runOut, error) {
	agent, err := mayRun(ctx, n, in.ID, in.Agent)
	if err != nil {
		return nil, err
	}
	v, err := n.Ledger.Look(ctx, coord.Question{Agent: agent, Run: in.ID})
	if err != nil {
		return nil, err
	}
	if !v.Found {
		p := problem("not-found", "the ledger has nothing of run %s of agent %s: it was never begun", in.ID, agent)
		p.Run, p.Agent = in.ID, agent
		return nil, p
	}
	return &runOut{Body: runOf(v)}, nil
}

// runOf shows a run, with the attempt that its state rests on.
func runOf(v coord.View) Run {
	e := v.Entry
	r := Run{Agent: e.Agent, Run: e.Run, Occurrence: e.Occurrence, State: string(v.State), Commits: e.Double(), Since: v.Since(), Input: e.Input}
	for _, a := range e.Attempts {
		r.Attempts = append(r.Attempts, Attempt{ID: a.ID, Device: a.Device, Epoch: uint64(a.Epoch), State: string(a.State),
			Alive: a.State == coord.Open && v.Alive[a.Liveness], Cause: a.Cause, Exit: a.Exit, Begun: a.Begun, Ended: a.Ended,
			By: a.By, Reason: a.Reason, Abandoned: a.Abandoned, Permitted: a.Permitted})
	}
	if a, ok := v.Deciding(); ok {
		r.Device, r.Epoch, r.Cause, r.Result = a.Device, uint64(a.Epoch), a.Cause, a.Result
	}
	return r
}

// cut gives a page of a sorted list: what comes after the cursor.
func cut[T any](all []T, key func(T) string, in *PageQuery) *page[T] {
	sort.Slice(all, func(i, j int) bool { return key(all[i]) < key(all[j]) })
	from := sort.Search(len(all), func(i int) bool { return key(all[i]) > in.Cursor })
	all = all[from:]
	if len(all) <= in.Limit {
		return pageOf(all, "")
	}
	return pageOf(all[:in.Limit:in.Limit], key(all[in.Limit-1]))
}

// leases are those of agents that the caller may see.
func leases(ctx context.Context, n *Node, in *ListQuery) ([]coord.Lease, error) {
	all, err := n.Ledger.Leases(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(l coord.Lease) bool {
		return in.Agent != "" && l.Agent != in.Agent || in.Device != "" && l.Device != in.Device || !CallerOf(ctx).MayAgent(l.Agent)
	}), nil
}

func getLeases(ctx context.Context, n *Node, in *ListQuery) (*page[Lease], error) {
	all, err := leases(ctx, n, in)
	if err != nil {
		return nil, err
	}
	rows := make([]Lease, len(all))
	for i, l := range all {
		rows[i] = Lease{Agent: l.Agent, Device: l.Device, Epoch: uint64(l.Epoch), TTL: l.TTL.Milliseconds(), Expired: l.Expired,
			Since: l.Since.UTC(), Run: runNote(l), Host: l.Process.Host, PID: l.Process.PID}
	}
	return cut(rows, func(l Lease) string { return l.Agent }, &in.PageQuery), nil
}

// runNote is the run that a lease was taken for, if it was.
func runNote(l coord.Lease) string {
	if ident.CheckRunID(l.Note) != nil {
		return ""
	}
	return l.Note
}

// nodePrefix begins the agents whose leases say that a node serves a device: see package node.
const nodePrefix = "node."

func getNodes(ctx context.Context, n *Node, in *nodesIn) (*page[NodeLease], error) {
	all, err := n.Ledger.Leases(ctx)
	if err != nil {
		return nil, err
	}
	var rows []NodeLease
	for _, l := range all {
		device, ok := strings.CutPrefix(l.Agent, nodePrefix)
		if ok && device == l.Device && (in.Device == "" || in.Device == device) {
			rows = append(rows, NodeLease{Device: device, Host: l.Process.Host, PID: l.Process.PID, Since: l.Since.UTC(), Expired: l.Expired})
		}
	}
	return cut(rows, func(l NodeLease) string { return l.Device }, &in.PageQuery), nil
}

func getAgents(ctx context.Context, n *Node, in *ListQuery) (*page[AgentState], error) {
	held, err := leases(ctx, n, in)
	if err != nil {
		return nil, err
	}
	rows := map[string]*AgentState{}
	for _, a := range n.agents() {
		if (in.Agent == "" || a.Agent == in.Agent) && (in.Device == "" || a.Owner == in.Device) && CallerOf(ctx).MayAgent(a.Agent) {
			rows[a.Agent] = &AgentState{Agent: a}
		}
	}
	for _, l := range held {
		if strings.HasPrefix(l.Agent, nodePrefix) {
			continue
		}
		if rows[l.Agent] == nil {
			rows[l.Agent] = &AgentState{Agent: Agent{Agent: l.Agent}}
		}
		rows[l.Agent].Holder = holderOf(l)
	}
	var all []AgentState
	for _, r := range rows {
		all = append(all, *r)
	}
	return cut(all, func(a AgentState) string { return a.Agent.Agent }, &in.PageQuery), nil
}
