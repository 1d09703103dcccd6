package due_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// A desk drives one agent by readings that a test writes down, and keeps what a ledger and a log would.
type desk struct {
	t      *testing.T
	s      *schedule.Schedule
	policy due.Policy
	rate   *due.Rate
	agent  *due.Agent
	now    due.Reading
	state  due.State
	begun  []time.Time
	missed []due.Missed
	silent bool // the ledger does not answer: nothing that is offered can be begun
}

func newDesk(t *testing.T, spec, zone string, p due.Policy, now string) *desk {
	t.Helper()
	s, err := schedule.New(spec, zone)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, s: s, policy: p, now: due.Reading{Wall: instant(now), Boot: time.Hour}}
	d.agent = due.New(s, p, nil, d.now.Wall)
	return d
}

func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return at
}

// at puts both clocks forward to an instant and steps; a run that begins ends at once.
func (d *desk) at(text string) time.Duration {
	wall := instant(text)
	d.now.Boot += max(wall.Sub(d.now.Wall), 0)
	d.now.Wall = wall
	return d.step()
}

func (d *desk) step() time.Duration {
	d.t.Helper()
	for range 100 {
		dec := d.agent.Step(d.now, d.state)
		d.missed = append(d.missed, dec.Missed...)
		if dec.Wait <= 0 || dec.Wait > due.MaxWait {
			d.t.Fatalf("at %s: wait %s", d.now.Wall, dec.Wait)
		}
		if !dec.Begin || d.silent {
			return dec.Wait
		}
		if dec.Due.After(d.now.Wall) {
			d.t.Fatalf("%s is begun at %s, before its time", dec.Due, d.now.Wall)
		}
		d.missed = append(d.missed, d.agent.Before(d.now, dec.Due)...)
		d.begun = append(d.begun, dec.Due)
		d.missed = append(d.missed, d.agent.Begun(dec.Due)...)
	}
	d.t.Fatal("100 occurrences at one reading")
	return 0
}

// restart asks the records.
func (d *desk) restart() {
	through := instant("2000-01-01T00:00:00Z")
	for _, b := range d.begun {
		if b.After(through) {
			through = b
		}
	}
	for _, m := range d.missed {
		if m.Last.After(through) {
			through = m.Last
		}
	}
	d.agent = due.New(d.s, d.policy, d.rate, through)
}

// is compares what was begun and what was missed, in one line each.
func (d *desk) is(begun, missed string) {
	d.t.Helper()
	var b, m []string
	for _, at := range d.begun {
		b = append(b, at.Format("15:04:05"))
	}
	for _, g := range append(slices.Clone(d.missed), d.agent.Leave()...) {
		m = append(m, fmt.Sprintf("%s %s..%s %d", g.Reason, g.First.Format("15:04:05"), g.Last.Format("15:04:05"), g.Count))
	}
	if got := strings.Join(b, " "); got != begun {
		d.t.Errorf("begun:  %s\nwant:   %s", got, begun)
	}
	if got := strings.Join(m, ", "); got != missed {
		d.t.Errorf("missed: %s\nwant:   %s", got, missed)
	}
}

var last = due.Policy{CatchUp: due.CatchUpLast, Window: 24 * time.Hour, Overlap: due.OverlapSkip}

func with(change func(*due.Policy)) due.Policy {
	p := last
	change(&p)
	return p
}

