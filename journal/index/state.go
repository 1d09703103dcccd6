package index

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

const formatVersion = 1

// A state is the part of the index that is read as a whole: its size grows with the devices and with what the ledger
// is not known to hold, not with the journal.
type state struct {
	V       int            `json:"v"`
	Device  string         `json:"device"`
	Own     journal.Cursor `json:"own"` // applied up to here
	OwnID   oplog.OpID     `json:"own_id,omitempty"`
	Peers   journal.Cursor `json:"peers"`
	PeersID oplog.OpID     `json:"peers_id,omitempty"`
	// Cut is the checkpoint whose facts are in the index, Before the one that the journal began at when they came: it may begin at either.
	Cut    string `json:"cut,omitempty"`
	Before string `json:"before,omitempty"`

	Frontier map[string]oplog.Head `json:"frontier"`
	Clock    oplog.HLC             `json:"clock"`  // greatest stamp of a peer that was not parked
	Parked   []oplog.HLC           `json:"parked"` // stamps of peers that were, ascending
	Settled  uint64                `json:"settled"`
	Open     []open                `json:"open"`    // own outcomes from Settled on, ascending
	Witness  []Witness             `json:"witness"` // newest first, at most two
}

// An open is an own outcome that no later op says is settled.
type open struct {
	Seq     uint64 `json:"seq"`
	Agent   string `json:"agent"`
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
	Seen    bool   `json:"seen"` // an end was seen: it can be a witness
}

// A Witness is a run whose end the ledger knows from this device.
type Witness struct {
	Seq   uint64 `json:"seq"`
	Agent string `json:"agent"`
	Run   string `json:"run"`
}

func newState(device string) *state {
	return &state{V: formatVersion, Device: device, Frontier: map[string]oplog.Head{}}
}

func epochKey(agent string) string { return "e/" + agent }
func runKey(run string) string     { return "r/" + run }
func openKey(seq uint64) string    { return "u/" + string(binary.BigEndian.AppendUint64(nil, seq)) }

// A kv is what apply reads and writes.
type kv interface {
	get(key string) ([]byte, error) // nil if absent
	put(key string, value []byte)   // nil deletes
}

// apply folds one op into the index. The index is a function of the two series, whatever order they are taken in.
func (s *state) apply(db kv, op oplog.Op, nowMS int64) error {
	s.Frontier[op.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	if op.Device != s.Device {
		s.observe(op.HLC, nowMS)
	}
	if op.Surface != oplog.Intents {
		return nil
	}
	d := ReadDetail(op.Payload)
	if d.tooLong() {
		return nil // names nothing that exists
	}
	return s.applyIntent(db, op, d)
}

func (d *Detail) tooLong() bool {
	return len(d.RunID) > maxName || len(d.Agent) > maxName || len(d.Attempt) > maxName
}

func (s *state) applyIntent(db kv, op oplog.Op, d Detail) error {
	if err := raiseEpoch(db, d); err != nil {
		return err
	}
	if d.RunID != "" {
		if err := addRecord(db, d.RunID, recordOf(op, d)); err != nil {
			return err
		}
	}
	if op.Device == s.Device {
		return s.applyOwn(db, op, d)
	}
	return nil
}

const maxName = 128

func raiseEpoch(db kv, d Detail) error {
	if d.Agent == "" || d.Epoch == 0 {
		return nil
	}
	have, err := db.get(epochKey(d.Agent))
	if err != nil || len(have) == 8 && binary.BigEndian.Uint64(have) >= d.Epoch {
		return err
	}
	db.put(epochKey(d.Agent), binary.BigEndian.AppendUint64(nil, d.Epoch))
	return nil
}

func addRecord(db kv, run string, r Record) error {
	list, err := recordsOf(db, run)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(o Record) bool { return o.Author == r.Author && o.Attempt == r.Attempt })
	switch {
	case i < 0:
		list = append(list, r)
	case list[i].Rank < r.Rank:
		list[i] = r
	default:
		return nil
	}
	// One order, whichever series was read first.
	slices.SortFunc(list, func(a, b Record) int {
		if a.Author != b.Author {
			if a.Author < b.Author {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Attempt, b.Attempt))
	})
	value, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("index: encode records: %w", err)
	}
	db.put(runKey(run), value)
	return nil
}

