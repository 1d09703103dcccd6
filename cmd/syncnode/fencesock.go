package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// envFence names the socket that a child asks whether it may still act.
const envFence = "SYNCNODE_RUN_FENCE"

// fenceAnswerTime is how long a child waits for an answer before it takes the silence as a no.
const fenceAnswerTime = 2 * time.Second

// A fenceAnswer is the one line that the socket gives to whoever connects.
type fenceAnswer struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// A fenceSocket answers the children of one run. It may be asked by several at once.
type fenceSocket struct {
	dir      string
	listener net.Listener
	serving  sync.WaitGroup
}

// listenFence makes the socket in a directory that only this user may enter.
func listenFence(ctx context.Context, ask func(context.Context) error) (*fenceSocket, error) {
	dir, err := fenceDir()
	if err != nil {
		return nil, fmt.Errorf("fence socket: %w", err)
	}
	path := filepath.Join(dir, fenceName)
	listener, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("fence socket: %w", err)
	}
	f := &fenceSocket{dir: dir, listener: listener}
	f.serving.Go(func() { f.serve(ctx, ask) })
	return f, nil
}

const (
	fenceName = "fence.sock"
	maxSocket = 107 // what the kernel takes as a socket's path
)

// fenceDir makes a directory that only this user may enter, with a name short enough for a socket in it.
func fenceDir() (string, error) {
	dir, err := os.MkdirTemp("", "syncnode-run-")
	if err != nil || len(filepath.Join(dir, fenceName)) <= maxSocket {
		return dir, err
	}
	os.Remove(dir)
	return os.MkdirTemp("/tmp", "syncnode-run-")
}

func (f *fenceSocket) path() string { return f.listener.Addr().String() }

func (f *fenceSocket) serve(ctx context.Context, ask func(context.Context) error) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, say: whoever asked takes silence as a no
			continue
		}
		f.serving.Go(func() {
			defer conn.Close()
			ctx, cancel := context.WithTimeout(ctx, fenceAnswerTime)
			defer cancel()
			answer := fenceAnswer{OK: true}
			if err := ask(ctx); err != nil {
				answer = fenceAnswer{Reason: err.Error()}
			}
			conn.SetWriteDeadline(time.Now().Add(fenceAnswerTime))
			json.NewEncoder(conn).Encode(answer)
		})
	}
}

func (f *fenceSocket) close() {
	f.listener.Close()
	f.serving.Wait()
	os.RemoveAll(f.dir)
}

func newFence() *cobra.Command {
	return &cobra.Command{
		Use:   "fence",
		Short: "ask, from inside a run, whether it may still act",
		Long: `fence is called by a command that syncnode runs, right before an effect. It exits with 0 if the run's
lease is still held at its epoch and its attempt is still open, with 111 on every no, also when nobody
answers within two seconds, and with 125 outside a run.

A yes is as old as its answer: hand SYNCNODE_RUN_EPOCH to the resource, and let it refuse an older one.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := os.Getenv(envFence)
			if path == "" {
				return fmt.Errorf("%s is not set: this is not inside a run of syncnode exec", envFence)
			}
			if err := askFence(cmd.Context(), path); err != nil {
				return &exitError{code: exitLost, err: fmt.Errorf("no: %w", err)}
			}
			return nil
		},
	}
}

func askFence(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, fenceAnswerTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("nobody answers for this run: %w", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no answer within %s: %w", fenceAnswerTime, err)
	}
	var answer fenceAnswer
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("the answer makes no sense: %w", err)
	}
	if !answer.OK {
		return errors.New(answer.Reason)
	}
	return nil
}
