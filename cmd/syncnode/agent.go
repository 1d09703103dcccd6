package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "see agents, stop their runs from beginning and let them begin again, run one once more", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newAgentList(), newAgentPause(), newAgentResume(), newAgentShow(), newAgentTrigger())
	return cmd
}

func newAgentPause() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: "pause AGENT --reason TEXT", Short: "let no run of the agent begin; what runs goes on", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			return b.ask(cmd, &out, &via, use{there: true}, func(ctx context.Context, c coord.Coordinator) error {
				if err := c.Pause(ctx, args[0], gate); err != nil {
					return err
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"agent": args[0], "paused": true, "by": gate.By, "reason": gate.Reason},
					fmt.Sprintf("agent %s is paused: nothing of it begins until syncnode agent resume %s\n", args[0], args[0]))
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}

func newAgentResume() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "resume AGENT", Short: "let runs of the agent begin again", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return b.ask(cmd, &out, &via, use{there: true}, func(ctx context.Context, c coord.Coordinator) error {
				if err := c.Resume(ctx, args[0]); err != nil {
					return err
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"agent": args[0], "paused": false},
					fmt.Sprintf("agent %s may begin runs\n", args[0]))
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

// An agentRow says whether runs of an agent may begin.
type agentRow struct {
	Agent  string `json:"agent"`
	Paused bool   `json:"paused"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	Since  string `json:"since,omitempty"`
	Next   string `json:"next"`
}

func newAgentShow() *cobra.Command {
	var b backendFlags
	var via nodeFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "show AGENT", Short: "show whether the agent is paused, by whom and why", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return b.ask(cmd, &out, &via, use{there: true}, func(ctx context.Context, c coord.Coordinator) error {
				// The gates come with the look at a run, whichever.
				v, err := c.Look(ctx, coord.Question{Agent: args[0], Run: ident.RunID(b.namespace, args[0], "key:-")})
				if err != nil {
					return err
				}
				return printAgent(cmd, out, agentRowOf(args[0], v))
			})
		}}
	b.register(cmd.Flags())
	via.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func agentRowOf(agent string, v coord.View) agentRow {
	r := agentRow{Agent: agent, Paused: v.Paused != nil, Next: "its runs may begin; `syncnode lease show " + agent + "` says who holds it"}
	if v.Paused != nil {
		r.By, r.Reason, r.Since = v.Paused.By, v.Paused.Reason, rfc3339(v.Paused.At)
		r.Next = "`syncnode agent resume " + agent + "` lets its runs begin again"
	}
	if v.Recovery != nil {
		r.Next = "nothing begins before the recovery gate is lifted: see `syncnode recover status`"
	}
	return r
}

func printAgent(cmd *cobra.Command, out outputFlag, r agentRow) error {
	text := fmt.Sprintf("agent   %s\nstate   not paused\n", r.Agent)
	if r.Paused {
		text = fmt.Sprintf("agent   %s\nstate   paused\nby      %s\nreason  %s\nsince   %s\n", r.Agent, plain(r.By), plain(r.Reason), r.Since)
	}
	return printOne(out, cmd.OutOrStdout(), r, text+"next    "+r.Next+"\n")
}
