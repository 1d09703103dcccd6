package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/telling"
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
	ExitCode   *int   `json:"exit_code"` // null unless the command ran; -1 if a signal ended it
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
		State: string(r.State), Cause: r.Cause, Signal: r.Signal, Ran: string(r.Ran), Code: r.Code, Message: telling.Text(r.Message),
	}
	if r.Ran == dispatch.Yes {
		row.ExitCode = &r.ExitCode
	}
	var unwritten error // the file comes first: standard error may be a pipe that nobody reads
	if x.flags.result != "" {
		unwritten = writeResult(x.flags.result, row)
	}
	_, errOut := x.stdio()
	switch {
	case x.flags.quiet && r.Code == 0:
	case x.flags.out.format == "json":
		json.NewEncoder(errOut).Encode(row)
	case r.Message != "":
		fmt.Fprintf(errOut, "syncnode: %s\n", told(r.Message))
	}
	if unwritten != nil {
		fmt.Fprintf(errOut, "syncnode: --result: %s\n", told(unwritten.Error()))
	}
	if r.Code == 0 {
		return nil
	}
	return &exitError{code: r.Code}
}

// refuse tells of a mistake that was found before there was a run. What is known of the run by then is what was
// typed; the result file is written if its name is among that.
func refuse(cmd *cobra.Command, code int, message string) {
	typed := func(name string) string {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			return ""
		}
		if value := os.Getenv(envName(name)); value != "" && !f.Changed {
			return value // the mistake came before the variables were looked at
		}
		return f.Value.String()
	}
	row := resultRow{Agent: typed("agent"), Ran: string(dispatch.No), Code: code, Message: telling.Text(message)}
	if occurrence, err := ident.KeyOccurrence(typed("occurrence")); err == nil {
		row.Occurrence = occurrence
		if checkNames(row.Agent, typed("namespace")) == nil {
			row.Run = ident.RunID(typed("namespace"), row.Agent, occurrence)
		}
	}
	errOut := cmd.ErrOrStderr()
	if typed("output") == "json" {
		json.NewEncoder(errOut).Encode(row)
	} else {
		fmt.Fprintf(errOut, "syncnode: %s\n", told(message))
	}
	if name := typed("result"); name != "" && !strings.HasPrefix(message, "--result") {
		if err := writeResult(name, row); err != nil {
			fmt.Fprintf(errOut, "syncnode: --result: %s\n", told(err.Error()))
		}
	}
}

// checkResult refuses a result file that could not be written later.
func checkResult(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil {
		if info.IsDir() {
			return usagef("--result %s is a directory", name)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".syncnode-result-")
	if err != nil {
		return fmt.Errorf("--result: %w", err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// writeResult replaces the file at once: a reader sees the old one or the new one.
func writeResult(path string, row resultRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeTo(path, append(data, '\n'))
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

// writeTo writes to a pipe or a device, such as /dev/stderr. A pipe that nobody has open for reading is an error, and
// one that nobody reads from holds up the end of a run for readTime at most.
func writeTo(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_ = f.SetWriteDeadline(time.Now().Add(readTime)) // what has no deadline does not wait either
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

const readTime = 5 * time.Second
