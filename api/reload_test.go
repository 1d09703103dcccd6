package api_test

import (
	"context"
	"testing"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
)

func TestAReloadTellsWhatWasTakenOrEveryMistake(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.do("POST", "/v1/config/reload", nil), 404, "not-found")
		answer := api.Reloaded{File: "f.yaml", Agents: 3}
		var fails error
		w.node.Reload = func(context.Context) (api.Reloaded, error) { return answer, fails }
		if a := w.want(w.do("POST", "/v1/config/reload", nil), 200, ""); a.text("file") != "f.yaml" || a.body["agents"] != 3.0 {
			t.Errorf("taken: %s", a.raw)
		}
		fails = &api.ConfigError{File: "f.yaml", Mistakes: []string{"f.yaml:1:1: one", "f.yaml:2:1: two"}}
		a := w.want(w.do("POST", "/v1/config/reload", nil), 409, "config-refused")
		w.wantExecuted(a, "no")
		if all, _ := a.body["errors"].([]any); len(all) != 2 || all[1].(obj)["message"] != "f.yaml:2:1: two" {
			t.Errorf("mistakes: %s", a.raw)
		}
		fails = coord.ErrNotSent
		w.want(w.do("POST", "/v1/config/reload", nil), 503, "unavailable")
	})
}
