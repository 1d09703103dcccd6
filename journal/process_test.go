package journal_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
)

const childDir, childOps = "JOURNAL_TEST_DIR", "JOURNAL_TEST_OPS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child appends ops one by one and tells each seq once it was answered; without a number it goes on until it is killed.
func child(dir string) int {
	n, err := strconv.Atoi(os.Getenv(childOps))
	if err != nil {
		n = 1 << 30
	}
	cfg := config(dir)
	cfg.SegmentBytes = 4000
	cfg.Now = time.Now
	j, err := journal.Open(context.Background(), cfg)
	for i := 0; i < n && err == nil; i++ {
		ops, appendErr := j.Append(context.Background(), draft(i))
		if err = appendErr; err == nil {
			fmt.Printf("%d %s\n", ops[0].Seq, ops[0].ID)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startChild(t *testing.T, dir, ops string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childOps+"="+ops)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func TestProcessesSharingADirectoryGiveEachSeqOnceAndLeaveNoHole(t *testing.T) {
	dir := t.TempDir()
	const processes, each = 3, 40
	var cmds []*exec.Cmd
	var outs []io.Reader
	for range processes {
		cmd, out := startChild(t, dir, strconv.Itoa(each))
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	said := map[string]bool{}
	for i, cmd := range cmds {
		text, err := io.ReadAll(outs[i])
		if err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("child: %v", err)
		}
		for line := range strings.Lines(string(text)) {
			said[strings.TrimSpace(line)] = true
		}
	}
	ops := mustOwn(t, open(t, config(dir)))
	if len(ops) != processes*each || len(said) != len(ops) {
		t.Fatalf("%d ops, %d told, want %d", len(ops), len(said), processes*each)
	}
	for _, op := range ops {
		if !said[fmt.Sprintf("%d %s", op.Seq, op.ID)] {
			t.Errorf("op %d was told otherwise", op.Seq)
		}
	}
}

func TestKillingTheWriterLosesNothingThatItTold(t *testing.T) {
	dir := t.TempDir()
	told := map[string]bool{}
	for round := range 8 {
		cmd, out := startChild(t, dir, "")
		lines := bufio.NewScanner(out)
		for i := 0; i < 5+3*round && lines.Scan(); i++ {
			told[lines.Text()] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it told before it died
			if strings.Count(lines.Text(), "op-") == 1 && len(lines.Text()) > 67 {
				told[lines.Text()] = true
			}
		}
		_ = cmd.Wait() // killed
		for i, op := range mustOwn(t, open(t, config(dir))) {
			if op.Seq != uint64(i) {
				t.Fatalf("op %d has seq %d", i, op.Seq)
			}
			delete(told, fmt.Sprintf("%d %s", op.Seq, op.ID))
		}
		if len(told) > 0 {
			t.Fatalf("told, but not there: %v", told)
		}
	}
}
