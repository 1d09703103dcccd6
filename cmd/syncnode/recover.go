package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/recovery"
	"github.com/syncnode/syncnode/node"
)

const recoverLong = `recover is for a ledger that went back: etcd was restored from an older snapshot, or replaced. The first device
that misses a run it saw finished sets the recovery gate, and nothing begins anywhere until a person lifts it. A person
who restores etcd sets it before anybody can reach the ledger.

  1. recover begin      set the gate
  2. recover offer      on every device that no serve works for: write what its journal knows into the ledger
  3. recover status     who has offered and who has not, and what the ledger lacks of this journal
  4. run list           look at what is in doubt, and decide it by run resolve
  5. recover end        lift the gate

Every serve offers by itself under the gate. A device that a replaced ledger refuses (another generation behind known
endpoints) takes it by recover adopt, then offers what it did under the earlier one.`

func newRecover() *cobra.Command {
	cmd := &cobra.Command{Use: "recover", Short: "bring back a ledger that was restored or replaced", Long: recoverLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newRecoverBegin(), newRecoverStatus(), newRecoverOffer(), newRecoverAdopt(), newRecoverEnd())
	return cmd
}

// gateFlags are those of a decision about a gate.
type gateFlags struct{ by, reason string }

func (g *gateFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.reason, "reason", "", "why, for the record (`TEXT`)")
	cmd.Flags().StringVar(&g.by, "by", whoami(), "who decides, for the record (`NAME`)")
}

func (g *gateFlags) gate() (coord.Gate, error) {
	if g.reason == "" {
		return coord.Gate{}, usagef("--reason TEXT is missing, for the record")
	}
	return coord.Gate{By: g.by, Reason: g.reason, At: time.Now().UTC()}, nil
}

// ledger is the ledger as a recovery sees it: each question is given the time of a silent backend.
func (be *backend) ledger() recovery.Ledger {
	return recovery.Ledger{Recoverer: be.coordinator, Timeout: be.flags.timeout}
}

// bounded gives one question the time that a silent backend is given.
func (be *backend) bounded(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, be.flags.timeout, fmt.Errorf("%s did not answer within %s", be.where, be.flags.timeout))
	defer cancel()
	return causeOf(ctx, question(ctx))
}

func newRecoverBegin() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: "begin --reason TEXT", Short: "set the recovery gate: nothing begins anywhere", Args: noArgs,
		Long: `begin sets the recovery gate. If it stands already a new recovery begins: what devices offered before counts no more,
since they may have lost more now. There is no moment without a gate.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			if len(b.endpoints) == 0 {
				// An etcd that lost all may be without a ledger and needs the gate; a new one in a mistyped directory does not.
				if err := b.hasOwnLedger(); err != nil {
					return err
				}
			}
			return b.with(cmd, &out, use{long: true}, func(ctx context.Context, be *backend) error {
				if err := be.bounded(ctx, func(ctx context.Context) error {
					_, err := be.coordinator.RestartRecovery(ctx, gate)
					return err
				}); err != nil {
					return err
				}
				return be.printRecovery(ctx, cmd, out)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}

const recoverEndLong = `end lifts the recovery gate, and runs may begin again. It is refused while a device that is known has not offered: runs that
only that device remembers would be free. A device that is gone for good is named by --without; what it did after the
snapshot is known from the logs of its peers alone, or not at all.`

func newRecoverEnd() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	var without []string
	var force bool
	cmd := &cobra.Command{Use: "end --reason TEXT", Short: "lift the recovery gate", Long: recoverEndLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			for _, d := range without {
				if err := ident.Check("device", d); err != nil {
					return &usageError{err}
				}
			}
			return b.with(cmd, &out, use{long: true, there: true}, func(ctx context.Context, be *backend) error {
				s, err := be.standing(ctx)
				if err != nil {
					return err
				}
				if waits := s.Waiting(without...); s.Set && len(waits) > 0 && !force {
					return fmt.Errorf("the recovery gate was not lifted, since these devices have not offered what they remember: %s; run syncnode recover offer on each (a running serve does it by itself), name by --without those that are gone for good, or give --force",
						strings.Join(waits, ", "))
				}
				gate.ID = s.Gate.ID
				if err := be.bounded(ctx, func(ctx context.Context) error { return be.lift(ctx, gate) }); err != nil {
					return err
				}
				return be.printRecovery(ctx, cmd, out)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	cmd.Flags().StringSliceVar(&without, "without", nil, "do not wait for these `DEVICES`: they are gone for good")
	cmd.Flags().BoolVar(&force, "force", false, "lift it whoever has not offered: runs that only they remember can begin again")
	return cmd
}

func (be *backend) lift(ctx context.Context, g coord.Gate) error {
	err := be.coordinator.LiftRecovery(ctx, g)
	if errors.Is(err, coord.ErrMoved) {
		return fmt.Errorf("the recovery gate was not lifted: %w; look again by syncnode recover status", err)
	}
	return err
}

func newRecoverStatus() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "status", Short: "show the recovery gate, who has offered, and what the ledger lacks of this journal", Args: noArgs,
		Long: `status shows the recovery gate, the devices that are known and which of them have offered under it, and, where the
