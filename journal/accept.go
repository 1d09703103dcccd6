package journal

import (
	"context"
	"fmt"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
)

const (
	acceptedName = "ACCEPTED.json"
	maxAccepted  = 10_000
)

// An Acceptance is the decision of a person to go on with the chain of another device at one op, as it is.
type Acceptance struct {
	Of  string     `json:"of"`
	Seq uint64     `json:"seq"`
	ID  oplog.OpID `json:"op_id"`
	// Link: the op may follow whatever is held before it, though it names another one or its stamp is not after. Otherwise the ops up to
	// it need not wait for the time that they are stamped with.
	Link   bool   `json:"link"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	WallMS int64  `json:"wall_ms"` // when
}

type acceptedRecord struct {
	V        int          `json:"v"`
	Device   string       `json:"device"`
	Accepted []Acceptance `json:"accepted"`
}

// Accept notes a decision durably. It does not go into the chain: every device decides for itself. Whoever has the journal open takes
// it in when it reads the notes again.
func (j *Journal) Accept(ctx context.Context, a Acceptance) error {
	if err := ident.Check("device", a.Of); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if a.Of == j.cfg.Device || !a.ID.Valid() || a.Seq > oplog.MaxInt || a.Reason == "" {
		return fmt.Errorf("accept: op %d (%q) of %s for reason %q: want an op of another device, and a reason", a.Seq, a.ID, a.Of, a.Reason)
	}
	return j.Update(ctx, func(*Tx) error {
		if j.cfg.ReadOnly {
			return ErrReadOnly
		}
		list, err := j.Accepted()
		if err != nil {
			return err
		}
		for _, have := range list {
			if have.ID == a.ID && have.Link == a.Link {
				return j.cfg.FS.SyncDir(j.cfg.Dir) // whoever wrote it may have been killed before
			}
		}
		if len(list) == maxAccepted {
			return fmt.Errorf("accept: %s holds %d decisions already", acceptedName, len(list))
		}
		return j.writeFile(acceptedName, encodeLine(acceptedRecord{V: formatVersion, Device: j.cfg.Device, Accepted: append(list, a)}))
	})
}

// Accepted are the decisions, oldest first, as they are on the disk now.
func (j *Journal) Accepted() ([]Acceptance, error) {
	var r acceptedRecord
	_, err := j.readNote(acceptedName, &r, func() (int, string) { return r.V, r.Device })
	return r.Accepted, err
}

// relink lets an op that was accepted follow whatever c holds before it, and reports whether it was.
func relink(accepted []Acceptance, c **oplog.Chain, op oplog.Op) bool {
	for _, a := range accepted {
		if a.Link && a.ID == op.ID && (*c).NextSeq() == op.Seq && op.Seq > 0 {
			*c = oplog.ResumeChain(op.Device, oplog.Head{Seq: op.Seq - 1, ID: op.Prev})
			return true
		}
	}
	return false
}

// parted reports whether the chain of a device was accepted across a break: what is held of it before need not fit together.
func parted(accepted []Acceptance, device string) bool {
	for _, a := range accepted {
		if a.Link && a.Of == device {
			return true
		}
	}
	return false
}