// The bugs of others, by the tracker and number they were reported under, that a node must not have.
func TestTheBugsOfOtherSchedulers(t *testing.T) {
	for _, c := range []struct {
		name, spec, zone string
		policy           due.Policy
		from             string
		story            func(d *desk)
		begun, missed    string
	}{
		{name: "cronetes#10: a timer 160 ms early and one on time are one occurrence", spec: "*/5 * * * *", policy: last,
			from: "2017-07-11T14:38:00Z", story: func(d *desk) {
				if w := d.at("2017-07-11T14:39:59.844Z"); w != 156*time.Millisecond {
					d.t.Errorf("wait %s, want 156ms", w)
				}
				d.at("2017-07-11T14:40:00.001Z")
				d.at("2017-07-11T14:40:00.160Z")
			}, begun: "14:40:00"},
		{name: "dkron#541: the clock is put back over an occurrence", spec: "0 0 * * *", policy: last,
			from: "2026-01-01T23:59:00Z", story: func(d *desk) {
				d.at("2026-01-02T00:00:00.5Z")
				d.at("2026-01-01T23:59:58.5Z")
				d.at("2026-01-02T00:00:00.1Z")
				d.at("2026-01-02T00:00:30Z")
			}, begun: "00:00:00"},
		{name: "robfig/cron#480: two hours back, the next one at its right time, nothing repeated", spec: "0 * * * *", policy: last,
			from: "2026-01-01T09:30:00Z", story: func(d *desk) {
				d.at("2026-01-01T10:00:00Z")
				d.at("2026-01-01T08:00:00Z")
				d.at("2026-01-01T09:00:00Z")
				d.at("2026-01-01T10:00:00Z")
				d.at("2026-01-01T11:00:00Z")
			}, begun: "10:00:00 11:00:00"},
		{name: "openclaw#42640: a restart repeats nothing", spec: "0 22 * * *", policy: last,
			from: "2026-01-01T21:00:00Z", story: func(d *desk) {
				d.at("2026-01-01T22:00:00Z")
				d.restart()
				d.at("2026-01-01T22:30:00Z")
			}, begun: "22:00:00"},
		{name: "hermes-agent#77406: a restart at 11:00 does not run what is due at 19:30", spec: "30 19 * * *", policy: last,
			from: "2026-01-01T19:00:00Z", story: func(d *desk) {
				d.at("2026-01-01T19:30:00Z")
				d.restart()
				d.at("2026-01-02T11:00:00Z")
			}, begun: "19:30:00"},
		{name: "hermes-agent#77406: nor does a first start", spec: "30 19 * * *", policy: last,
			from: "2026-01-01T11:00:00Z", story: func(d *desk) { d.step() }},
		{name: "river#791: an interval is not counted from the start of the process", spec: "@every 1h", policy: last,
			from: "2026-01-01T09:50:00Z", story: func(d *desk) {
				d.at("2026-01-01T10:00:00Z")
				for _, at := range []string{"10:20", "10:40", "11:00", "11:20", "11:40", "12:00", "12:20"} {
					d.restart()
					d.at("2026-01-01T" + at + ":00Z")
				}
			}, begun: "10:00:00 11:00:00 12:00:00"},
		{name: "dkron#1210: a tick during a change of owner is not lost", spec: "*/2 * * * *", policy: last,
			from: "2026-01-01T09:59:00Z", story: func(d *desk) {
				d.at("2026-01-01T10:00:00Z")
				d.at("2026-01-01T10:01:59Z")
				d.restart()
				d.at("2026-01-01T10:02:16Z")
			}, begun: "10:00:00 10:02:00"},
		{name: "cc-connect#1808: after eight hours of suspend the newest runs, the others are one record", spec: "0 * * * *", policy: last,
			from: "2026-01-01T00:30:00Z", story: func(d *desk) {
				d.at("2026-01-01T01:00:00Z")
				d.at("2026-01-01T09:12:00Z")
			}, begun: "01:00:00 09:00:00", missed: "superseded 02:00:00..08:00:00 7"},
		{name: "go-etcd-cron: what was missed does not come in immediate succession", spec: "* * * * *", policy: last,
			from: "2026-01-01T10:00:30Z", story: func(d *desk) { d.at("2026-01-01T13:00:40Z") },
			begun: "13:00:00", missed: "superseded 10:01:00..12:59:00 179"},
		{name: "catchup none: only what is not late", spec: "0 * * * *", policy: with(func(p *due.Policy) { p.CatchUp = due.CatchUpNone }),
			from: "2026-01-01T00:30:00Z", story: func(d *desk) {
				d.at("2026-01-01T03:00:29Z")
				d.at("2026-01-01T04:00:31Z")
			}, begun: "03:00:00", missed: "window 01:00:00..02:00:00 2, window 04:00:00..04:00:00 1"},
		{name: "catchup all: limit and window", spec: "0 * * * *",
			policy: with(func(p *due.Policy) { p.CatchUp, p.Limit, p.Window = due.CatchUpAll, 2, 4*time.Hour }),
			from:   "2026-01-01T00:30:00Z", story: func(d *desk) { d.at("2026-01-01T08:30:00Z") },
			begun: "07:00:00 08:00:00", missed: "window 01:00:00..04:00:00 4, superseded 05:00:00..06:00:00 2"},
		{name: "catchup last: out of the window", spec: "0 0 * * 0", policy: last,
			from: "2026-01-01T00:30:00Z", story: func(d *desk) { d.at("2026-01-07T08:30:00Z") }, missed: "window 00:00:00..00:00:00 1"},
		{name: "temporal#8087: what a long run skips is told, one record a gap", spec: "* * * * *", policy: last,
			from: "2026-01-01T09:59:30Z", story: func(d *desk) {
				d.at("2026-01-01T10:00:00Z")
				d.state.Running = true
				d.at("2026-01-01T10:01:00Z")
				d.at("2026-01-01T10:02:00Z")
				d.state.Running = false
				d.at("2026-01-01T10:02:30Z")
				d.at("2026-01-01T10:03:00Z")
			}, begun: "10:00:00 10:03:00", missed: "overlap 10:01:00..10:02:00 2"},
		{name: "overlap queue: the newest waits", spec: "* * * * *", policy: with(func(p *due.Policy) { p.Overlap = due.OverlapQueue }),
			from: "2026-01-01T09:59:30Z", story: func(d *desk) {
				d.at("2026-01-01T10:00:00Z")
				d.state.Running = true
				d.at("2026-01-01T10:01:00Z")
				d.at("2026-01-01T10:02:00Z")
				d.state.Running = false
				d.at("2026-01-01T10:02:30Z")
				d.at("2026-01-01T10:03:00Z")
			}, begun: "10:00:00 10:02:00 10:03:00", missed: "overlap 10:01:00..10:01:00 1"},
		{name: "a predecessor's lease that ends soon costs nothing, a client's long run is busy", spec: "* * * * *", policy: last,
			from: "2026-01-01T09:59:30Z", story: func(d *desk) {
				d.state.Busy = true
				d.at("2026-01-01T10:00:00Z")
				d.state.Busy = false
				d.at("2026-01-01T10:00:16Z")
				d.state.Busy = true
				for m := 1; m < 5; m++ {
					d.at(fmt.Sprintf("2026-01-01T10:%02d:00Z", m))
					d.at(fmt.Sprintf("2026-01-01T10:%02d:30.1Z", m))
				}
				d.state.Busy = false
				d.at("2026-01-01T10:05:00Z")
			}, begun: "10:00:00 10:05:00", missed: "busy 10:01:00..10:04:00 4"},
		{name: "what comes due while others are caught up waits behind them", spec: "* * * * *",
			policy: with(func(p *due.Policy) { p.CatchUp, p.Limit = due.CatchUpAll, 3 }), from: "2026-01-01T10:00:00Z", story: func(d *desk) {
				d.state.Busy = true
				d.at("2026-01-01T10:02:10Z")
				d.state = due.State{Running: true}
				d.at("2026-01-01T10:03:00Z")
				d.at("2026-01-01T10:04:00Z")
				d.state = due.State{}
				d.at("2026-01-01T10:04:20Z")
			}, begun: "10:02:00 10:03:00 10:04:00", missed: "overlap 10:01:00..10:01:00 1"},
		{name: "a daily run that is caught up waits for the agent", spec: "0 2 * * *", policy: last,
			from: "2026-01-01T01:00:00Z", story: func(d *desk) {
				d.state.Busy = true
				d.at("2026-01-01T06:00:00Z")
				d.at("2026-01-01T07:00:00Z")
				d.state.Busy = false
				d.at("2026-01-01T07:01:00Z")
			}, begun: "02:00:00"},
		{name: "an outage of the ledger is an outage: what was seen on time is begun after it", spec: "0 2 * * *", policy: last,
			from: "2026-01-01T01:00:00Z", story: func(d *desk) {
				d.silent = true
				d.at("2026-01-01T02:00:00Z")
				d.at("2026-01-01T02:00:31Z")
				d.at("2026-01-01T02:10:00Z")
				d.silent, d.state.Busy = false, true // a lease of before the outage
				d.at("2026-01-01T02:10:01Z")
				d.state.Busy = false
				d.at("2026-01-01T02:10:15Z")
			}, begun: "02:00:00"},
		{name: "a pause: nothing is caught up after it", spec: "0 * * * *", policy: last,
			from: "2026-01-01T00:30:00Z", story: func(d *desk) {
				d.state.Paused = true
				for _, h := range []string{"01", "02", "03"} {
					d.at("2026-01-01T" + h + ":00:00Z")
				}
				d.state.Paused = false
				d.at("2026-01-01T03:30:00Z")
				d.at("2026-01-01T04:00:00Z")
			}, begun: "04:00:00", missed: "paused 01:00:00..03:00:00 3"},
		{name: "a cron host was first, with a clock that is ahead", spec: "* * * * *", policy: last,
			from: "2026-01-01T09:59:30Z", story: func(d *desk) {
				d.missed = append(d.missed, d.agent.Begun(instant("2026-01-01T10:00:00Z"))...)
				d.at("2026-01-01T10:00:00Z")
				d.missed = append(d.missed, d.agent.Begun(instant("2026-01-01T10:02:00Z"))...)
				d.at("2026-01-01T10:01:59Z")
				d.at("2026-01-01T10:03:00Z")
			}, begun: "10:03:00", missed: "superseded 10:01:00..10:01:00 1"},
		{name: "homarr#4356: the hour that comes twice runs 60 + 60 times and spins never", spec: "* * * * *", zone: "Europe/Berlin", policy: last,
			from: "2023-10-28T23:59:30Z", story: func(d *desk) {
				steps, end := 0, instant("2023-10-29T01:59:30Z")
				for d.now.Wall.Before(end) {
					w := d.step()
					d.now.Wall, d.now.Boot = d.now.Wall.Add(w), d.now.Boot+w
					steps++
				}
				if len(d.begun) != 120 || steps > 3*120 {
					d.t.Errorf("%d begun in %d steps, want 120 in about 240", len(d.begun), steps)
				}
				d.begun = nil
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			zone := c.zone
			if zone == "" {
				zone = "UTC"
			}
			d := newDesk(t, c.spec, zone, c.policy, c.from)
			c.story(d)
			d.is(c.begun, c.missed)
		})
	}
}

