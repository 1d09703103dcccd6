package coord_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
)

func TestATTLIsRoundedUpToItsClass(t *testing.T) {
	for _, c := range []struct{ ask, want time.Duration }{
		{0, 0}, {1, 2 * time.Second}, {2 * time.Second, 2 * time.Second}, {2*time.Second + 1, 5 * time.Second},
		{6 * time.Second, 15 * time.Second}, {coord.DefaultTTL, 15 * time.Second}, {16 * time.Second, 30 * time.Second},
		{time.Minute, time.Minute}, {61 * time.Second, coord.MaxTTL}, {coord.MaxTTL, coord.MaxTTL},
	} {
		if got, err := coord.Granted(c.ask); got != c.want || err != nil {
			t.Errorf("Granted(%s) = %s, %v, want %s", c.ask, got, err, c.want)
		}
	}
	for _, ask := range []time.Duration{-1, coord.MaxTTL + 1, 1 << 62} {
		if got, err := coord.Granted(ask); got != 0 || !errors.Is(err, coord.ErrInvalid) {
			t.Errorf("Granted(%s) = %s, %v, want a refusal", ask, got, err)
		}
	}
}

func TestNoncesAre128BitsAndNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := coord.NewNonce()
		if len(n) != 32 || strings.Trim(n, "0123456789abcdef") != "" || seen[n] {
			t.Fatalf("nonce %q", n)
		}
		seen[n] = true
	}
}

func TestARefusalNamesAllThatIsWrong(t *testing.T) {
	err := coord.Request{Agent: "a/b", Device: "", TTL: -1, Floor: coord.MaxEpoch + 1, Note: strings.Repeat("x", 129)}.Check()
	if !errors.Is(err, coord.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, word := range []string{"agent", "device", "ttl", "floor", "note"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not named in %q", word, err)
		}
	}
}

func TestStateOfARun(t *testing.T) {
	open := coord.Attempt{State: coord.Open, Liveness: "gone"}
	running := coord.Attempt{State: coord.Open, Liveness: "alive"}
	abandoned := coord.Attempt{State: coord.Open, Liveness: "alive", Abandoned: true}
	nameless := coord.Attempt{State: coord.Open}
	failed, void, done := coord.Attempt{State: coord.Failed}, coord.Attempt{State: coord.Void}, coord.Attempt{State: coord.Committed}
	permitted := coord.Attempt{State: coord.Failed, Permitted: true}
	list := func(a ...coord.Attempt) []coord.Attempt { return a }
	for _, c := range []struct {
		attempts []coord.Attempt
		want     coord.RunState
	}{
		{nil, coord.RunFree}, {list(void, void), coord.RunFree}, {list(permitted), coord.RunFree},
		{list(failed, void), coord.RunFailed}, {list(void, failed), coord.RunFailed}, {list(permitted, failed), coord.RunFailed},
		{list(open, failed), coord.RunInDoubt}, {list(failed, abandoned), coord.RunInDoubt}, {list(nameless), coord.RunInDoubt},
		{list(open, running), coord.RunRunning}, {list(running, open), coord.RunRunning}, {list(running, failed), coord.RunRunning},
		{list(done, open), coord.RunCommitted}, {list(running, done), coord.RunCommitted}, {list(failed, done), coord.RunCommitted},
	} {
		got := coord.StateOf(c.attempts, func(l string) bool { return l == "alive" || l == "" })
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.attempts, got, c.want)
		}
	}
	if got := coord.StateOf(list(running), nil); got != coord.RunInDoubt {
		t.Errorf("nobody is known to live: got %s", got)
	}
}
