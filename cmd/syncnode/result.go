package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/dispatch"
)

// A resultRow is what --result writes, also when nothing ran.
type resultRow struct {
	Run        string `json:"run_id"`
	Agent      string `json:"agent"`
	Occurrence string `json:"occurrence"`
	Attempt    string `json:"attempt,omitempty"`
	Epoch      uint64 `json:"epoch,omitempty"`
	State      string `json:"state,omitempty"`
	Cause      string `json:"cause,omitempty"`
	ExitCode   int    `json:"exit_code"`
	Signal     int    `json:"signal,omitempty"`
	Ran        string `json:"ran"`
	// Code is the exit code of syncnode itself: it tells a command's own 110 to 127 apart from ours.
	Code    int    `json:"code"`
	Message string `json:"message,omitempty"`
}

// say is a word of the wrapper, on standard error.
func (x *execution) say(format string, args ...any) {
	if !x.flags.quiet && x.flags.out.format == "text" {
		_, errOut := x.stdio()
		fmt.Fprintf(errOut, "syncnode: "+format+"\n", args...)
	}
}

// tell reports what became of the run and turns it into the exit code.
func (x *execution) tell(job dispatch.Job, r dispatch.Result) error {
	row := resultRow{
		Run: job.Run, Agent: job.Agent, Occurrence: job.Occurrence, Attempt: r.Attempt, Epoch: uint64(r.Epoch),
		State: string(r.State), Cause: r.Cause, ExitCode: r.ExitCode, Signal: r.Signal, Ran: string(r.Ran),
		Code: r.Code, Message: r.Message,
	}
	_, errOut := x.stdio()
	switch {
	case x.flags.quiet && r.Code == 0:
	case x.flags.out.format == "json":
		json.NewEncoder(errOut).Encode(row)
	case r.Message != "":
		fmt.Fprintf(errOut, "syncnode: %s\n", r.Message)
	}
	if x.flags.result != "" {
		if err := writeResult(x.flags.result, row); err != nil {
			fmt.Fprintf(errOut, "syncnode: --result: %v\n", err)
		}
	}
	if r.Code == 0 {
		return nil
	}
	return &exitError{code: r.Code}
}

// writeResult replaces the file at once: a reader sees the old one or the new one.
func writeResult(path string, row resultRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, append(data, '\n'), 0o600) // a pipe or a device, such as /dev/stderr
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".syncnode-result-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
