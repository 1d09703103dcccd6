// Package config reads the file that says what a node runs: its agents, when, and by which rules.
//
// # Guarantees
//
// A file is taken whole or not at all, and all its mistakes are told at once, each with line and column. There is one
// way to write each thing: an unknown key, a key that is there twice, a value of another type, a number without its
// unit, a key without a value, an anchor, an alias, a tag, a second document are mistakes. A file that was read is
// printed as one that reads the same.
//
// A secret is never in the file: what holds one is the path of a file. Paths that are not absolute begin at the folder
// of the configuration, which [File.Path] tells.
//
// What is read is bounded by [MaxSize] and by depth; nothing in it is expanded.
//
// # Not promised
//
// That a command exists, a URL answers or a secret can be read: files are written on other hosts than those they are for.
//
// # Failure
//
// Errors of [Parse] match [ErrInvalid] and hold one [*Error] for each mistake, in the order of the file.
//
// # Concurrency
//
// All functions but [Load] and [Read] are pure. A [File] is not changed after it was read.
package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// MaxSize bounds a file, in bytes; several thousand agents fit into it.
const MaxSize = 1 << 20

// A File is what a node is to do.
type File struct {
	Drain       time.Duration // how long a stop waits for what runs
	CatchUpRate Rate
	Output      Output
	Defaults    Policy
	Agents      []Agent // by id
	Notes       []Note  // what is right and may be meant otherwise

	dir string // where its paths begin
}

// Path is where a path that is written in the file leads to.
func (f *File) Path(written string) string {
	if filepath.IsAbs(written) {
		return written
	}
	return filepath.Join(f.dir, written)
}

// A Rate is N in each period; N is 0 for no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// An Output says how much of what commands print is kept on the node's disk, in bytes.
type Output struct{ PerRun, Total int64 }

// An Agent is one of the things to run.
type Agent struct {
	ID       string
	Schedule *schedule.Schedule // nil: by API and trigger only
	Command  []string
	HTTP     *HTTP
	Policy
}

// An HTTP is a request that is a run.
type HTTP struct {
	Method, URL string
	Headers     map[string]string
	HeaderFiles map[string]string // the header's value is the content of the file
}

// A Policy is by which rules an agent runs. Durations of 0 mean none.
type Policy struct {
	Timeout  time.Duration
	Overlap  due.Overlap
	CatchUp  due.CatchUp
	Window   time.Duration
	Limit    int
	OnDoubt  dispatch.OnDoubt
	Probe    []string
	OnLost   dispatch.OnLost
	IfFailed dispatch.IfFailed
	Retry    Retry
	Failure  Failure
	TTL      time.Duration
	Grace    time.Duration
}

// Due is the part of the policy that decides over occurrences.
func (p Policy) Due() due.Policy {
	return due.Policy{CatchUp: p.CatchUp, Window: p.Window, Limit: p.Limit, Overlap: p.Overlap}
}

// A Retry says how often a failed attempt is repeated.
type Retry struct {
	Count      int
	Backoff    time.Duration // doubled after each
	BackoffMax time.Duration
	ExitCodes  []int // only after these; all if there are none
}

// A Failure says whom to tell of a run that failed for good: at most one of the two.
type Failure struct {
	Command    []string
	Webhook    string
	SecretFile string // its content signs the webhook's body
}

// A Note is what people often mean otherwise than it is written.
type Note struct {
	Line, Column int
	Key          string
	Text         string
}

// Defaults is what holds where a file says nothing.
func Defaults() File {
	return File{
		Drain:       60 * time.Second,
		CatchUpRate: Rate{N: 60, Per: time.Minute},
		Output:      Output{PerRun: 1 << 20, Total: 512 << 20},
		Defaults: Policy{
			Overlap:  due.OverlapSkip,
			CatchUp:  due.CatchUpLast,
			Window:   24 * time.Hour,
			Limit:    5,
			OnDoubt:  dispatch.DoubtHold,
			OnLost:   dispatch.LostStop,
			IfFailed: dispatch.FailedKeep,
			Retry:    Retry{Backoff: 10 * time.Second, BackoffMax: 10 * time.Minute},
			TTL:      coord.DefaultTTL,
			Grace:    dispatch.DefaultGrace,
		},
	}
}

// Agent gives the agent of an id.
func (f *File) Agent(id string) (Agent, bool) {
	i, found := slices.BinarySearchFunc(f.Agents, id, func(a Agent, id string) int {
		switch {
		case a.ID < id:
			return -1
		case a.ID > id:
			return 1
		}
		return 0
	})
	if !found {
		return Agent{}, false
	}
	return f.Agents[i], true
}

// Load reads the file at a path.
func Load(path string) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer in.Close()
	return Read(path, in)
}

// Read reads a file from a stream, at most as much as a file may have; name is what errors call it.
func Read(name string, in io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(in, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", name, err)
	}
	return Parse(name, data)
}

// ErrInvalid means that the file is not used: it has mistakes.
var ErrInvalid = errors.New("config: not valid")
