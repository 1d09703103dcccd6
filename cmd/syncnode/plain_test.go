package main

import (
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

func TestWhatOthersWroteCannotForgeALineOrMoveTheCursor(t *testing.T) {
	for in, want := range map[string]string{
		"no mail left the server":            "no mail left the server",
		"x\nattempt  fake":                   `x\u000aattempt  fake`,
		"\x1b[2Jgone":                        `\u001b[2Jgone`,
		"\u009b31m":                          `\u009b31m`,
		"\u202erev":                          `\u202erev`,
		"two\u2028lines":                     `two\u2028lines`,
		"column\tcolumn":                     "column\tcolumn",
		"ünïcödé \U0001F468\u200d\U0001F469": "ünïcödé \U0001F468\u200d\U0001F469",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestAReasonCannotForgeAnAttempt(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	evil := "none\nattempt  forged\x1b[2J"
	h.call("exec", "-q", "--agent", "forge", "--occurrence", "k", "--", "false").want(1)
	h.call("run", "retry", "--agent", "forge", "--occurrence", "k", "--reason", evil, "--by", evil).want(0)
	h.call("lease", "steal", "forge", "--epoch", "1", "--reason", evil, "--by", evil).want(0)
	h.call("agent", "pause", "forge", "--reason", evil, "--by", evil).want(0)
	for _, verb := range [][]string{
		{"run", "show", "--agent", "forge", "--occurrence", "k"}, {"run", "list"}, {"lease", "show", "forge"}, {"lease", "list"}, {"agent", "show", "forge"},
		{"exec", "--agent", "forge", "--occurrence", "two", "--", "true"},
	} {
		p := h.call(verb...)
		said := p.out.String() + p.err.String()
		if strings.Contains(said, "\nattempt  forged") || strings.Contains(said, "\x1b") {
			t.Errorf("%v shows\n%q", verb, said)
		}
	}
}
