// Package fencesock is the socket over which a child of a run asks whether it may still act.
//
// # Guarantees
//
// A yes was given by whoever started the child, after it was asked for and for this very run. Every other thing that may
// happen is a no: no socket, no answer within [AnswerTime], an answer that makes no sense. Only the user that started the
// child can ask; when Close has returned nothing of the socket is left.
//
// Not promised: that a yes still holds when it is read. It is as old as its answer.
//
// # Wire
//
// Whoever connects sends nothing and reads one line of JSON: {"ok":true}, or {"ok":false,"reason":"…"}.
//
// # Concurrency
//
// A socket may be asked by several at once; Close may be called once.
package fencesock

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
)

// Env names the socket in the environment of a child.
const Env = "SYNCNODE_RUN_FENCE"

// AnswerTime is how long a child waits for an answer before it takes the silence as a no.
const AnswerTime = 2 * time.Second

// An answer is the one line that the socket gives to whoever connects.
type answer struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// A Socket answers the children of one run.
type Socket struct {
	dir      string
	listener net.Listener
	serving  sync.WaitGroup
}

// Listen makes the socket in a directory that only this user may enter. Each who connects is told what ask says; nil is
// yes. What is being asked when ctx ends is no.
func Listen(ctx context.Context, ask func(context.Context) error) (*Socket, error) {
	dir, err := makeDir()
	if err != nil {
		return nil, fmt.Errorf("fence socket: %w", err)
	}
	path := filepath.Join(dir, name)
	listener, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("fence socket: %w", err)
	}
	s := &Socket{dir: dir, listener: listener}
	s.serving.Go(func() { s.serve(ctx, ask) })
	return s, nil
}

const (
	name      = "fence.sock"
	maxSocket = 107 // what the kernel takes as a socket's path
)

// makeDir makes a directory that only this user may enter, with a name short enough for a socket in it.
func makeDir() (string, error) {
	dir, err := os.MkdirTemp("", "syncnode-run-")
	if err != nil || len(filepath.Join(dir, name)) <= maxSocket {
		return dir, err
	}
	os.Remove(dir)
	return os.MkdirTemp("/tmp", "syncnode-run-")
}

// Path is what a child finds in [Env].
func (s *Socket) Path() string { return s.listener.Addr().String() }

func (s *Socket) serve(ctx context.Context, ask func(context.Context) error) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, say: whoever asked takes silence as a no
			continue
		}
		s.serving.Go(func() {
			defer conn.Close()
			ctx, cancel := context.WithTimeout(ctx, AnswerTime)
			defer cancel()
			a := answer{OK: true}
			if err := ask(ctx); err != nil {
				a = answer{Reason: err.Error()}
			}
			conn.SetWriteDeadline(time.Now().Add(AnswerTime))
			json.NewEncoder(conn).Encode(a)
		})
	}
}

// Close ends the socket and waits for the answers that are on their way.
func (s *Socket) Close() {
	s.listener.Close()
	s.serving.Wait()
	os.RemoveAll(s.dir)
}

// Ask asks the socket at a path. Nil means yes; every error means no.
func Ask(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
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
		return fmt.Errorf("no answer within %s: %w", AnswerTime, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("the answer makes no sense: %w", err)
	}
	if !a.OK {
		return errors.New(a.Reason)
	}
	return nil
}
