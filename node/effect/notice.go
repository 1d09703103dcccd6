package effect

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/child"
	"github.com/syncnode/syncnode/internal/command"
	"github.com/syncnode/syncnode/node/config"
)

const (
	// NoticeTime bounds a command that is told of a failure, and each try of a webhook a third of it.
	NoticeTime = 30 * time.Second
	// noticeTries of a webhook, the pause before the next doubled each time.
	noticeTries = 3
	noticePause = time.Second
)

// A Notice says how a run ended. Its JSON is what a webhook gets.
type Notice struct {
	Run        string `json:"run_id"`
	Agent      string `json:"agent"`
	Occurrence string `json:"occurrence"`
	Attempt    string `json:"attempt"`
	Epoch      uint64 `json:"epoch"`
	State      string `json:"state"`
	Cause      string `json:"cause"`
	ExitCode   int    `json:"exit_code"` // -1 if a signal ended it, or it is not known
	Signal     int    `json:"signal,omitempty"`
	Device     string `json:"device"`
	Message    string `json:"message"`
}

// NoticeOf is the notice of a run that ended on a device.
func NoticeOf(j dispatch.Job, r dispatch.Result, device string) Notice {
	n := Notice{
		Run: j.Run, Agent: j.Agent, Occurrence: j.Occurrence, Attempt: r.Attempt, Epoch: uint64(r.Epoch), State: string(r.State),
		Cause: r.Cause, ExitCode: r.ExitCode, Signal: r.Signal, Device: device, Message: r.Message,
	}
	if r.Ran != dispatch.Yes {
		n.ExitCode = -1
	}
	return n
}

// Notify tells whom the agent's on_failure names, if it names anybody. It is no effect of the run: nothing records it, it is
// lost when the process ends, and a webhook whose answer was lost gets it again. A webhook is tried three times: what it
// answers with 2xx it has, and what it refuses with another status than 408, 429 and 5xx is not sent again. The error says that it
// was told in vain, as far as is known.
//
// The webhook's body is signed where there is a secret: Syncnode-Signature is "t=SECONDS,v1=HEX", HEX the HMAC-SHA256 of
// "SECONDS.BODY" with the content of the secret's file. Its Idempotency-Key is one for all tries.
func Notify(ctx context.Context, a config.Agent, d Deps, n Notice) error {
	var err error
	switch f := a.Failure; {
	case len(f.Command) > 0:
		err = runNotice(ctx, f.Command, d, n)
	case f.Webhook != "":
		err = postNotice(ctx, f, d, n)
	}
	if err != nil {
		return fmt.Errorf("tell of the failure of run %s: %w", n.Run, err)
	}
	return nil
}

// runNotice runs the command. It has no fence to ask: the run is over.
func runNotice(ctx context.Context, argv []string, d Deps, n Notice) error {
	out := d.writer(n.Run, n.Attempt+"-failure")
	defer out.Close()
	s := spec(argv, d, out)
	s.Timeout = NoticeTime
	p := dispatch.Permit{Run: n.Run, Agent: n.Agent, Occurrence: n.Occurrence, Attempt: n.Attempt}
	add := command.Variables(p)
	add["SYNCNODE_RUN_EPOCH"] = strconv.FormatUint(n.Epoch, 10)
	add["SYNCNODE_RUN_STATE"] = n.State
	add["SYNCNODE_RUN_CAUSE"] = n.Cause
	add["SYNCNODE_RUN_EXIT_CODE"] = strconv.Itoa(n.ExitCode)
	s.Env = child.Environ(d.environ(), child.Private, add)
	process, err := child.Start(s)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { process.Stop(context.Cause(ctx)) })
	defer stop()
	switch r := process.Wait(); {
	case r.Err != nil:
		return r.Err
	case r.Stopped != nil:
		return fmt.Errorf("the command was stopped: %w", r.Stopped)
	case !r.Success():
		return fmt.Errorf("the command ended with %d", r.ShellCode())
	}
	return nil
}

func postNotice(ctx context.Context, f config.Failure, d Deps, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	pause := noticePause
	for try := 1; ; try++ {
		again, err := postOnce(ctx, f, d, n, body)
		if err == nil || !again || try == noticeTries {
			return err
		}
		d.logger().Debug("webhook not told yet", "run", n.Run, "agent", n.Agent, "try", try, "err", err)
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// postOnce sends the notice, and says after an error whether it may help to send it again.
func postOnce(ctx context.Context, f config.Failure, d Deps, n Notice, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, NoticeTime/noticeTries, errors.New("no answer in time"))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Webhook, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the URL of the webhook cannot be used") // its error has the URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "syncnode")
	req.Header.Set("Idempotency-Key", n.Run+"/"+n.Attempt)
	if f.SecretFile != "" {
		secret, err := readSecret(d.path(f.SecretFile))
		if err != nil {
			return false, fmt.Errorf("the webhook's secret: %w", err)
		}
		req.Header.Set("Syncnode-Signature", sign(secret, time.Now(), body))
	}
	c, err := connect(ctx, req.URL, roots)
	if err != nil {
		return true, fmt.Errorf("webhook of %s: %w", req.URL.Host, err)
	}
	defer c.Close()
	answer, err := c.http.RoundTrip(req)
	if err != nil {
		return true, fmt.Errorf("webhook of %s: %w", req.URL.Host, whyOf(ctx, plainly(err)))
	}
	defer answer.Body.Close()
	switch status := answer.StatusCode; {
	case status/100 == 2:
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, MaxHeader)) // a server may be unhappy if nobody reads it
		return false, nil
	default:
		again = status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
		return again, fmt.Errorf("webhook of %s answered %s", req.URL.Host, statusText(answer))
	}
}

// sign is the signature of a body at a time.
func sign(secret []byte, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
