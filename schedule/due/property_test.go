package due_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// A world holds what survives: the ledger's begun occurrences and the log's records. Its agent dies and comes again at
// any point, also between a record, the begin and hearing of it.
type world struct {
	t      *rapid.T
	s      *schedule.Schedule
	policy due.Policy
	rate   *due.Rate
	agent  *due.Agent
	now    due.Reading
	start  time.Time
	seen   time.Time // the greatest reading
	state  due.State
	begun  []time.Time
	missed []due.Missed
	silent bool // the ledger does not answer
}

func (w *world) through() time.Time {
	at := w.start
	for _, b := range w.begun {
		at = latest(at, b)
	}
	for _, m := range w.missed {
		at = latest(at, m.Last)
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) restart() { w.agent = due.New(w.s, w.policy, w.rate, w.through()) }

// record writes what an agent hands out. It comes in the order of time, after everything on record.
func (w *world) record(gaps []due.Missed) {
	for _, m := range gaps {
		if !m.First.After(w.through()) || m.Last.Before(m.First) {
			w.t.Fatalf("gap %+v after %s is on record", m, w.through())
		}
		w.missed = append(w.missed, m)
	}
}

// step lets the agent look once, and a process do with its answer what it may do: all of it, or die half-way.
func (w *world) step(dies bool) {
	w.seen = latest(w.seen, w.now.Wall)
	d := w.agent.Step(w.now, w.state)
	if d.Wait <= 0 || d.Wait > due.MaxWait {
		w.t.Fatalf("wait %s", d.Wait)
	}
	w.record(d.Missed)
	if !d.Begin {
		return
	}
	switch {
	case d.Due.After(w.now.Wall):
		w.t.Fatalf("%s is offered at %s", d.Due, w.now.Wall)
	case w.state != due.State{}:
		w.t.Fatalf("%s is offered to an agent that is %+v", d.Due, w.state)
	case slices.ContainsFunc(w.begun, d.Due.Equal):
		w.t.Fatalf("%s is offered twice", d.Due)
	}
	if w.silent {
		return
	}
	die := 3
	if dies {
		die = rapid.IntRange(0, 3).Draw(w.t, "dies at")
	}
	if die == 0 {
		w.restart()
		return
	}
	w.record(w.agent.Before(w.now, d.Due))
	if die == 1 {
		w.restart()
		return
	}
	w.begun = append(w.begun, d.Due)
	if die == 2 {
		w.restart()
		return
	}
	w.record(w.agent.Begun(d.Due))
	w.state.Running = rapid.Bool().Draw(w.t, "goes on")
}

// settle lets everything end that goes on.
func (w *world) settle() {
	for range 10_000 {
		w.state = due.State{}
		next, ok := w.agent.Next()
		if !ok || next.After(w.seen) {
			w.record(w.agent.Leave())
			return
		}
		w.now.Wall = latest(w.now.Wall, w.seen)
		w.now.Boot += time.Minute
		w.step(false)
	}
	w.t.Fatal("the agent never comes to rest")
}

// check goes through all occurrences by the schedule itself.
func (w *world) check() {
	for i := 1; i < len(w.begun); i++ {
		if !w.begun[i].After(w.begun[i-1]) {
			w.t.Fatalf("%s was begun after %s", w.begun[i], w.begun[i-1])
		}
	}
	counts := make([]int, len(w.missed))
	for at := range w.s.After(w.start) {
		if at.After(latest(w.seen, w.through())) {
			break
		}
		n := 0
		if slices.ContainsFunc(w.begun, at.Equal) {
			n++
		}
		for i, m := range w.missed {
			if !at.Before(m.First) && !at.After(m.Last) {
				counts[i]++
				n++
			}
		}
		if n != 1 {
			w.t.Fatalf("%s ended %d times\nbegun: %v\nmissed: %+v", at, n, w.begun, w.missed)
		}
	}
	for i, m := range w.missed {
		if m.Count != counts[i] || m.AtLeast || !slices.Contains(due.Reasons(), m.Reason) {
			w.t.Fatalf("%+v holds %d occurrences", m, counts[i])
		}
	}
}

func TestEveryOccurrenceEndsOnceAsBegunOrMissedWhateverTheClocksAndProcessesDo(t *testing.T) {
	var schedules []*schedule.Schedule
	for _, spec := range []string{"@every 10s", "* * * * *", "*/5 * * * *", "30 2 * * *", "0 */3 * * *"} {
		for _, zone := range []string{"UTC", "Europe/Berlin"} {
			s, err := schedule.New(spec, zone)
			if err != nil {
				t.Fatal(err)
			}
			schedules = append(schedules, s)
		}
	}
	begun, missed := 0, map[due.Reason]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, s: rapid.SampledFrom(schedules).Draw(t, "schedule")}
		w.policy = due.Policy{
			CatchUp: rapid.SampledFrom([]due.CatchUp{due.CatchUpNone, due.CatchUpLast, due.CatchUpAll}).Draw(t, "catch-up"),
			Window:  time.Duration(rapid.IntRange(0, 7200).Draw(t, "window")) * time.Second,
			Limit:   rapid.IntRange(0, 4).Draw(t, "limit"),
			Overlap: rapid.SampledFrom([]due.Overlap{due.OverlapSkip, due.OverlapQueue}).Draw(t, "overlap"),
		}
		if rapid.Bool().Draw(t, "rated") {
			w.rate = due.NewRate(rapid.IntRange(1, 6).Draw(t, "rate"), time.Minute)
		}
		// The night in which Berlin's clock goes back, or one like any other.
		w.start = instant(rapid.SampledFrom([]string{"2023-10-28T23:00:00Z", "2026-01-01T00:00:00Z"}).Draw(t, "start"))
		w.now, w.seen = due.Reading{Wall: w.start, Boot: time.Hour}, w.start
		w.restart()
		forward := func(most int) {
			d := time.Duration(rapid.IntRange(0, most).Draw(t, "ms")) * time.Millisecond
			w.now.Wall, w.now.Boot = w.now.Wall.Add(d), w.now.Boot+d
		}
		actions := map[string]func(){
			"a while":   func() { forward(90_000); w.step(false) },
			"on time":   func() { w.onTime(0); w.step(false) },
			"too early": func() { w.onTime(-160 * time.Millisecond); w.step(false) },
			"suspend":   func() { forward(4 * 3600_000); w.step(false) },
			"put forward": func() {
				w.now.Wall = w.now.Wall.Add(time.Duration(rapid.IntRange(0, 2*3600).Draw(t, "s")) * time.Second)
				w.step(false)
			},
			"put back": func() {
				w.now.Wall = w.now.Wall.Add(-time.Duration(rapid.IntRange(0, 2*3600).Draw(t, "s")) * time.Second)
				w.step(false)
			},
			"no ledger": func() {
				w.silent = true
				w.onTime(0)
				w.step(false)
				forward(90_000)
				w.step(false)
				w.silent = false
			},
			"dies at its work":  func() { w.onTime(0); w.step(true) },
			"killed":            func() { w.state.Running = false; w.restart() },
			"paused or resumed": func() { w.state.Paused = !w.state.Paused; forward(90_000); w.step(false) },
			"resumed":           func() { w.state.Paused = false; w.step(false) },
			"held or released":  func() { w.state.Busy = !w.state.Busy; forward(90_000); w.step(false) },
			"released":          func() { w.state.Busy = false; w.step(false) },
			"a run ends":        func() { w.state.Running = false; w.step(false) },
			"a trigger":         func() { w.state.Running = true; w.step(false) },
			"leaves":            func() { w.record(w.agent.Leave()); w.restart() },
		}
		often := []string{"on time", "on time", "on time", "too early", "a while", "a while", "a run ends", "a run ends", "dies at its work",
			"resumed", "released"}
		names := append(slices.Sorted(maps.Keys(actions)), often...)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 100, 200).Draw(t, "actions") {
			actions[name]()
		}
		w.settle()
		w.check()
		begun += len(w.begun)
		for _, m := range w.missed {
			missed[m.Reason] += m.Count
		}
	})
	t.Logf("begun %d, missed %v", begun, missed)
	for _, r := range due.Reasons() {
		if missed[r] == 0 {
			t.Errorf("nothing was missed for reason %s: the test does not get there", r)
		}
	}
	if begun == 0 {
		t.Error("nothing was begun")
	}
}

