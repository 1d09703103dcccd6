package meant_test

import (
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/meant"
)

func TestWord(t *testing.T) {
	words := []string{"agents", "tz", "timeout", "catchup_window", "ttl"}
	for _, c := range []struct{ got, want string }{
		{"agentz", "agents"}, {"agent", "agents"}, {"catchupwindw", "catchup_window"}, {"timeout", "timeout"},
		{"x", ""}, {"", ""}, {"catchup", ""}, {"tiemout", ""}, {strings.Repeat("a", 1<<20), ""},
	} {
		if got := meant.Word(c.got, words); got != c.want {
			t.Errorf("%.20q: %q, want %q", c.got, got, c.want)
		}
	}
}
