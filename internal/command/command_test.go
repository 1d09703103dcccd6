package command_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/child"
	"github.com/syncnode/syncnode/internal/command"
	"github.com/syncnode/syncnode/internal/fencesock"
)

func permit() dispatch.Permit {
	return dispatch.Permit{
		Run: "r1-x", Agent: "mail", Occurrence: "at:2026-03-29T01:30:00Z", Epoch: 7, Attempt: "a1",
		Deadline: time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC),
		Trusted:  func() error { return nil },
		Fence:    func(context.Context) error { return nil },
	}
}

func shell(script string, out *bytes.Buffer) child.Spec {
	return child.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Stdout: out, Stderr: out}
}

func TestAChildSeesItsRunAndNothingElseOfOurs(t *testing.T) {
	t.Parallel()
	base := []string{"PATH=/bin", "SYNCNODE_PASSWORD_FILE=x", "ETCDCTL_USER=root", "SYNCNODE_RUN_ID=outer"}
	got := command.Environ(base, permit(), "/tmp/s")
	want := []string{
		"PATH=/bin", "SYNCNODE_RUN_AGENT=mail", "SYNCNODE_RUN_ATTEMPT=a1", "SYNCNODE_RUN_DEADLINE=2026-03-29T02:00:00Z",
		"SYNCNODE_RUN_EPOCH=7", "SYNCNODE_RUN_FENCE=/tmp/s", "SYNCNODE_RUN_ID=r1-x", "SYNCNODE_RUN_OCCURRENCE=2026-03-29T01:30:00Z",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestTheEndOfTheChildIsTheEndOfTheEffect(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e, err := command.Start(permit(), shell(`echo $SYNCNODE_RUN_FENCE; exit 3`, &out), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	if got := e.Ended(); got != (dispatch.Ended{ExitCode: 3}) {
		t.Errorf("ended as %+v", got)
	}
	if err := fencesock.Ask(t.Context(), strings.TrimSpace(out.String())); err == nil {
		t.Error("its socket still says yes")
	}
}

func TestNothingStartsOnALeaseThatIsNotTrustedAnyMore(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost on the way")
	p := permit()
	p.Trusted = func() error { return lost }
	var out bytes.Buffer
	if e, err := command.Start(p, shell("echo ran", &out), nil); !errors.Is(err, lost) || e != nil || out.Len() > 0 {
		t.Errorf("%v, %v, %q; want %v and nothing run", e, err, out.String(), lost)
	}
}

func TestAStopAndItsCauseReachTheChild(t *testing.T) {
	t.Parallel()
	e, err := command.Start(permit(), child.Spec{Path: "/bin/sleep", Args: []string{"600"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Stop(dispatch.ErrDrain)
	<-e.Done()
	if got := e.Ended(); got.Signal != 15 || !errors.Is(got.Stopped, dispatch.ErrDrain) {
		t.Errorf("ended as %+v", got)
	}
}

func TestAProbeKnowsByZeroAndOneAlone(t *testing.T) {
	t.Parallel()
	for script, want := range map[string][2]bool{
		"exit 0": {true, true}, "exit 1": {false, true}, "exit 2": {}, "kill -9 $$": {}, `test "$SYNCNODE_RUN_ATTEMPT" = a1`: {true, true},
	} {
		var out bytes.Buffer
		happened, known, err := command.Probe(t.Context(), permit(), shell(script, &out))
		if err != nil || happened != want[0] || known != want[1] {
			t.Errorf("%q: happened %v, known %v, %v; want %v", script, happened, known, err, want)
		}
	}
	if _, known, err := command.Probe(t.Context(), permit(), child.Spec{Path: "/not/there"}); known || err == nil {
		t.Errorf("a probe that is not there: known %v, %v", known, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, known, err := command.Probe(ctx, permit(), child.Spec{Path: "/bin/sleep", Args: []string{"600"}}); known || err != nil {
		t.Errorf("a probe that was stopped: known %v, %v", known, err)
	}
}
