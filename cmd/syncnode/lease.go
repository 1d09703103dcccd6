package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
)

// A leaseRow is a lease as lists and JSON show it.
type leaseRow struct {
	Agent   string  `json:"agent"`
	Epoch   uint64  `json:"epoch"`
	Device  string  `json:"device"`
	TTL     float64 `json:"ttl_s"`
	Expired bool    `json:"expired"`
	Held    bool    `json:"held"`
	Since   string  `json:"since,omitempty"`
	Host    string  `json:"host,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Note    string  `json:"note,omitempty"`
	Jump    uint64  `json:"floor_jump,omitempty"`
	By      string  `json:"stolen_by,omitempty"`
	Reason  string  `json:"stolen_because,omitempty"`
	Next    string  `json:"next"`
}

func leaseRowOf(l coord.Lease, held bool) leaseRow {
	r := leaseRow{Agent: l.Agent, Epoch: uint64(l.Epoch), Held: held, Expired: held && l.Expired}
	r.Next = r.next()
	if !held {
		return r
	}
	r.Device, r.TTL, r.Host, r.PID = l.Device, l.TTL.Seconds(), l.Process.Host, l.Process.PID
	r.Note, r.Jump, r.By, r.Reason = l.Note, uint64(l.Jump), l.By, l.Reason
	if !l.Since.IsZero() {
		r.Since = l.Since.UTC().Format(time.RFC3339)
	}
	return r
}

// next says what can be done about a lease.
func (r leaseRow) next() string {
	switch {
	case !r.Held:
		return "free: the next acquire is granted at once"
	case r.Expired:
		return "expired: the next acquire takes it; its holder may still renew it until then"
	default:
		return fmt.Sprintf("held: wait for it, or `syncnode lease steal %s --epoch %d --force --reason TEXT`", r.Agent, r.Epoch)
	}
}

func (r leaseRow) state() string {
	switch {
	case !r.Held:
		return "free"
	case r.Expired:
		return "expired"
	default:
		return "held"
	}
}

func newLease() *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "see and change who may act for an agent", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newLeaseList(), newLeaseShow(), newLeaseAcquire(), newLeaseRenew(), newLeaseRelease(), newLeaseSteal())
	return cmd
}

func newLeaseList() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "list", Short: "list the leases of all agents: who holds which, since when", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				leases, err := c.Leases(ctx)
				if err != nil {
					return err
				}
				rows := make([]leaseRow, len(leases))
				for i, l := range leases {
					rows[i] = leaseRowOf(l, l.Device != "")
				}
				return printRows(out, cmd.OutOrStdout(), rows, "AGENT\tEPOCH\tSTATE\tDEVICE\tTTL\tSINCE\tFOR", func(r leaseRow) string {
					return fmt.Sprintf("%s\t%d\t%s\t%s\t%gs\t%s\t%s", r.Agent, r.Epoch, r.state(), dash(r.Device), r.TTL, dash(r.Since), dash(r.Note))
				})
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func newLeaseShow() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "show AGENT", Short: "show the lease of an agent, and what can be done about it", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				l, held, err := c.Current(ctx, args[0])
				if err != nil {
					return err
				}
				return printLease(cmd, out, leaseRowOf(l, held))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func printLease(cmd *cobra.Command, out outputFlag, r leaseRow) error {
	text := fmt.Sprintf("agent   %s\nepoch   %d\nstate   %s\n", r.Agent, r.Epoch, r.state())
	if r.Held {
		text += fmt.Sprintf("device  %s\nhost    %s\npid     %d\nttl     %gs\nsince   %s\nfor     %s\n",
			r.Device, plain(dash(r.Host)), r.PID, r.TTL, dash(r.Since), plain(dash(r.Note)))
	}
	if r.By != "" {
		text += fmt.Sprintf("stolen  by %s: %s\n", plain(r.By), plain(r.Reason))
	}
	return printOne(out, cmd.OutOrStdout(), r, text+"next    "+r.Next+"\n")
}

func newLeaseAcquire() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var ttl time.Duration
	var note string
	cmd := &cobra.Command{
		Use: "acquire AGENT", Short: "take the lease of an agent, print the grant, and let its time run", Args: oneAgent,
		Long: `acquire takes the lease and ends. Nobody renews it: its liveness runs out after the TTL, and then anybody may
take it. lease renew --epoch N from the same data directory picks it up again, with its epoch.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTTL(ttl); err != nil {
				return err
			}
			return b.write(cmd, &out, args[0], func(ctx context.Context, be *backend) error {
				floor, err := be.floor(ctx, args[0])
				if err != nil {
					return err
				}
				l, err := be.coordinator.Acquire(ctx, coord.Request{Agent: args[0], Device: be.device, TTL: ttl, Floor: floor, Note: note})
				if err != nil {
					return err
				}
				be.leave()
				if err := be.granted(ctx, l); err != nil {
					return err
				}
				return printLease(cmd, out, leaseRowOf(l, true))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().DurationVar(&ttl, "ttl", coord.DefaultTTL, "how long the lease lives without a renewal; rounded up to 2, 5, 15, 30, 60 or 300 s")
	cmd.Flags().StringVar(&note, "note", "", "a short `TEXT` that lists show beside the holder")
	return cmd
}

func newLeaseRenew() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var epoch uint64
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "renew AGENT --epoch N", Short: "pick up a lease that an ended process of this data directory took", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needEpoch(cmd); err != nil {
				return err
			}
			if err := checkTTL(ttl); err != nil {
				return err
			}
			return b.write(cmd, &out, args[0], func(ctx context.Context, be *backend) error {
				l, err := be.coordinator.Renew(ctx, args[0], be.device, coord.Epoch(epoch), ttl)
				if err != nil {
					return err
				}
				be.leave()
				return printLease(cmd, out, leaseRowOf(l, true))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	cmd.Flags().Uint64Var(&epoch, "epoch", 0, "the `EPOCH` of the grant")
	cmd.Flags().DurationVar(&ttl, "ttl", coord.DefaultTTL, "how long the lease lives without a renewal")
	return cmd
}

// theftFlags are those of a decision by a person.
type theftFlags struct {
	epoch  uint64
	force  bool
	by     string
	reason string
}

func (f *theftFlags) register(cmd *cobra.Command) {
	cmd.Flags().Uint64Var(&f.epoch, "epoch", 0, "the `EPOCH` you looked at; another one is refused")
	cmd.Flags().BoolVar(&f.force, "force", false, "also while the holder's liveness is there: its run goes on until it notices")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the record (`TEXT`)")
	cmd.Flags().StringVar(&f.by, "by", whoami(), "who decides, for the record (`NAME`)")
}

// needEpoch is asked for what changes a grant: it says which grant is meant.
func needEpoch(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("epoch") {
		return usagef("--epoch N is missing: the epoch of the grant that is meant, see syncnode lease show")
	}
	return nil
}

func (f *theftFlags) theft(cmd *cobra.Command, agent string) (coord.Theft, error) {
	if err := needEpoch(cmd); err != nil {
		return coord.Theft{}, err
	}
	if f.force && f.reason == "" {
		return coord.Theft{}, usagef("--force needs --reason TEXT, for the record")
	}
	return coord.Theft{Request: coord.Request{Agent: agent}, By: f.by, Reason: f.reason, Force: f.force, Epoch: coord.Epoch(f.epoch)}, nil
}

func newLeaseRelease() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var f theftFlags
	cmd := &cobra.Command{
		Use: "release AGENT --epoch N", Short: "give back a lease, also another process's, once its liveness is gone", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			theft, err := f.theft(cmd, args[0])
			if err != nil {
				return err
			}
			return b.write(cmd, &out, args[0], func(ctx context.Context, be *backend) error {
				theft.Device = be.device
				if err := release(ctx, be, theft); err != nil {
					return err
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"agent": args[0], "epoch": f.epoch, "held": false},
					fmt.Sprintf("released %s at epoch %d\n", args[0], f.epoch))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	f.register(cmd)
	return cmd
}

// release gives a lease back: one that an ended process of this data directory took, or one whose liveness is
// gone, or, by force, any.
func release(ctx context.Context, be *backend, t coord.Theft) error {
	if !t.Force {
		if l, err := be.coordinator.Renew(ctx, t.Agent, be.device, t.Epoch, coord.DefaultTTL); err == nil {
			return be.coordinator.Release(ctx, l.Agent, l.Device, l.Epoch)
		}
		if t.Reason == "" {
			t.Reason = "its liveness was gone"
		}
	}
	return be.coordinator.Evict(ctx, t)
}

func newLeaseSteal() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var f theftFlags
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "steal AGENT --epoch N", Short: "take a lease by decision of a person", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			theft, err := f.theft(cmd, args[0])
			if err != nil {
				return err
			}
			if theft.Reason == "" {
				return usagef("steal needs --reason TEXT, for the record")
			}
			if err := checkTTL(ttl); err != nil {
				return err
			}
			return b.write(cmd, &out, args[0], func(ctx context.Context, be *backend) error {
				floor, err := be.floor(ctx, args[0])
				if err != nil {
					return err
				}
				theft.Device, theft.TTL, theft.Floor = be.device, ttl, floor
				l, err := be.coordinator.Steal(ctx, theft)
				if err != nil {
					return err
				}
				be.leave()
				if err := be.granted(ctx, l); err != nil {
					return err
				}
				return printLease(cmd, out, leaseRowOf(l, true))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	f.register(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", coord.DefaultTTL, "how long the lease lives without a renewal")
	return cmd
}
