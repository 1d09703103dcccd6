package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// A Reloaded is the configuration that was taken.
type Reloaded struct {
	File   string `json:"file"`
	Agents int    `json:"agents" doc:"How many agents it has"`
}

// A ConfigError says why a configuration was not taken: the one of before goes on. Nothing was changed.
type ConfigError struct {
	File     string
	Mistakes []string
}

func (e *ConfigError) Error() string {
	return "the configuration " + e.File + " was not taken: the one of before goes on"
}

type reloadOut struct{ Body Reloaded }

func (s *Server) configRoutes() {
	add(s, Operate, huma.Operation{OperationID: "reload", Method: http.MethodPost, Path: "/v1/config/reload", Tags: []string{"nodes"},
		Summary: "read the file of --config again, and take it whole or not at all; what runs goes on", Errors: []int{404, 409}}, postReload)
}

func postReload(ctx context.Context, n *Node, _ *struct{}) (*reloadOut, error) {
	if c := CallerOf(ctx); !c.MayAgent("*") { // only the pattern of all agents matches it
		return nil, problem("forbidden", "%s may not use all agents, and the file is about all of them", c.Name)
	}
	if n.Reload == nil {
		return nil, problem("not-found", "this node was started without --config: there is no file to read again")
	}
	r, err := n.Reload(ctx)
	if err != nil {
		return nil, err
	}
	return &reloadOut{Body: r}, nil
}
