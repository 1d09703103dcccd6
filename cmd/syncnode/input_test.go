package main

import (
	"encoding/json"
	"os"
	"syscall"
	"testing"
)

func TestTERMWhileTheInputIsAwaitedIsToldAndNothingRuns(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"-", "fifo"} {
		h := hosts(t, 1, []string{"http://127.0.0.1:1"})[0]
		read, write, err := os.Pipe()
		must(t, err)
		defer write.Close()
		must(t, syscall.Mkfifo(h.path("fifo"), 0o600))
		h.stdin = read
		p := h.start("exec", "--agent", "a", "--occurrence", "k", "--input", name, "--result", "r.json", "--", "touch", "ran")
		read.Close()
		if name == "fifo" {
			write, err = os.OpenFile(h.path("fifo"), os.O_WRONLY, 0) // once it is open for reading
			must(t, err)
			defer write.Close()
		}
		_, err = write.Write(make([]byte, 1<<20)) // more than a pipe holds: it is being read
		must(t, err)
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.want(128+15, "interrupted by signal 15", "the command was not run")
		h.notThere("ran")
		var r resultRow
		must(t, json.Unmarshal([]byte(h.read("r.json")), &r))
		if r.Code != 128+15 || r.Ran != "no" || r.Occurrence != "key:k" || r.ExitCode != nil {
			t.Errorf("--result with --input %s: %+v, want code 143 and not run", name, r)
		}
	}
}
