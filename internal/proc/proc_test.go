package proc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/proc"
)

const childDir = "PROC_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if _, err := proc.Open(dir, "child"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test lets go or kills
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func needBoot(t *testing.T) string {
	t.Helper()
	boot := proc.BootID()
	if boot == "" {
		t.Skip("this system does not tell its boot id, so nothing is ever proved")
	}
	return boot
}

func TestAProcessIsProvedDeadOnceItIsKilledAndNotBefore(t *testing.T) {
	boot := needBoot(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := out.Read(buf); err != nil || string(buf) != "held" {
		t.Fatalf("child said %q, %v", buf, err)
	}
	if proc.Dead(dir, "child", boot) {
		t.Error("a living process was proved dead")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for range 2 {  // asking does not use the proof up
		if !proc.Dead(dir, "child", boot) {
			t.Error("a killed process was not proved dead")
		}
	}
	for name, dead := range map[string]bool{
		"another boot":      proc.Dead(dir, "child", "0f0f0f0f-0000-0000-0000-000000000000"),
		"no boot":           proc.Dead(dir, "child", ""),
		"another directory": proc.Dead(t.TempDir(), "child", boot),
		"another id":        proc.Dead(dir, "other", boot),
		"a hostile id":      proc.Dead(dir, "../proc/child", boot),
	} {
		if dead {
			t.Errorf("%s: proved", name)
		}
	}
}

func TestAProcessThatEndedInGoodOrderLeavesNoProof(t *testing.T) {
	boot := needBoot(t)
	dir := t.TempDir()
	l, err := proc.Open(dir, "p1")
	if err != nil {
		t.Fatal(err)
	}
	if proc.Dead(dir, "p1", boot) {
		t.Error("alive, and proved dead")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if proc.Dead(dir, "p1", boot) {
		t.Error("closed, and proved dead: the file should be gone")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "proc", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAnIDIsTakenOnce(t *testing.T) {
	dir := t.TempDir()
	l, err := proc.Open(dir, "p1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := proc.Open(dir, "p1"); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want that it exists", err)
	}
	if _, err := proc.Open(dir, "../p1"); !errors.Is(err, ident.ErrInvalid) {
		t.Errorf("hostile id: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "proc", ".new*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepRemovesWhatProvesNothingAnyMore(t *testing.T) {
	boot := needBoot(t)
	dir := t.TempDir()
	live, err := proc.Open(dir, "live")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	text, err := os.ReadFile(filepath.Join(dir, "proc", "live.lock"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"dead": string(text), "old": strings.Replace(string(text), boot, "earlier", 1), "odd": "what?",
	} {
		if err := os.WriteFile(filepath.Join(dir, "proc", name+".lock"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := proc.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "proc", "*"))
	if len(left) != 3 || proc.Dead(dir, "live", boot) || !proc.Dead(dir, "dead", boot) {
		t.Errorf("left: %v", left)
	}
	if err := proc.Sweep(t.TempDir()); err != nil {
		t.Errorf("nothing to sweep: %v", err)
	}
}
