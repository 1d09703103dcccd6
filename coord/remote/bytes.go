package remote

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// The questions. All but open name the session.
type (
	openAsk struct {
		Session string        `json:"session"` // 32 lower-case hex digits, drawn by the client
		Process coord.Process `json:"process"`
	}
	sessionAsk struct {
		Session string `json:"session"`
	}
	// numbered is in each request that may give a lease: it is carried out at most once.
	numbered struct {
		Session string `json:"session"`
		N       uint64 `json:"n"`    // counts the requests for this agent in this session
		From    uint64 `json:"from"` // what from this number on, below N, was granted is given up first: nobody knows of it
	}
	acquireAsk struct {
		numbered
		Request request `json:"request"`
	}
	stealAsk struct {
		numbered
		Theft theft `json:"theft"`
	}
	startAsk struct {
		numbered
		Request request `json:"request"`
		Begin   begin   `json:"begin"`
	}
	giveUpAsk struct {
		numbered
		Agent  string `json:"agent"`
		Device string `json:"device"`
	}
	claimAsk struct {
		Session string      `json:"session"`
		Agent   string      `json:"agent"`
		Device  string      `json:"device"`
		Epoch   coord.Epoch `json:"epoch"`
		TTL     int64       `json:"ttl_ns"`
		Dead    string      `json:"dead,omitempty"` // a liveness of the device that the client has proved dead
	}
	agentAsk struct {
		Session string      `json:"session"`
		Agent   string      `json:"agent"`
		Gate    *coord.Gate `json:"gate,omitempty"`
	}
	gateAsk struct {
		Session string     `json:"session"`
		Gate    coord.Gate `json:"gate"`
	}
	evictAsk struct {
		Session string `json:"session"`
		Theft   theft  `json:"theft"`
	}
	lookAsk struct {
		Session   string   `json:"session"`
		Agent     string   `json:"agent"`
		Run       string   `json:"run"`
		Witnesses []runRef `json:"witnesses"`
	}
	beginAsk struct {
		Session string `json:"session"`
		Begin   begin  `json:"begin"`
	}
	finishAsk struct {
		Session string  `json:"session"`
		Outcome outcome `json:"outcome"`
	}
	completeAsk struct {
		Session string  `json:"session"`
		Outcome outcome `json:"outcome"`
		Lease   lease   `json:"lease"`
	}
	decideAsk struct {
		Session    string     `json:"session"`
		Resolution resolution `json:"resolution"`
	}
	listAsk struct {
		Session string `json:"session"`
		Filter  filter `json:"filter"`
	}
)

// The answers.
type (
	openAnswer struct {
		Generation string `json:"generation"`
	}
	leaseAnswer struct {
		Lease lease `json:"lease"`
		Held  bool  `json:"held,omitempty"` // of current
	}
	startAnswer struct {
		Lease   lease         `json:"lease"`
		Attempt coord.Attempt `json:"attempt"`
	}
	attemptAnswer struct {
		Attempt coord.Attempt `json:"attempt"`
	}
	completeAnswer struct {
		Finished *verdict `json:"finished"` // null: it is
		Released *verdict `json:"released"`
	}
	viewAnswer struct {
		View view `json:"view"`
	}
	listAnswer struct {
		Lines int    `json:"lines"` // that follow
		Next  string `json:"next,omitempty"`
	}
	gateAnswer struct {
		Gate *coord.Gate `json:"gate"` // null: there is none
	}
)

