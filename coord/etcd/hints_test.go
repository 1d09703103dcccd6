package etcd

import (
	"fmt"
	"testing"
)

func TestWhatIsRememberedOfAgentsIsBounded(t *testing.T) {
	c := &Coordinator{hints: map[string]agentHint{}}
	for i := range 2 * maxHints {
		c.learn(fmt.Sprint("a", i), "", agentHint{live: "key"})
	}
	if len(c.hints) != maxHints {
		t.Errorf("%d hints, want %d at most", len(c.hints), maxHints)
	}
	last := fmt.Sprint("a", 2*maxHints-1)
	c.learn(last, "", agentHint{live: "other"})
	if len(c.hints) != maxHints || c.hints[last].live != "other" {
		t.Errorf("%d hints, and the newest agent's is %+v", len(c.hints), c.hints[last])
	}
}
