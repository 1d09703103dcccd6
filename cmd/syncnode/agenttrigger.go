package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/api"
)

// viaNode is what verbs have that only a node can answer.
type viaNode struct {
	dataDir string
	via     nodeFlags
	out     outputFlag
}

func (v *viaNode) register(cmd *cobra.Command) {
	registerDataDir(cmd.Flags(), &v.dataDir)
	v.via.register(cmd.Flags())
	v.out.register(cmd.Flags())
}

// client is the node to ask; there has to be one. or says what else there is without one.
func (v *viaNode) client(or string) (*nodeClient, error) {
	if err := v.out.check(); err != nil {
		return nil, err
	}
	c, err := v.via.client(v.dataDir)
	switch {
	case c != nil || err != nil:
		return c, err
	case v.via.node == "none":
		return nil, usagef("only a node can tell or do this, and --node is none; %s", or)
	}
	return nil, fmt.Errorf("only a node can tell or do this, and none answers on %s: start syncnode serve --config FILE there, or point to one by --data-dir DIR, or by "+
		"--node unix:PATH or URL where it has another --listen; %s", nodeSocket(v.dataDir), or)
}

// toldBy says what came of a question to a node.
func toldBy(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return fmt.Errorf("%w; it may have been done: look before it is asked again", err)
	}
	ran := map[string]string{"no": "nothing was run", "maybe": "it may have run", "yes": "it was run"}[string(p.Executed)]
	return fmt.Errorf("%s; %s", p.Detail, ran)
}

func newAgentTrigger() *cobra.Command {
	var v viaNode
	var occurrence string
	cmd := &cobra.Command{Use: "trigger AGENT [--occurrence TEXT]", Short: "have the node run an agent of its configuration once more, beside the schedule", Args: oneAgent,
		Long: `trigger asks the node of the data directory, or the one that --node names, to run an agent of its configuration now. It
returns when the agent is free for it, and does not wait for its end: syncnode run show tells that. The same --occurrence
is the same run for ever; without it each trigger is a run of its own.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := v.client("nothing was run")
			if err != nil {
				return err
			}
			var done api.TriggeredRun
			in := map[string]string{}
			if occurrence != "" {
				in["occurrence"] = occurrence
			}
			if _, _, err := c.do(cmd.Context(), http.MethodPost, "/v1/agents/"+url.PathEscape(args[0])+"/trigger", in, &done); err != nil {
				return toldBy(err)
			}
			return printOne(v.out, cmd.OutOrStdout(), done, fmt.Sprintf("run         %s\nagent       %s\noccurrence  %s\nnext        `syncnode run show %[1]s --agent %[2]s` tells how it ends\n",
				done.Run, done.Agent, plain(done.Occurrence)))
		}}
	v.register(cmd)
	cmd.Flags().StringVar(&occurrence, "occurrence", "", "the `TEXT` that names the run")
	return cmd
}

// agents are those of the node, and those that somebody holds.
func (c *nodeClient) agents(ctx context.Context) (rows []api.AgentState, err error) {
	for after := ""; ; {
		var page struct {
			Items []api.AgentState `json:"items"`
			Next  string           `json:"next"`
		}
		if _, _, err := c.do(ctx, http.MethodGet, "/v1/agents?limit=1000&cursor="+url.QueryEscape(after), nil, &page); err != nil {
			return nil, err
		}
		rows = append(rows, page.Items...)
		if after = page.Next; after == "" {
			return rows, nil
		}
	}
}

func newAgentList() *cobra.Command {
	var v viaNode
	var timeout time.Duration
	cmd := &cobra.Command{Use: "list", Short: "list the agents of a node's configuration: when they are due, and whose they are", Args: noArgs,
		Long: `list asks the node of the data directory, or the one that --node names, for the agents of its configuration and those that
somebody holds. Without a node syncnode config check FILE tells when agents are due, and syncnode lease list who holds them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := v.client("without a node syncnode config check FILE tells when agents are due, and syncnode lease list who holds them")
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usagef("--backend-timeout %s: must be above 0", timeout)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("the node did not answer within %s (--backend-timeout)", timeout))
			defer cancel()
			rows, err := c.agents(ctx)
			if p, is := errors.AsType[*api.Problem](err); is {
				return errors.New(p.Detail)
			} else if err != nil {
				return causeOf(ctx, err)
			}
			return printRows(v.out, cmd.OutOrStdout(), rows, "AGENT\tSCHEDULE\tTZ\tNEXT\tOWNER\tHOLDER\tRUNS HERE\tMISSING", func(a api.AgentState) string {
				next, holder, open := "-", "-", "no"
				if !a.Next.IsZero() {
					next = a.Next.UTC().Format(time.RFC3339)
				}
				if a.Holder != nil {
					holder = a.Holder.Device
				}
				if a.Open {
					open = "yes"
				}
				missing := "-"
				if a.Missing != nil {
					missing = fmt.Sprintf("%d (%s)", a.Missing.Count, a.Missing.Reason)
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", a.Agent.Agent, dash(a.Schedule), dash(a.TZ), next, dash(a.Owner), holder, open, missing)
			})
		}}
	v.register(cmd)
	registerTimeout(cmd.Flags(), &timeout)
	return cmd
}
