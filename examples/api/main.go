// Command api is a run through the API of a node, with the standard library alone:
//
//	go run ./examples/api AGENT OCCURRENCE
//
// Replace work by what must not happen twice. SOCKET is the node's socket.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// A run is what the fence and each heartbeat say.
type run struct {
	ID        string `json:"run_id"`
	Attempt   string `json:"attempt"`
	Epoch     uint64 `json:"epoch"`
	StopAfter int64  `json:"stop_after_ms"`
	Heartbeat int64  `json:"heartbeat_ms"`
	Stop      bool   `json:"stop"`
}

// work is the effect: hand r.ID on as the idempotency key and r.Epoch as the fencing token. It ends when ctx does.
func work(ctx context.Context, r run) (string, error) {
	fmt.Println("working on", r.ID, "at epoch", r.Epoch)
	return "42 sent", ctx.Err()
}

// A problem is every answer that is no success.
type problem struct {
	Type, Detail, Executed string
	Status                 int
}

func (p *problem) Error() string {
	return fmt.Sprintf("%s: %s (executed: %s)", p.Type, p.Detail, p.Executed)
}

var node = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket())
	},
}}

func socket() string {
	if s := os.Getenv("SOCKET"); s != "" {
		return s
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "syncnode", "node.sock")
}

// ask sends one request. An error that is no *problem is no answer: the same request may be sent again.
func ask(path string, in, out any) (replayed bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	resp, err := node.Post("http://node"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		p := &problem{}
		if err := json.NewDecoder(resp.Body).Decode(p); err != nil {
			return false, err
		}
		return false, p
	}
	return resp.Header.Get("Syncnode-Replayed") != "", json.NewDecoder(resp.Body).Decode(out)
}

// insist sends the very same request until it is answered.
func insist(path string, in, out any, patience time.Duration) (replayed bool, err error) {
	for until := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		replayed, err = ask(path, in, out)
		p, answered := errors.AsType[*problem](err)
		passing := answered && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests)
		if err == nil || answered && !passing || time.Now().After(until) {
			return replayed, err
		}
	}
}

// heartbeats says that we are there, and calls stop when we have to: the node says so, or is not heard of in time.
func heartbeats(ctx context.Context, stop context.CancelFunc, r run, sent time.Time) {
	until := sent.Add(time.Duration(r.StopAfter) * time.Millisecond)
	for {
		pause := min(time.Duration(r.Heartbeat)*time.Millisecond, time.Until(until))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		var now run
		_, err := ask("/v1/runs/"+r.ID+"/heartbeat", map[string]any{"attempt": r.Attempt}, &now)
		p, answered := errors.AsType[*problem](err)
		switch {
		case err == nil && !now.Stop:
			until = sent.Add(time.Duration(now.StopAfter) * time.Millisecond)
		case err == nil, answered && p.Status == http.StatusPreconditionFailed, !time.Now().Before(until):
			stop()
			return
		}
	}
}

func do(agent, occurrence string) error {
	var c struct {
		ID     string `json:"run_id"`
		Claim  string `json:"claim"`
		Result string `json:"result"`
	}
	done, err := insist("/v1/runs", map[string]any{"agent": agent, "occurrence": occurrence, "request": rand.Text()}, &c, 10*time.Second)
	if err != nil {
		return err
	}
	if done {
		fmt.Println("done before:", c.Result)
		return nil
	}
	var r run
	sent := time.Now()
	if _, err := insist("/v1/runs/"+c.ID+"/fence", map[string]any{"claim": c.Claim, "request": rand.Text()}, &r, 10*time.Second); err != nil {
		return err // only an answer without an error permits to act
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	beating, end := context.WithCancel(context.Background()) // until the end is told
	defer end()
	go heartbeats(beating, stop, r, sent)

	result, failed := work(ctx, r)
	verb, body := "/commit", map[string]any{"attempt": r.Attempt, "agent": agent, "result": result}
	if failed != nil {
		verb, body = "/fail", map[string]any{"attempt": r.Attempt, "agent": agent, "result": failed.Error()}
	}
	_, err = insist("/v1/runs/"+c.ID+verb, body, &struct{}{}, time.Minute)
	return errors.Join(failed, err)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: api AGENT OCCURRENCE")
		os.Exit(2)
	}
	if err := do(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