// onTime puts both clocks forward to the next occurrence, and by how much its timer is off.
func (w *world) onTime(off time.Duration) {
	next, ok := w.agent.Next()
	if d := next.Add(off).Sub(w.now.Wall); ok && d > 0 {
		w.now.Wall, w.now.Boot = w.now.Wall.Add(d), w.now.Boot+d
	}
}

// What others begin, in any order, is begun: the agent offers none of it, and what it decides stays in order.
func TestWhatOthersBeginIsNeverOfferedAgain(t *testing.T) {
	s, err := schedule.New("* * * * *", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		start := instant("2026-01-01T00:00:00Z")
		a := due.New(s, due.Policy{CatchUp: due.CatchUpAll, Window: time.Hour, Limit: 5, Overlap: due.OverlapQueue}, nil, start)
		now := due.Reading{Wall: start}
		ended := map[time.Time]string{}
		end := func(at time.Time, how string) {
			if was := ended[at]; was != "" {
				t.Fatalf("%s was %s, and is %s", at, was, how)
			}
			ended[at] = how
		}
		record := func(gaps []due.Missed) {
			for _, m := range gaps {
				for at := m.First; !at.After(m.Last); at = at.Add(time.Minute) {
					end(at, string(m.Reason))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"looks": func(t *rapid.T) {
				now.Wall = now.Wall.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "s")) * time.Second)
				d := a.Step(now, due.State{Busy: rapid.Bool().Draw(t, "busy")})
				record(d.Missed)
				if d.Begin {
					record(a.Before(now, d.Due))
					end(d.Due, "begun")
					record(a.Begun(d.Due))
				}
			},
			"another begins": func(t *rapid.T) {
				at := now.Wall.Truncate(time.Minute).Add(time.Duration(rapid.IntRange(-3, 2).Draw(t, "min")) * time.Minute)
				if ended[at] == "" && at.After(start) {
					record(a.Leave()) // what is missed is known, before the other's begin comes in
					if ended[at] == "" {
						end(at, "begun by another")
						record(a.Begun(at))
					}
				}
			},
		})
		record(a.Leave())
		next, _ := a.Next()
		for at := start.Add(time.Minute); at.Before(next); at = at.Add(time.Minute) {
			if ended[at] == "" {
				t.Fatalf("%s has no end; next is %s", at, next)
			}
		}
	})
}