// The spelling of what package coord leaves without one. Where fields are the same they are converted as they are.
type (
	request struct {
		Agent  string        `json:"agent"`
		Device string        `json:"device"`
		TTL    time.Duration `json:"ttl_ns"`
		Floor  coord.Epoch   `json:"floor"`
		Note   string        `json:"note"`
	}
	theft struct {
		Request request     `json:"request"`
		By      string      `json:"by"`
		Reason  string      `json:"reason"`
		Force   bool        `json:"force"`
		Epoch   coord.Epoch `json:"epoch"`
	}
	lease struct {
		Agent    string        `json:"agent"`
		Device   string        `json:"device,omitempty"`
		Epoch    coord.Epoch   `json:"epoch"`
		TTL      time.Duration `json:"ttl_ns"`
		Handle   string        `json:"handle,omitempty"`
		Liveness string        `json:"liveness,omitempty"`
		Expired  bool          `json:"expired,omitempty"`
		Since    time.Time     `json:"since,omitzero"`
		Jump     coord.Epoch   `json:"jump,omitempty"`
		Note     string        `json:"note,omitempty"`
		By       string        `json:"by,omitempty"`
		Reason   string        `json:"reason,omitempty"`
		Process  coord.Process `json:"process,omitzero"`
		// Before is how long before the arrival of the question trust in the lease began to count; null for a lease of others.
		Before *int64 `json:"before_ns,omitempty"`
	}
	begin struct {
		Lease       lease          `json:"lease"`
		Run         string         `json:"run"`
		Occurrence  string         `json:"occurrence"`
		Input       string         `json:"input"`
		Attempt     string         `json:"attempt"`
		Request     string         `json:"request"`
		At          coord.Position `json:"at"`
		RetryFailed bool           `json:"retry_failed"`
		Retry       string         `json:"retry"`
	}
	outcome struct {
		Agent      string        `json:"agent"`
		Run        string        `json:"run"`
		Occurrence string        `json:"occurrence"`
		Input      string        `json:"input"`
		Attempt    coord.Attempt `json:"attempt"`
	}
	resolution struct {
		Agent   string      `json:"agent"`
		Run     string      `json:"run"`
		Attempt string      `json:"attempt"`
		From    coord.State `json:"from"`
		As      coord.State `json:"as"`
		By      string      `json:"by"`
		Reason  string      `json:"reason"`
		Force   bool        `json:"force"`
	}
	filter struct {
		Agent  string           `json:"agent"`
		Device string           `json:"device"`
		States []coord.RunState `json:"states"`
		Since  time.Time        `json:"since,omitzero"`
		Limit  int              `json:"limit"`
		After  string           `json:"after"`
	}
	runRef struct {
		Agent string `json:"agent"`
		Run   string `json:"run"`
	}
	entry struct {
		Agent      string          `json:"agent"`
		Run        string          `json:"run"`
		Occurrence string          `json:"occurrence,omitempty"`
		Input      string          `json:"input,omitempty"`
		Attempts   []coord.Attempt `json:"attempts"`
		Packed     bool            `json:"packed,omitempty"`
	}
	view struct {
		Entry    entry           `json:"entry"`
		Found    bool            `json:"found"`
		State    coord.RunState  `json:"state"`
		Alive    map[string]bool `json:"alive"`
		Holder   lease           `json:"holder"`
		Held     bool            `json:"held"`
		Paused   *coord.Gate     `json:"paused"`
		Recovery *coord.Gate     `json:"recovery"`
		Witness  map[string]bool `json:"witness"`

		Unreadable string `json:"unreadable,omitempty"` // in a list: why the run cannot be read; of the rest there are the entry's names alone
	}
)

func theftOf(t coord.Theft) theft { return theft{request(t.Request), t.By, t.Reason, t.Force, t.Epoch} }

func (t theft) theft() coord.Theft {
	return coord.Theft{Request: coord.Request(t.Request), By: t.By, Reason: t.Reason, Force: t.Force, Epoch: t.Epoch}
}

// leaseOf spells a lease. arrived is when the question did, on the clock of the coordinator that gave the lease; zero: the
// lease is one that the caller need not trust.
func leaseOf(l coord.Lease, arrived time.Time) lease {
	out := lease{Agent: l.Agent, Device: l.Device, Epoch: l.Epoch, TTL: l.TTL, Handle: l.Handle, Liveness: l.Liveness, Expired: l.Expired,
		Since: l.Since, Jump: l.Jump, Note: l.Note, By: l.By, Reason: l.Reason, Process: l.Process}
	if !l.Sent.IsZero() && !arrived.IsZero() {
		// By the clock that counts through a suspend as well: a host that slept has counted too little.
		before := int64(max(arrived.Sub(l.Sent), arrived.Round(0).Sub(l.Sent.Round(0)), 0))
		out.Before = &before
	}
	return out
}

// lease is the lease for a caller that sent the question then.
func (l lease) lease(sent time.Time) coord.Lease {
	out := coord.Lease{Agent: l.Agent, Device: l.Device, Epoch: l.Epoch, TTL: l.TTL, Handle: l.Handle, Liveness: l.Liveness, Expired: l.Expired,
		Since: l.Since, Jump: l.Jump, Note: l.Note, By: l.By, Reason: l.Reason, Process: l.Process}
	if l.Before != nil && !sent.IsZero() {
		out.Sent = sent.Add(-time.Duration(*l.Before))
	}
	return out
}

