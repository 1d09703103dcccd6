package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "stop an agent's runs from beginning, and let them begin again", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newAgentPause(), newAgentResume())
	return cmd
}

func newAgentPause() *cobra.Command {
	var b backendFlags
	var out outputFlag
	var g gateFlags
	cmd := &cobra.Command{Use: "pause AGENT --reason TEXT", Short: "let no run of the agent begin; what runs goes on", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			gate, err := g.gate()
			if err != nil {
				return err
			}
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				if err := c.Pause(ctx, args[0], gate); err != nil {
					return err
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"agent": args[0], "paused": true, "by": gate.By, "reason": gate.Reason},
					fmt.Sprintf("agent %s is paused: nothing of it begins until syncnode agent resume %s\n", args[0], args[0]))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	g.register(cmd)
	return cmd
}

func newAgentResume() *cobra.Command {
	var b backendFlags
	var out outputFlag
	cmd := &cobra.Command{Use: "resume AGENT", Short: "let runs of the agent begin again", Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return b.read(cmd, &out, func(ctx context.Context, c coord.Coordinator) error {
				if err := c.Resume(ctx, args[0]); err != nil {
					return err
				}
				return printOne(out, cmd.OutOrStdout(), map[string]any{"agent": args[0], "paused": false},
					fmt.Sprintf("agent %s may begin runs\n", args[0]))
			})
		}}
	b.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}
