package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const unitsDir = "../../deploy/systemd"

// units are the texts of the unit files by name.
func units(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(unitsDir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if ext := filepath.Ext(f); ext == ".service" || ext == ".timer" {
			all[filepath.Base(f)] = string(text)
		}
	}
	if len(all) < 3 {
		t.Fatalf("%d units found: they were lost", len(all))
	}
	return all
}

// unitValues are the values of a key, in the order of the file.
func unitValues(unit, key string) (values []string) {
	for line := range strings.Lines(unit) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && name == key {
			values = append(values, value)
		}
	}
	return values
}

// unitWords splits a command line as systemd does, as far as the units need it: blanks, and single quotes.
func unitWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func TestTheUnitsCallVerbsWithFlagsThatExist(t *testing.T) {
	called := 0
	for name, unit := range units(t) {
		for _, line := range unitValues(unit, "ExecStart") {
			called++
			words := unitWords(line)
			if words[0] != "/usr/local/bin/syncnode" {
				t.Errorf("%s: %s", name, line)
				continue
			}
			cmd, args, err := newRoot().Find(words[1:])
			if err != nil || !cmd.HasParent() {
				t.Errorf("%s: %s: %v", name, line, err)
				continue
			}
			if err := cmd.ParseFlags(args); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
			if flags := cmd.Flags(); flags.Changed("data-dir") && flags.Lookup("data-dir").Value.String() != "%S/"+unitValues(unit, "StateDirectory")[0] {
				t.Errorf("%s: --data-dir is not the unit's state directory", name)
			}
		}
	}
	if called < 2 {
		t.Errorf("%d calls found", called)
	}
}

// A stop must leave the program the time that it promises to need.
func TestTheUnitsStopInGoodOrder(t *testing.T) {
	for name, unit := range units(t) {
		if filepath.Ext(name) != ".service" {
			continue
		}
		for key, want := range map[string]string{"KillMode": "mixed", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "UMask": "0077"} {
			if got := unitValues(unit, key); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s=%v, want %s", name, key, got, want)
			}
		}
		if len(unitValues(unit, "TimeoutStopSec")) != 1 || len(unitValues(unit, "ProcSubset")) != 0 {
			t.Errorf("%s: TimeoutStopSec is missing, or ProcSubset hides the id of the boot", name)
		}
		if env := unitValues(unit, "EnvironmentFile"); !slices.Equal(env, []string{"/etc/syncnode/syncnode.env"}) {
			t.Errorf("%s: EnvironmentFile=%v: without the fleet's etcd it must not start", name, env)
		}
	}
}

// The node's configuration is read again by HUP, to the node alone.
func TestTheUnitOfANodeReadsItsConfigurationAgain(t *testing.T) {
	unit := units(t)["syncnode.service"]
	if got := unitValues(unit, "ExecReload"); !slices.Equal(got, []string{"/bin/kill -HUP $MAINPID"}) {
		t.Errorf("ExecReload=%v", got)
	}
	env, err := os.ReadFile(filepath.Join(unitsDir, "syncnode.env"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(env), "\n#SYNCNODE_CONFIG=/etc/syncnode/") {
		t.Error("syncnode.env does not show where a configuration goes")
	}
}

func TestATimerFiresWhenItsUnitsScheduleSays(t *testing.T) {
	all, timers := units(t), 0
	for name, timer := range all {
		base, ok := strings.CutSuffix(name, ".timer")
		if !ok {
			continue
		}
		timers++
		cmd, args, err := newRoot().Find(unitWords(unitValues(all[base+".service"], "ExecStart")[0])[1:])
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		var minute, hour int
		if _, err := fmt.Sscanf(cmd.Flag("cron").Value.String(), "%d %d * * *", &minute, &hour); err != nil {
			t.Fatalf("%s: this test reads daily schedules only: %v", base, err)
		}
		want := fmt.Sprintf("*-*-* %02d:%02d:00 %s", hour, minute, cmd.Flag("tz").Value)
		if got := unitValues(timer, "OnCalendar"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: OnCalendar=%v, want %s", name, got, want)
		}
	}
	if timers == 0 {
		t.Error("no timer found")
	}
}

func TestTheUnitsEnvironmentNamesFlags(t *testing.T) {
	known, root := map[string]bool{}, newRoot()
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	}
	text, err := os.ReadFile(filepath.Join(unitsDir, "syncnode.env"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		name, _, ok := strings.Cut(strings.TrimPrefix(s.Text(), "#"), "=")
		if !ok || strings.Contains(name, " ") {
			continue
		}
		found++
		if !known[name] {
			t.Errorf("%s is no flag's variable", name)
		}
	}
	if found < 4 {
		t.Errorf("%d variables found", found)
	}
}

// TestSystemdReadsTheUnits asks systemd itself: no key that it does not know, and little that a unit could do to its host.
func TestSystemdReadsTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed here; .ci/run installs it: ", err)
	}
	self, err := os.Executable() // systemd looks whether the program is there
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	for name, unit := range units(t) {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/syncnode", self)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	ask := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := ask(append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...); out != "" {
		t.Errorf("systemd says:\n%s", out)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".service" {
			ask("security", "--offline=true", "--no-pager", "--threshold=20", file)
		}
	}
}