data directory has a journal, the gap: attempts that it knows and the ledger lacks, and epochs that would be granted
again. It writes nothing. A device that the ledger, its relay and no other device know of is not listed: compare the list
with your own.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd, &out, use{there: true, long: true}, func(ctx context.Context, be *backend) error {
				return be.printRecovery(ctx, cmd, out)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

// An offeredRow is what `recover offer` did.
type offeredRow struct {
	Device  string `json:"device"`
	Offered int    `json:"offered"` // attempts of its journal, that the ledger holds now
	Written int    `json:"written"` // that it lacked
	Doubts  int    `json:"doubts"`
	Raised  int    `json:"epochs_raised"`
	Gate    bool   `json:"gate"` // it counts under a gate
}

func newRecoverOffer() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "offer", Short: "write what this device's journal knows into the ledger, where it lacks it", Args: noArgs,
		Long: `offer reads this device's whole journal, and those it kept under earlier ids and ledgers, and writes what the ledger lacks: how
its own attempts ended; attempts whose end nobody here knows, as in doubt; attempts of other devices that their own
journals tell more of, as in doubt; and epochs that were granted. It may be repeated: what the ledger has is not written
again. It may take long: --backend-timeout bounds each question. Under the gate it is noted that the device has offered.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd, &out, use{write: true, long: true}, func(ctx context.Context, be *backend) error {
				r, err := be.offer(ctx)
				if err != nil {
					return fmt.Errorf("after %d attempts and %d epochs were written: %w; offer may be repeated", r.Written, r.Raised, err)
				}
				if r.Attempts == 0 {
					fmt.Fprintf(os.Stderr, "syncnode: device %s knows of no attempt: is --data-dir %s the one that ran things here?\n", be.device, b.dataDir)
				}
				row := offeredRow{Device: be.device, Offered: r.Attempts, Written: r.Written, Doubts: r.Doubts, Raised: r.Raised, Gate: r.Noted}
				return printOne(out, cmd.OutOrStdout(), row, row.text())
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func (row offeredRow) text() string {
	counts := "it counts under the recovery gate"
	if !row.Gate {
		counts = "no recovery gate is set"
	}
	return fmt.Sprintf("the ledger holds all %d attempts that device %s knows of: %d were written, %d of them are in doubt; %d epochs were raised; %s\n",
		row.Offered, row.Device, row.Written, row.Doubts, row.Raised, counts)
}

// A rescuing offers what the device of a node remembers.
type rescuing struct{ be *backend }

// Rescue implements node.Rescuer.
func (r rescuing) Rescue(ctx context.Context) (node.Rescued, error) {
	gate, owes, err := recovery.Owes(ctx, r.be.ledger(), r.be.device)
	if err != nil || !owes {
		return node.Rescued{Gate: gate}, err
	}
	done, err := r.be.offer(ctx)
	return node.Rescued{Gate: true, Offered: done.Noted, Written: done.Written, Doubts: done.Doubts, Raised: done.Raised}, err
}

// offer tells the ledger what this device remembers.
func (be *backend) offer(ctx context.Context) (recovery.Report, error) {
	// A journal that lost what was noted of it is refused here: its word would not be the whole.
	if _, err := be.book.Standing(ctx, be.device, be.device); err != nil {
		return recovery.Report{}, err
	}
	memories, err := be.memories(ctx, be.local)
	if err != nil {
		return recovery.Report{}, err
	}
	names, err := be.local.alsoOffers(ctx)
	if err != nil {
		return recovery.Report{}, err
	}
	return recovery.Offer(ctx, be.ledger(), append(names, be.device), memories)
}

func newRecoverAdopt() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: "adopt --reason TEXT", Short: "take another ledger behind known endpoints as the one to use from now on", Args: noArgs,
		Long: `adopt is for a data directory that refuses to run because the endpoints it knows lead to another ledger (another
generation). The recovery gate is set, so that nothing begins before somebody looked, and this device is known as one that
has to offer. The journals of the earlier ledger stay where they are; recover offer tells the new one what they hold.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			return b.with(cmd, &out, use{dir: true, long: true}, func(ctx context.Context, be *backend) error {
				if err := be.bounded(ctx, func(ctx context.Context) error { return be.adopt(ctx, gate) }); err != nil {
					return err
				}
				return be.printRecovery(ctx, cmd, out)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}

// adopt has the ledger know of this device, behind a gate, before the directory goes on with it.
func (be *backend) adopt(ctx context.Context, gate coord.Gate) error {
	if err := be.coordinator.SetRecovery(ctx, gate); err != nil {
		return err
	}
	id := be.flags.deviceID
	if id == "" {
		own, err := identity.Open(be.dir, identity.Options{})
		if err != nil {
			return err
		}
		id = own.Device
	}
	if err := be.coordinator.Offer(ctx, coord.Offer{Device: id, At: time.Now()}); err != nil {
		return err
	}
	return identity.OpenClusters(be.dir).Adopt(be.flags.namespace, be.endpointNames(), be.coordinator.Generation())
}
