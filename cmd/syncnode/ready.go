package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

const readyLong = `ready asks a node whether it answers, as GET /readyz does: 0 if it does, 1 if not. It is for probes where the image has no
other program, and the node listens where no probe comes: on a socket, or on 127.0.0.1 in a pod.

It asks no etcd, so an outage of etcd restarts nothing. With --backend it does: for alerts.`

// readyTime bounds the question. With --backend the node itself gives etcd five seconds.
const readyTime = 8 * time.Second

func newReady() *cobra.Command {
	var via nodeFlags
	var dataDir string
	var backend bool
	cmd := &cobra.Command{Use: "ready", Short: "say whether a node answers, for probes", Long: readyLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := via.client(dataDir)
			if err != nil {
				return err
			}
			if c == nil {
				return fmt.Errorf("no node answers at unix:%s: give --node", nodeSocket(dataDir))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readyTime)
			defer cancel()
			path := "/readyz"
			if backend {
				path += "?backend=1"
			}
			var got struct{ Node string }
			if _, _, err := c.do(ctx, "GET", path, nil, &got); err != nil {
				return c.told(err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), got.Node)
			return nil
		}}
	via.register(cmd.Flags())
	registerDataDir(cmd.Flags(), &dataDir)
	cmd.Flags().BoolVar(&backend, "backend", false, "ask its etcd too")
	return cmd
}
