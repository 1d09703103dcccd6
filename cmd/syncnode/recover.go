package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/identity"
)

const recoverLong = `recover is for a ledger that went back: etcd was restored from an older snapshot, or replaced. The first device
that misses a run it saw finished sets the recovery gate, and nothing begins anywhere until a person lifts it.

  1. recover status     who set the gate, since when and why
  2. recover offer      on every device: write the outcomes of its journal back into the ledger
  3. run list           look at what is in doubt, and decide it by run resolve
  4. recover end        lift the gate

A device that a replaced ledger refuses (another generation behind known endpoints) takes it by recover adopt,
then offers.`

func newRecover() *cobra.Command {
	cmd := &cobra.Command{Use: "recover", Short: "bring back a ledger that was restored or replaced", Long: recoverLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newRecoverGate("begin", "set the recovery gate: nothing begins anywhere"), newRecoverStatus(), newRecoverOffer(),
		newRecoverAdopt(), newRecoverGate("end", "lift the recovery gate"))
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

func newRecoverGate(verb, short string) *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: verb + " --reason TEXT", Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				change := c.SetRecovery
				if verb == "end" {
					change = c.LiftRecovery
				}
				if err := change(ctx, gate); err != nil {
					return err
				}
				return printRecovery(ctx, cmd, out, c)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}

// A recoveryRow is the state of the gate.
type recoveryRow struct {
	Set        bool   `json:"set"`
	By         string `json:"by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Since      string `json:"since,omitempty"`
	Generation string `json:"generation"`
	Next       string `json:"next"`
}

func printRecovery(ctx context.Context, cmd *cobra.Command, out outputFlag, c coord.Coordinator) error {
	gate, set, err := c.Recovery(ctx)
	if err != nil {
		return err
	}
	row := recoveryRow{Set: set, Generation: c.Generation(), Next: "nothing to do: runs may begin"}
	text := "gate        not set\n"
	if set {
		row.By, row.Reason, row.Since = gate.By, gate.Reason, rfc3339(gate.At)
		row.Next = "syncnode recover offer on every device, run list, then syncnode recover end --reason TEXT"
		text = fmt.Sprintf("gate        set: nothing begins\nby          %s\nreason      %s\nsince       %s\n", plain(row.By), plain(row.Reason), row.Since)
	}
	return printOne(out, cmd.OutOrStdout(), row, text+"generation  "+row.Generation+"\nnext        "+row.Next+"\n")
}

func newRecoverStatus() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "status", Short: "show the recovery gate", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				return printRecovery(ctx, cmd, out, c)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func newRecoverOffer() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "offer", Short: "write the outcomes of this device's journal into the ledger, where it lacks them", Args: noArgs,
		Long: `offer reads this device's whole journal and writes each outcome of its own attempts that the ledger lacks. It may
be repeated: what the ledger has is not written again. It may take long, and is not bounded by --backend-timeout.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd, &out, use{write: true, long: true, wait: defaultBusyWait}, func(ctx context.Context, be *backend) error {
				offered := 0
				for o, err := range be.book.Outcomes(ctx) {
					if err != nil {
						return fmt.Errorf("after %d outcomes: %w", offered, err)
					}
					if err := be.finish(ctx, o); err != nil {
						return fmt.Errorf("after %d outcomes, run %s: %w; offer may be repeated", offered, o.Run, err)
					}
					offered++
				}
				if offered == 0 {
					return fmt.Errorf("device %s has no outcome to offer: is --data-dir %s the one that ran things here?", be.device, b.dataDir)
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"device": be.device, "offered": offered},
					fmt.Sprintf("the ledger holds all %d outcomes of device %s\n", offered, be.device))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

// finish offers one outcome, within the time a silent backend is given.
func (be *backend) finish(ctx context.Context, o coord.Outcome) error {
	ctx, cancel := context.WithTimeoutCause(ctx, be.flags.timeout, fmt.Errorf("%s did not answer within %s", be.where, be.flags.timeout))
	defer cancel()
	return causeOf(ctx, be.coordinator.Finish(ctx, o))
}

func newRecoverAdopt() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: "adopt --reason TEXT", Short: "take another ledger behind known endpoints as the one to use from now on", Args: noArgs,
		Long: `adopt is for a data directory that refuses to run because the endpoints it knows lead to another ledger (another
generation). The journals of the earlier ledger stay where they are. The recovery gate is set, so that nothing
begins before somebody looked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			return b.with(cmd, &out, use{dir: true}, func(ctx context.Context, be *backend) error {
				if err := be.coordinator.SetRecovery(ctx, gate); err != nil {
					return err
				}
				clusters := identity.OpenClusters(be.dir)
				if err := clusters.Adopt(b.namespace, be.endpointNames(), be.coordinator.Generation()); err != nil {
					return err
				}
				return printRecovery(ctx, cmd, out, be.coordinator)
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}
