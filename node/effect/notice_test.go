package effect

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/config"
)

func notice() Notice {
	return NoticeOf(
		dispatch.Job{Run: permit().Run, Agent: "crm", Occurrence: "key:Zürich 1"},
		dispatch.Result{Ran: dispatch.Yes, State: coord.RunFailed, Attempt: permit().Attempt, Epoch: 7, Cause: coord.CauseExit, ExitCode: 3, Message: "it was run: failed"},
		"n1")
}

func TestACommandIsToldOfAFailure(t *testing.T) {
	t.Parallel()
	d := deps(t)
	d.Environ = []string{"PATH=" + os.Getenv("PATH"), "SYNCNODE_PASSWORD_FILE=x"}
	a := config.Agent{Policy: config.Policy{Failure: config.Failure{Command: []string{"sh", "-c", "env | grep SYNCNODE | sort"}}}}
	if err := Notify(t.Context(), a, d, notice()); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{"SYNCNODE_RUN_AGENT=crm", "SYNCNODE_RUN_ATTEMPT=" + permit().Attempt, "SYNCNODE_RUN_CAUSE=exit", "SYNCNODE_RUN_EPOCH=7",
		"SYNCNODE_RUN_EXIT_CODE=3", "SYNCNODE_RUN_ID=" + permit().Run, "SYNCNODE_RUN_OCCURRENCE=Zürich 1", "SYNCNODE_RUN_STATE=failed", ""}, "\n")
	if got := printed(t, d, permit().Run, permit().Attempt+"-failure"); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	a.Failure.Command = []string{"sh", "-c", "exit 9"}
	if err := Notify(t.Context(), a, d, notice()); err == nil || !strings.Contains(err.Error(), "ended with 9") {
		t.Errorf("%v", err)
	}
	if err := Notify(t.Context(), config.Agent{}, d, notice()); err != nil {
		t.Errorf("nobody is to be told: %v", err)
	}
}

func TestAWebhookIsSignedAndTriedAFewTimes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var codes []int
	keys := map[string]int{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		stamp, mac, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Syncnode-Signature"), "t="), ",v1=")
		h := hmac.New(sha256.New, []byte("hunter2"))
		h.Write([]byte(stamp + "." + string(body)))
		if want := hex.EncodeToString(h.Sum(nil)); mac != want || stamp == "" {
			t.Errorf("signature %q, want v1=%s", r.Header.Get("Syncnode-Signature"), want)
		}
		var got Notice
		if err := json.Unmarshal(body, &got); err != nil || got != notice() {
			t.Errorf("%s: %v", body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		keys[r.Header.Get("Idempotency-Key")]++
		w.WriteHeader(codes[0])
		codes = codes[1:]
	})
	d := deps(t)
	write(t, d, "hook.key", "hunter2\n")
	a := config.Agent{Policy: config.Policy{Failure: config.Failure{Webhook: s.URL + "/hooks/T0K3N?x=T0K3N", SecretFile: "hook.key"}}}
	for _, c := range []struct {
		answers []int
		left    int
		told    bool
	}{
		{[]int{204, 0}, 1, true},
		{[]int{500, 200, 0}, 1, true},
		{[]int{400, 0}, 1, false},
		{[]int{302, 0}, 1, false},
		{[]int{503, 429, 408, 0}, 1, false},
	} {
		mu.Lock()
		codes = c.answers
		mu.Unlock()
		err := Notify(t.Context(), a, d, notice())
		mu.Lock()
		left := len(codes)
		mu.Unlock()
		if (err == nil) != c.told || left != c.left {
			t.Errorf("answers %v: %v, %d not asked for", c.answers, err, left)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "T0K3N")) {
			t.Errorf("the error has a secret: %v", err)
		}
	}
	if len(keys) != 1 {
		t.Errorf("keys %v: a receiver cannot tell that it is one notice", keys)
	}
}

func TestANoticeThatCannotBeSignedIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	a := config.Agent{Policy: config.Policy{Failure: config.Failure{Webhook: s.URL, SecretFile: "none"}}}
	if err := Notify(t.Context(), a, deps(t), notice()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestAWebhookIsNotTriedOnWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var log strings.Builder
	d := deps(t)
	d.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := config.Agent{Policy: config.Policy{Failure: config.Failure{Webhook: "http://" + l.Addr().String() + "/T0K3N"}}}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(dispatch.ErrDrain)
	err = Notify(ctx, a, d, notice())
	if !errors.Is(err, dispatch.ErrDrain) || strings.Count(log.String(), "not told yet") != 1 || strings.Contains(err.Error(), "T0K3N") || strings.Contains(log.String(), "T0K3N") {
		t.Errorf("%v; log %s", err, log.String())
	}
}
