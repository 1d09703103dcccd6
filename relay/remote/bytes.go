package remote

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/syncnode/syncnode/internal/wire"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// The questions and answers. Fields are never left out where their absence could mean something.
type (
	deviceAsk struct {
		Device string `json:"device"`
	}
	pushAsk struct {
		Device string `json:"device"`
		Ops    int    `json:"ops"` // lines that follow
	}
	pullAsk struct {
		Device   string         `json:"device"`
		Held     oplog.Frontier `json:"held"`
		Skip     []string       `json:"skip"`
		MaxBytes int            `json:"max_bytes"`
	}
	ackAsk struct {
		Device string         `json:"device"`
		Folded oplog.Frontier `json:"folded"`
	}
	registerAsk struct {
		Device string     `json:"device"`
		Role   relay.Role `json:"role"`
	}
	hintAsk struct {
		Known  oplog.Frontier `json:"known"`
		WaitMS int64          `json:"wait_ms"`
	}
	putAsk struct {
		Device     string          `json:"device"`
		Checkpoint checkpointHead  `json:"checkpoint"`
		Heads      map[string]head `json:"heads,omitempty"` // of a seed
	}

	infoAnswer struct {
		Instance   string         `json:"instance"`
		Generation uint64         `json:"generation"`
		Head       *head          `json:"head"`
		Heads      oplog.Frontier `json:"heads"`
		Floor      oplog.Frontier `json:"floor"`
		Checkpoint string         `json:"checkpoint"`
		Role       relay.Role     `json:"role"`
		Acked      oplog.Frontier `json:"acked"`
	}
	pushedAnswer struct {
		Accepted  int `json:"accepted"`
		Duplicate int `json:"duplicate"`
	}
	pageAnswer struct {
		Ops    int               `json:"ops"` // lines that follow
		More   bool              `json:"more"`
		Broken map[string]string `json:"broken,omitempty"`
	}
	rosterAnswer struct {
		Members int `json:"members"` // lines that follow
	}
	memberLine struct {
		Device  string         `json:"device"`
		Role    relay.Role     `json:"role"`
		Added   time.Time      `json:"added"`
		Seen    time.Time      `json:"seen"`
		Acked   oplog.Frontier `json:"acked"`
		Evicted bool           `json:"evicted,omitempty"`
	}
	hintAnswer struct {
		Moved bool `json:"moved"`
		Never bool `json:"never,omitempty"` // this relay gives no hints
	}
	checkpointAnswer struct {
		Checkpoint *checkpointHead `json:"checkpoint"`
	}
	collectionAnswer struct {
		Dropped map[string]int    `json:"dropped"`
		Marked  map[string]int    `json:"marked"`
		Floor   oplog.Frontier    `json:"floor"`
		Reasons map[string]reason `json:"reasons"`
	}

	head struct {
		Seq uint64     `json:"seq"`
		ID  oplog.OpID `json:"op_id"`
		HLC oplog.HLC  `json:"hlc"`
	}
	checkpointHead struct {
		Hash     string         `json:"hash"`
		Author   string         `json:"author"`
		Frontier oplog.Frontier `json:"frontier"`
		Closed   oplog.Frontier `json:"closed"`
		Size     int            `json:"size"` // bytes of the body, which follows
	}
	reason struct {
		Cause   relay.Cause `json:"cause"`
		Replica string      `json:"replica,omitempty"`
	}
)

func infoOf(i relay.Info) infoAnswer {
	a := infoAnswer{Instance: i.Instance, Generation: i.Generation, Heads: i.Heads, Floor: i.Floor, Checkpoint: i.Checkpoint, Role: i.Role, Acked: i.Acked}
	if i.Known {
		h := head(i.Head)
		a.Head = &h
	}
	return a
}

func (a *infoAnswer) info() relay.Info {
	i := relay.Info{Instance: a.Instance, Generation: a.Generation, Heads: a.Heads.Clone(), Floor: a.Floor.Clone(), Checkpoint: a.Checkpoint, Role: a.Role, Acked: a.Acked.Clone()}
	if a.Head != nil {
		i.Head, i.Known = oplog.Head(*a.Head), true
	}
	return i
}

// check refuses what is no answer to a hello.
func (a *infoAnswer) check() error {
	if a.Instance == "" {
		return errors.New("no instance")
	}
	if a.Head != nil {
		if err := a.Head.check(); err != nil {
			return err
		}
	}
	return errors.Join(a.checkStore(), checkRole(a.Role), relay.CheckFrontier(a.Acked))
}

// checkStore refuses what no store is. One in which no device was yet has no instance.
func (a *infoAnswer) checkStore() error {
	if a.Instance != "" && !hexDigits(a.Instance, 32) || a.Checkpoint != "" && !hexDigits(a.Checkpoint, 64) {
		return errors.New("no instance, or no name of a checkpoint")
	}
	return errors.Join(relay.CheckFrontier(a.Heads), relay.CheckFrontier(a.Floor))
}

func (h head) check() error {
	if h.Seq > oplog.MaxInt || !h.ID.Valid() {
		return errors.New("no head")
	}
	return h.HLC.Check()
}

func headsOf(heads oplog.Heads) map[string]head {
	out := make(map[string]head, len(heads))
	for d, h := range heads {
		out[d] = head(h)
	}
	return out
}

func checkRole(role relay.Role) error {
	if role == relay.Seen {
		return nil
	}
	return relay.CheckRole(role)
}

