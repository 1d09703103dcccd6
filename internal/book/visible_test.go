package book_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/oplog"
)

// What an intent may hold as text, since it is never sealed. Words are of a fixed list, everything else is made by a rule.
var texts = map[string]string{
	"id": "id", "agent_id": "id", "attempt": "id", "device": "id",
	"input":  "digest",
	"status": "word", "cause": "word", "why": "word",
	"begun": "time", "ended": "time",
	"occurrence": "free", "by": "free", "reason": "free", "result": "free",
}

func TestTheFreeTextInAnIntentIsWhatTheDocsSayThatARelaySees(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "formats", "seal.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, t.TempDir())
	said := func(what string) string { return "said by a person or a job: " + what }
	for i, state := range []coord.State{coord.Committed, coord.Failed, coord.Void, coord.Open} {
		run := "r" + string(rune('a'+i))
		o := attempt(run, state)
		o.Attempt.Device, o.Occurrence, o.Attempt.By, o.Attempt.Reason, o.Attempt.Result = "host-2", said("occurrence"), said("by"), said("reason"), said("result")
		o.Attempt.Request, o.Attempt.Liveness, o.Attempt.Ended = strings.Repeat("cd", 16), said("liveness"), wall().Add(time.Second)
		o.Attempt.Abandoned = state == coord.Open
		must(t, b.Outcome(ctx, o))
	}
	seen, ops := map[string]bool{}, 0
	for op, err := range b.Journal().Own(0) {
		must(t, err)
		ops++
		if op.Surface != oplog.Intents {
			t.Errorf("op %d is on surface %s", op.Seq, op.Surface)
		}
		var members map[string]any
		must(t, json.Unmarshal(op.Payload, &members))
		for name, value := range members {
			text, ok := value.(string)
			if !ok {
				if _, deep := value.(map[string]any); deep {
					t.Errorf("%s is an object", name)
				}
				continue
			}
			seen[name] = true
			if free := strings.HasPrefix(text, "said by"); free != (texts[name] == "free") || texts[name] == "" {
				t.Errorf("member %s is %q: name it in docs/formats/seal.md, since relays see it, and here", name, text)
			}
		}
	}
	for name, kind := range texts {
		if !seen[name] || ops != 4 {
			t.Errorf("%s is in none of %d intents", name, ops)
		}
		if kind == "free" && !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/formats/seal.md does not say that relays see %s", name)
		}
	}
}