func recordsOf(db kv, run string) ([]Record, error) {
	value, err := db.get(runKey(run))
	if err != nil || value == nil {
		return nil, err
	}
	var list []Record
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, fmt.Errorf("%w: records of %s: %w", errUnreadable, run, err)
	}
	return list, nil
}

// applyOwn keeps what the ledger is not known to hold.
func (s *state) applyOwn(db kv, op oplog.Op, d Detail) error {
	if d.Settled != nil {
		s.settle(db, *d.Settled)
	}
	if d.By != "" || d.Rank() == 0 || d.RunID == "" || d.Attempt == "" {
		return nil // nothing that the ledger would ask for
	}
	for i := len(s.Open) - 1; i >= 0; i-- {
		if s.Open[i].Attempt == d.Attempt && s.Open[i].Run == d.RunID { // a later word of the same attempt takes its place
			db.put(openKey(s.Open[i].Seq), nil)
			s.Open = slices.Delete(s.Open, i, i+1)
		}
	}
	value, err := json.Marshal(Outcome{Seq: op.Seq, WallMS: op.HLC.WallMS, Detail: d})
	if err != nil {
		return fmt.Errorf("index: encode outcome: %w", err)
	}
	db.put(openKey(op.Seq), value)
	seen := d.Committed() || d.Terminal() && d.Cause != oplog.CauseVoid
	s.Open = append(s.Open, open{Seq: op.Seq, Agent: d.Agent, Run: d.RunID, Attempt: d.Attempt, Seen: seen})
	return nil
}

// settle drops the outcomes below seq: the ledger has them.
func (s *state) settle(db kv, seq uint64) {
	n := 0
	for n < len(s.Open) && s.Open[n].Seq < seq {
		s.Witness = addWitness(s.Witness, s.Open[n])
		db.put(openKey(s.Open[n].Seq), nil)
		n++
	}
	s.Open = slices.Delete(s.Open, 0, n)
	s.Settled = max(s.Settled, seq)
}

// addWitness keeps the two last runs.
func addWitness(list []Witness, o open) []Witness {
	if !o.Seen {
		return list
	}
	list = slices.DeleteFunc(slices.Clone(list), func(w Witness) bool { return w.Agent == o.Agent && w.Run == o.Run })
	list = append(list, Witness{Seq: o.Seq, Agent: o.Agent, Run: o.Run})
	slices.SortFunc(list, func(a, b Witness) int {
		if a.Seq > b.Seq {
			return -1
		}
		return 1
	})
	return list[:min(len(list), 2)]
}

// observe takes a peer's stamp, unless it is from the future: then it is kept until its time.
func (s *state) observe(h oplog.HLC, nowMS int64) {
	if h.WallMS-oplog.MaxAhead > nowMS {
		const most = 1024
		if i, found := slices.BinarySearchFunc(s.Parked, h, oplog.HLC.Compare); !found && len(s.Parked) < most {
			s.Parked = slices.Insert(s.Parked, i, h)
		}
		return
	}
	if h.Compare(s.Clock) > 0 {
		s.Clock = h
	}
}

// due moves parked stamps whose time has come into the clock.
func (s *state) due(nowMS int64) {
	n := 0
	for n < len(s.Parked) && s.Parked[n].WallMS-oplog.MaxAhead <= nowMS {
		if s.Parked[n].Compare(s.Clock) > 0 {
			s.Clock = s.Parked[n]
		}
		n++
	}
	s.Parked = slices.Delete(s.Parked, 0, n)
}