// check refuses what is no lease of the agent. Nobody may hold it.
func (l lease) check(agent string) error {
	switch {
	case l.Agent != agent:
		return fmt.Errorf("a lease of agent %.140q", l.Agent)
	case l.Before != nil && *l.Before < 0:
		return errors.New("trust that counts from the future")
	case l.Device == "" && l.Epoch <= coord.MaxEpoch:
		return nil
	}
	return coord.CheckClaim(l.Agent, l.Device, l.Epoch, l.TTL)
}

// granted refuses what is no grant to the device.
func (l lease) granted(agent, device string) error {
	if l.Device != device || l.Epoch == 0 || l.Handle == "" || l.Before == nil || (l.TTL > 0) != (l.Liveness != "") {
		return fmt.Errorf("no grant to %s: %s at epoch %d", device, l.Device, l.Epoch)
	}
	return l.check(agent)
}

func beginOf(b coord.Begin) begin {
	return begin{leaseOf(b.Lease, time.Time{}), b.Run, b.Occurrence, b.Input, b.Attempt, b.Request, b.At, b.RetryFailed, b.Retry}
}

func (b begin) begin() coord.Begin {
	return coord.Begin{Lease: b.Lease.lease(time.Time{}), Run: b.Run, Occurrence: b.Occurrence, Input: b.Input, Attempt: b.Attempt, Request: b.Request, At: b.At, RetryFailed: b.RetryFailed, Retry: b.Retry}
}

// opened refuses an attempt that is not the one that was asked for, open.
func opened(a coord.Attempt, b coord.Begin, device string, epoch coord.Epoch) error {
	if a.ID != b.Attempt || a.Request != b.Request || a.State != coord.Open || a.Device != device || a.Epoch != epoch || a.Abandoned {
		return fmt.Errorf("attempt %.40q of %.140q at epoch %d is %.20q, asked for was %s of %s at %d", a.ID, a.Device, a.Epoch, a.State, b.Attempt, device, epoch)
	}
	return nil
}

func viewOf(v coord.View) view {
	return view{Entry: entry(v.Entry), Found: v.Found, State: v.State, Alive: v.Alive, Holder: leaseOf(v.Holder, time.Time{}), Held: v.Held,
		Paused: v.Paused, Recovery: v.Recovery, Witness: v.Witness}
}

func (v view) view() coord.View {
	return coord.View{Entry: coord.Entry(v.Entry), Found: v.Found, State: v.State, Alive: v.Alive, Holder: v.Holder.lease(time.Time{}), Held: v.Held,
		Paused: v.Paused, Recovery: v.Recovery, Witness: v.Witness}
}

// check refuses what is no view of the run; empty agent and run stand for any.
func (v view) check(agent, run string) error {
	e := v.Entry
	if v.Unreadable != "" {
		return errors.New("a view of what cannot be read")
	}
	if agent != "" && (e.Agent != agent || e.Run != run) {
		return fmt.Errorf("a view of run %.140q of agent %.140q", e.Run, e.Agent)
	}
	if err := (coord.Question{Agent: e.Agent, Run: e.Run}).Check(); err != nil {
		return err
	}
	for _, a := range e.Attempts {
		switch a.State {
		case coord.Open, coord.Void, coord.Failed, coord.Committed:
		default:
			return fmt.Errorf("an attempt in state %.20q", a.State)
		}
		if a.ID == "" || a.Epoch > coord.MaxEpoch {
			return errors.New("an attempt without id, or epoch out of range")
		}
	}
	state := coord.StateOf(e.Attempts, func(liveness string) bool { return v.Alive[liveness] })
	if e.Packed {
		state = coord.RunCommitted
	}
	if v.State != state {
		return fmt.Errorf("a run in state %.20q whose attempts say %q", v.State, state)
	}
	if v.Held || v.Holder.Agent != "" {
		return v.Holder.check(e.Agent)
	}
	return nil
}

func (a *openAnswer) check() error {
	if len(a.Generation) != 32 || strings.Trim(a.Generation, "0123456789abcdef") != "" {
		return errors.New("no generation")
	}
	return nil
}

// readLines reads n lines into values.
func readLines[T any](t *wire.Tail, n int, each func(T) error) error {
	for range n {
		line, err := t.Line(maxHead)
		if err != nil {
			return err
		}
		var v T
		if err := wire.Decode(line, &v); err != nil {
			return err
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}

// writeLines writes values as lines.
func writeLines[T any](w io.Writer, values []T) error {
	for _, v := range values {
		if err := wire.WriteLine(w, v); err != nil {
			return err
		}
	}
	return nil
}
