package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

const logAcceptLong = `accept is the decision of a person about the chain of another device that stands still here (syncnode log verify says
which and why). It is noted in this device's journal, with the reason; a running node goes on with the chain at its
next look at the relay. Other devices decide for themselves.

A chain that waits since it is stamped with a time that has not come: what is held of it now is taken at once. Its
stamps still move no clock, and what comes later waits again until the device's clock is right.

A chain that is quarantined since it does not continue what is held here: it goes on from the relay's copy. What is
held of it before stays, until a checkpoint of another device takes its place; this device makes none until then.

An op that is bad in itself cannot be accepted: its device has to write it again under a new id.`

// An acceptedRow is what was decided.
type acceptedRow struct {
	Device string `json:"device"` // whose chain
	Seq    uint64 `json:"seq"`
	ID     string `json:"op_id"`
	Break  bool   `json:"break"` // it goes on across a break; else it does not wait for its time
	By     string `json:"by"`
	Reason string `json:"reason"`
}

func newLogAccept() *cobra.Command {
	var f relayFlags
	var g gateFlags
	cmd := &cobra.Command{Use: "accept DEVICE --reason TEXT", Short: "go on with the chain of another device that is parked or quarantined", Long: logAcceptLong, Args: oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			a := journal.Acceptance{Of: args[0], By: gate.By, Reason: gate.Reason, WallMS: gate.At.UnixMilli()}
			where := &logFlags{namespace: f.namespace, dataDir: f.dataDir, deviceID: f.deviceID, generation: f.generation, seal: f.seal, out: f.out}
			d, err := where.find()
			if err != nil {
				return err
			}
			if err := d.acting(); err != nil {
				return err
			}
			waits, err := d.parked(cmd.Context(), &a)
			if err != nil {
				return err
			}
			if waits {
				return d.accept(cmd, f.out, a)
			}
			return f.with(cmd, func(ctx context.Context, s *station) error {
				if err := s.stopped(ctx, &a); err != nil {
					return err
				}
				return s.at.accept(cmd, f.out, a)
			})
		}}
	f.place.existing = true
	f.register(cmd)
	g.register(cmd)
	return cmd
}

// oneDevice asks for the id of a device, and nothing else.
func oneDevice(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("usage: %s", cmd.UseLine())
	}
	if err := ident.Check("device", args[0]); err != nil {
		return &usageError{err}
	}
	return nil
}

// parked fills in the last op that is held of a chain which waits for its time; false if it does not.
func (d *device) parked(ctx context.Context, a *journal.Acceptance) (bool, error) {
	if a.Of == d.name {
		return false, usagef("%s is this device: its own ops are always taken", d.name)
	}
	row, err := d.verify(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range row.Parked {
		if p.Device == a.Of && p.Until != nil {
			head := row.Frontier[a.Of]
			a.Seq, a.ID = head.Seq, head.ID
			return true, nil
		}
		if p.Device == a.Of && p.Permanent {
			return false, fmt.Errorf("op %d of %s cannot be read, by no key and no decision: %s; keep the relay for a look, "+
				"and let the device write it again under a new id", p.From, a.Of, p.Reason)
		}
		if p.Device == a.Of {
			return false, fmt.Errorf("the chain of %s waits for a key, which no decision can replace: put the key into the key file", a.Of)
		}
	}
	return false, nil
}

// stopped asks the relay for the op at which a chain stands still, and refuses what no decision can help.
func (s *station) stopped(ctx context.Context, a *journal.Acceptance) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.flags.timeout, fmt.Errorf("the relay did not answer within %s (--backend-timeout)", s.flags.timeout))
	defer cancel()
	row, err := s.at.verify(ctx)
	if err != nil {
		return err
	}
	info, err := s.relay.Hello(ctx, s.at.name)
	if err != nil {
		return causeOf(ctx, err)
	}
	here, held := row.Frontier[a.Of]
	told := slices.ContainsFunc(row.Quarantined, func(q node.SeenQuarantine) bool {
		return q.Device == a.Of && q.Permanent && (!held || q.Seq == here.Seq+1)
	})
	if _, closed := row.closed[a.Of]; closed {
		return fmt.Errorf("the chain of %s was closed as retired; should it live, it goes on under a new id by itself", a.Of)
	}
	want := relay.Want{Held: row.Frontier, MaxBytes: 1}
	for device := range info.Heads {
		if device != a.Of {
			want.Skip = append(want.Skip, device)
		}
	}
	page, err := s.relay.Pull(ctx, s.at.name, want)
	if err != nil {
		return causeOf(ctx, err)
	}
	if why := page.Broken[a.Of]; why != nil {
		return fmt.Errorf("the relay cannot give the next op of %s: %w", a.Of, why)
	}
	for _, op := range page.Ops {
		if op.Device != a.Of {
			continue
		}
		if err := mayFollow(op, here, held, told); err != nil {
			return err
		}
		a.Seq, a.ID, a.Link = op.Seq, op.ID, true
		return nil
	}
	return fmt.Errorf("nothing of %s waits here, and the relay holds nothing more of it: there is nothing to decide", a.Of)
}

