package session_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
)

// A step is one thing that happens to a fleet. It can be taken whatever came before: a script stays one when steps are cut out.
type step struct {
	do   string
	who  uint64 // which device, modulo how many there are
	seed uint64 // of all that is random in it
}

// A script is a fleet and what happens to it, the same whenever it is played.
type script struct {
	fleet   uint64 // seed of how many devices and relays there are
	folders bool   // the relays are in folders
	steps   []step
}

// inFolders is before the seed of a fleet whose relays are in folders.
const inFolders = "dir:"

func (s script) String() string {
	var b strings.Builder
	if s.folders {
		b.WriteString(inFolders)
	}
	fmt.Fprint(&b, s.fleet)
	for _, st := range s.steps {
		fmt.Fprintf(&b, " %s/%d/%d", st.do, st.who, st.seed)
	}
	return b.String()
}

// parseScript reads what String wrote, or a seed alone, which stands for a script of so many steps.
func parseScript(text string, steps int) (script, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return script{}, fmt.Errorf("a script begins with the seed of its fleet")
	}
	number, folders := strings.CutPrefix(words[0], inFolders)
	fleet, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return script{}, err
	}
	if len(words) == 1 {
		return written(fleet, folders, steps), nil
	}
	s := script{fleet: fleet, folders: folders}
	for _, w := range words[1:] {
		part := strings.Split(w, "/")
		if len(part) != 3 || deeds[part[0]].run == nil {
			return script{}, fmt.Errorf("%q is no step", w)
		}
		who, err1 := strconv.ParseUint(part[1], 10, 64)
		seed, err2 := strconv.ParseUint(part[2], 10, 64)
		if err1 != nil || err2 != nil {
			return script{}, fmt.Errorf("%q is no step", w)
		}
		s.steps = append(s.steps, step{part[0], who, seed})
	}
	return s, nil
}

// written is the script of a seed.
func written(seed uint64, folders bool, n int) script {
	rnd := newRand(seed)
	var often []string
	for _, name := range deedNames {
		for range deeds[name].weight {
			often = append(often, name)
		}
	}
	s := script{fleet: seed, folders: folders}
	for range n {
		s.steps = append(s.steps, step{often[rnd.IntN(len(often))], rnd.Uint64N(60), rnd.Uint64N(10_000)})
	}
	return s
}

// A trial plays a script. What fails in it unwinds to play, which may want to play another one.
type trial struct {
	testing.TB
	log []string
}

type failure string

func (t *trial) Helper()                   {}
func (t *trial) Error(args ...any)         { panic(failure(fmt.Sprintln(args...))) }
func (t *trial) Errorf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }
func (t *trial) Fatal(args ...any)         { panic(failure(fmt.Sprintln(args...))) }
func (t *trial) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }
func (t *trial) note(f string, a ...any)   { t.log = append(t.log, fmt.Sprintf(f, a...)) }

// play plays a script on a fleet of its own and says what went wrong, and how it came to it.
func play(t *testing.T, s script) (trouble string, log []string) {
	tr := &trial{TB: t}
	defer func() {
		got := recover()
		log = tr.log
		if f, ok := got.(failure); ok {
			trouble = string(f)
		} else if got != nil {
			trouble = fmt.Sprintf("panic: %v\n%s", got, debug.Stack())
		}
	}()
	w := newWorld(tr, s.fleet, s.folders)
	for i, st := range s.steps {
		tr.note("%d: %s/%d/%d", i, st.do, st.who, st.seed)
		w.take(st)
	}
	tr.note("healing")
	w.heal()
	return "", nil
}

// shrink cuts steps out as long as something still goes wrong, for a while.
func shrink(t *testing.T, s script, deadline time.Time) script {
	for size := max(len(s.steps)/2, 1); size > 0; size /= 2 {
		for at := 0; at+size <= len(s.steps) && time.Now().Before(deadline); {
			less := script{s.fleet, s.folders, slices.Concat(s.steps[:at], s.steps[at+size:])}
			if trouble, _ := play(t, less); trouble != "" {
				s = less
			} else {
				at += size
			}
		}
	}
	return s
}

// try plays a script, and if something goes wrong says how to see it again.
func try(t *testing.T, s script) {
	t.Helper()
	trouble, _ := play(t, s)
	if trouble == "" {
		return
	}
	s = shrink(t, s, time.Now().Add(time.Minute))
	trouble, log := play(t, s)
	t.Errorf("seed %d: %s\nhow it came to it:\n%s\nto repeat it:\nFLEET='%s' go test -count=1 -run '^%s$' ./session\nif it was a bug, add the script to session/testdata/fleet.txt",
		s.fleet, trouble, strings.Join(log, "\n"), s, topName(t))
}

func topName(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number of anything", name, text)
	}
	return n
}

// folderEvery is how many seeds there are for one fleet whose relays are in folders.
const folderEvery = 5

// Every script ends with a fleet that has healed: see world.heal for what that means. FLEET is a seed or a script, FLEET_RUNS a number of
// new seeds in place of the usual few, FLEET_STEPS the length of their scripts.
func TestAFleetHealsFromAnything(t *testing.T) {
	steps := number(t, "FLEET_STEPS", 120)
	if text := os.Getenv("FLEET"); text != "" {
		s, err := parseScript(text, steps)
		if err != nil {
			t.Fatal(err)
		}
		try(t, s)
		return
	}
	first, runs := uint64(1), thorough.Of(60, 15)
	if os.Getenv("FLEET_RUNS") != "" {
		first, runs = rand.Uint64N(1<<40), number(t, "FLEET_RUNS", runs)
		t.Logf("seeds from %d on", first)
	}
	seed := first
	for ; seed < first+uint64(runs) && !t.Failed(); seed++ {
		try(t, written(seed, seed%folderEvery == 0, steps))
	}
	t.Logf("%d fleets of %d steps", seed-first, steps)
}

// What once went wrong does not do so again.
func TestTheScriptsThatFoundABugPass(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "fleet.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		s, err := parseScript(text, 120)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		n++
		t.Run(fmt.Sprint(n), func(t *testing.T) { try(t, s) })
	}
	if n == 0 {
		t.Error("no scripts")
	}
}
