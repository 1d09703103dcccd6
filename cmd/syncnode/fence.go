package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/internal/fencesock"
)

func newFence() *cobra.Command {
	return &cobra.Command{
		Use:   "fence",
		Short: "ask, from inside a run, whether it may still act",
		Long: `fence is called by a command that syncnode runs, right before an effect. It exits with 0 if the run's
lease is still held at its epoch and its attempt is still open, with 111 on every no, also when nobody
answers within two seconds, and with 125 outside a run.

A yes is as old as its answer: hand SYNCNODE_RUN_EPOCH to the resource, and let it refuse an older one.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := os.Getenv(fencesock.Env)
			if path == "" {
				return fmt.Errorf("%s is not set: this is not inside a run of syncnode", fencesock.Env)
			}
			if err := fencesock.Ask(cmd.Context(), path); err != nil {
				return &exitError{code: exitLost, err: fmt.Errorf("no: %w", err)}
			}
			return nil
		},
	}
}