// mayFollow refuses an op for which there is nothing to decide. told: the node says that the chain is quarantined.
func mayFollow(op oplog.Op, here oplog.Pos, held, told bool) error {
	next := uint64(0)
	if held {
		next = here.Seq + 1
	}
	if err := op.Check(); err != nil {
		return fmt.Errorf("op %d of %s is bad in itself, so nobody can take it: %w; its device has to write it again under a new id", op.Seq, op.Device, err)
	}
	switch {
	case op.Seq != next:
		return fmt.Errorf("the relay gives op %d of %s and op %d is wanted: what is between is missing, which no decision can replace", op.Seq, op.Device, next)
	case !held || op.Prev == here.ID && !told:
		return fmt.Errorf("op %d of %s continues what is held here: the node takes it by itself", op.Seq, op.Device)
	}
	return nil
}

// accept notes the decision.
func (d *device) accept(cmd *cobra.Command, out outputFlag, a journal.Acceptance) error {
	j, err := journal.Open(cmd.Context(), journal.Config{Dir: d.journalDir(), Device: d.name, Log: logger(d.log)})
	if err != nil {
		return err
	}
	err = j.Accept(cmd.Context(), a)
	if err = errors.Join(err, j.Close()); err != nil {
		return err
	}
	what := "is taken up to op %d at once, though its time has not come"
	if a.Link {
		what = "goes on at op %d from the relay's copy"
	}
	row := acceptedRow{Device: a.Of, Seq: a.Seq, ID: string(a.ID), Break: a.Link, By: a.By, Reason: a.Reason}
	return printOne(out, cmd.OutOrStdout(), row, fmt.Sprintf("accepted  the chain of %s "+what+"; decided by %s at %s: %s\n",
		a.Of, a.Seq, plain(a.By), rfc3339(time.UnixMilli(a.WallMS)), plain(a.Reason)))
}

// decisions are what people decided about chains of other devices.
type decisions []journal.Acceptance

// early reports whether an op need not wait for its time.
func (l decisions) early(op oplog.Op) bool {
	return slices.ContainsFunc(l, func(a journal.Acceptance) bool { return !a.Link && a.Of == op.Device && op.Seq <= a.Seq })
}

// follows reports whether an op is of the branch that is folded, where a chain was accepted across a break; others are verified already.
func (l decisions) follows(chains map[string]*oplog.Chain, base *checkpoint.Checkpoint, op oplog.Op) bool {
	if !slices.ContainsFunc(l, func(a journal.Acceptance) bool { return a.Link && a.Of == op.Device }) {
		return true
	}
	c := chains[op.Device]
	if c == nil {
		c = oplog.NewChain(op.Device)
		if head, ok := base.Heads[op.Device]; ok {
			c = oplog.ResumeChain(op.Device, head)
		}
	}
	if op.Seq == c.NextSeq() && op.Seq > 0 && slices.ContainsFunc(l, func(a journal.Acceptance) bool { return a.Link && a.ID == op.ID }) {
		c = oplog.ResumeChain(op.Device, oplog.Head{Seq: op.Seq - 1, ID: op.Prev})
	}
	chains[op.Device] = c
	_, err := c.Admit(op, oplog.MaxInt)
	return err == nil
}