func TestAGapOfMillionsIsNotCountedToItsEnd(t *testing.T) {
	d := newDesk(t, "@every 1s", "UTC", last, "2026-01-01T00:00:00Z")
	d.at("2036-01-01T00:00:00Z")
	if len(d.missed) != 2 || !d.missed[0].AtLeast || d.missed[0].Count != 100_000 || d.missed[0].Reason != due.Window ||
		!d.missed[0].First.Equal(instant("2026-01-01T00:00:01Z")) || !d.missed[0].Last.Equal(instant("2035-12-30T23:59:59Z")) {
		t.Errorf("%+v", d.missed)
	}
	if len(d.missed) == 2 && (d.missed[1].AtLeast || d.missed[1].Count != 86400 || d.missed[1].Reason != due.Superseded) {
		t.Errorf("%+v", d.missed[1])
	}
}

// What is caught up is spaced out over all agents; what is on time is not.
func TestCatchUpIsSpacedOutOverAllAgentsAndWhatIsOnTimeIsNot(t *testing.T) {
	rate := due.NewRate(6, time.Minute)
	s, err := schedule.New("0 * * * *", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	now := due.Reading{Wall: instant("2026-01-01T05:10:00Z"), Boot: time.Minute}
	var agents []*due.Agent
	for range 10 {
		agents = append(agents, due.New(s, last, rate, instant("2026-01-01T04:00:00Z")))
	}
	began := map[time.Duration]int{} // by boot time
	look := func() time.Duration {
		wait := due.MaxWait
		for _, a := range agents {
			d := a.Step(now, due.State{})
			wait = min(wait, d.Wait)
			if d.Begin {
				a.Before(now, d.Due)
				a.Begun(d.Due)
				began[now.Boot]++
			}
		}
		return wait
	}
	for now.Boot < 4*time.Minute {
		w := look()
		now.Wall, now.Boot = now.Wall.Add(w), now.Boot+w
		if now.Boot < 2*time.Minute {
			now.Wall = now.Wall.Add(time.Minute) // steps of the wall clock lend nothing
		}
	}
	if len(began) != 10 {
		t.Errorf("begun at %v, want ten times, ten seconds apart", began)
	}
	for at, n := range began {
		if n != 1 || (at-time.Minute)%(10*time.Second) != 0 {
			t.Errorf("%d at %s", n, at)
		}
	}
	clear(began)
	now.Wall = instant("2026-01-01T06:00:00Z")
	if look(); began[now.Boot] != 10 {
		t.Errorf("%d of 10 that are on time are begun", began[now.Boot])
	}
}

func TestAStepOfTheWallClockIsToldFromASuspend(t *testing.T) {
	before := due.Reading{Wall: instant("2026-01-01T00:00:00Z"), Boot: time.Hour}
	for _, c := range []struct{ wall, boot, want time.Duration }{
		{8 * time.Hour, 8 * time.Hour, 0}, // suspend
		{8 * time.Hour, 0, 8 * time.Hour}, // put forward
		{-time.Hour, time.Minute, -61 * time.Minute},
	} {
		now := due.Reading{Wall: before.Wall.Add(c.wall), Boot: before.Boot + c.boot}
		if got := now.Stepped(before); got != c.want {
			t.Errorf("wall %s, boot %s: stepped %s, want %s", c.wall, c.boot, got, c.want)
		}
	}
}