func (a *pushedAnswer) check(ops int) error {
	if a.Accepted < 0 || a.Duplicate < 0 || a.Accepted > ops || a.Duplicate > ops || a.Accepted+a.Duplicate > ops {
		return fmt.Errorf("%d ops accepted and %d found of %d", a.Accepted, a.Duplicate, ops)
	}
	return nil
}

func (a *pushedAnswer) pushed() relay.Pushed { return relay.Pushed(*a) }

func pageOf(p relay.Page) pageAnswer {
	a := pageAnswer{Ops: len(p.Ops), More: p.More, Broken: map[string]string{}}
	for d, err := range p.Broken {
		a.Broken[d] = wire.Bounded(err.Error())
	}
	return a
}

func (a *pageAnswer) check() error {
	for d := range a.Broken {
		if err := relay.CheckDevice(d); err != nil {
			return err
		}
	}
	return nil
}

func (a *pageAnswer) page(ops []oplog.Op) relay.Page {
	p := relay.Page{Ops: ops, More: a.More}
	for d, why := range a.Broken {
		if p.Broken == nil {
			p.Broken = map[string]error{}
		}
		p.Broken[d] = &wire.Said{Text: wire.Bounded(why), Is: []error{relay.ErrCorrupt}}
	}
	return p
}

// readOps reads n lines of ops. What is in them is for others to verify.
func readOps(t *wire.Tail, n int) ([]oplog.Op, error) {
	if n < 0 || n > relay.MaxOps {
		return nil, fmt.Errorf("%d ops in one call, at most %d are allowed", n, relay.MaxOps)
	}
	ops := make([]oplog.Op, 0, n)
	for size := 0; len(ops) < n; {
		line, err := t.Line(min(oplog.MaxLine, relay.MaxBytes-size))
		if err != nil {
			return nil, err
		}
		size += len(line) + 1
		op, err := oplog.ParseLine(line)
		if err != nil {
			return nil, fmt.Errorf("op %d of %d: %w", len(ops)+1, n, err)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func writeOps(w io.Writer, ops []oplog.Op) error {
	var line []byte
	for _, op := range ops {
		line = append(op.AppendLine(line[:0]), '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

func readRoster(t *wire.Tail, n int) ([]relay.Member, error) {
	if n < 0 {
		return nil, fmt.Errorf("%d members", n)
	}
	var roster []relay.Member
	for range n {
		line, err := t.Line(maxHead)
		if err != nil {
			return nil, err
		}
		var m memberLine
		if err := wire.Decode(line, &m); err != nil {
			return nil, err
		}
		if err := errors.Join(relay.CheckDevice(m.Device), checkRole(m.Role), relay.CheckFrontier(m.Acked)); err != nil {
			return nil, err
		}
		if len(roster) > 0 && roster[len(roster)-1].Device >= m.Device {
			return nil, errors.New("the roster is not in order")
		}
		row := relay.Member(m)
		row.Acked = m.Acked.Clone()
		roster = append(roster, row)
	}
	return roster, nil
}

func checkpointOf(c relay.Checkpoint) checkpointHead {
	return checkpointHead{Hash: c.Hash, Author: c.Author, Frontier: c.Frontier, Closed: c.Closed, Size: len(c.Body)}
}

func (h *checkpointHead) checkpoint(body []byte) relay.Checkpoint {
	return relay.Checkpoint{Hash: h.Hash, Author: h.Author, Frontier: h.Frontier.Clone(), Closed: h.Closed.Clone(), Body: body}
}

// read reads the body of the checkpoint.
func (h *checkpointHead) read(t *wire.Tail) ([]byte, error) {
	if h.Size < 0 || h.Size > relay.MaxCheckpoint {
		return nil, &relay.SizeError{What: "body bytes", Size: h.Size, Max: relay.MaxCheckpoint}
	}
	return t.Bytes(h.Size)
}

func (a *checkpointAnswer) body(t *wire.Tail) ([]byte, error) {
	if a.Checkpoint == nil {
		return nil, nil
	}
	return a.Checkpoint.read(t)
}

func collectionOf(c relay.Collection) collectionAnswer {
	a := collectionAnswer{Dropped: c.Dropped, Marked: c.Marked, Floor: c.Floor, Reasons: map[string]reason{}}
	for d, r := range c.Reasons {
		a.Reasons[d] = reason(r)
	}
	return a
}

func (a *collectionAnswer) check() error {
	for _, counts := range []map[string]int{a.Dropped, a.Marked} {
		for d, n := range counts {
			if err := relay.CheckDevice(d); err != nil || n < 0 {
				return fmt.Errorf("%d ops of %.140q: %w", n, d, err)
			}
		}
	}
	for d, r := range a.Reasons {
		if err := errors.Join(relay.CheckDevice(d), r.check()); err != nil {
			return err
		}
	}
	return relay.CheckFrontier(a.Floor)
}

func (r reason) check() error {
	if r.Cause == "" || len(r.Cause) > 200 {
		return errors.New("a reason that is none")
	}
	if r.Replica == "" {
		return nil
	}
	return relay.CheckDevice(r.Replica)
}

func (a *collectionAnswer) collection() relay.Collection {
	c := relay.Collection{Dropped: counts(a.Dropped), Marked: counts(a.Marked), Floor: a.Floor.Clone(), Reasons: map[string]relay.Reason{}}
	for d, r := range a.Reasons {
		c.Reasons[d] = relay.Reason(r)
	}
	return c
}

func counts(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return maps.Clone(m)
}

func hexDigits(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}
