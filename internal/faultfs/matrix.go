package faultfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/syncnode/syncnode/internal/thorough"
)

// Full reports whether the whole matrix was asked for: SYNCNODE_CRASH=full. Otherwise a part of the seeds, calls and kills is taken, the same
// ones each time: a third of those of the project's own checks where a reader runs the tests (see package thorough).
func Full() bool { return os.Getenv("SYNCNODE_CRASH") == "full" }

// A Scenario is a life on a disk, and what must hold however it ends.
type Scenario struct {
	// Before makes what is there when the life begins; all of it is durable. Nil is nothing.
	Before func(p *Process) error
	// Life does what is to be interrupted, and notes what it was answered by Disk.Note. It deals with errors as its program would, by
	// going on or by starting anew. What it returns is that it gave up, which a fault that passes must not make it do.
	Life func(p *Process) error
	// Recover is what a program does when it starts. It is crashed once more at each of its own calls. Nil: nothing.
	Recover func(p *Process) error
	// Check judges what a life has left: the disk is its own, and facts are what was noted before. It starts from a killed machine.
	Check func(d *Disk, facts []any) error
	// Lie names calls that do nothing and say that they did. Only a test of the matrix itself has any.
	Lie func(Call) bool
	// Seeds is how many random losses each image is given; 0 is 2, or 12 in the full matrix.
	Seeds uint64
	// Sample is that only one of so many calls fails, where the full matrix is not asked for; 0 is 1.
	Sample int
}

// A Tally says what was tried.
type Tally struct {
	Calls  int // changing calls of a life without faults, and facts noted
	Images int // disks after a crash that were checked
	Faults int // lives with a call that failed
	Kills  int // lives that were killed and taken up by another process
}

// Add adds another.
func (t *Tally) Add(o Tally) {
	t.Calls, t.Images, t.Faults, t.Kills = t.Calls+o.Calls, t.Images+o.Images, t.Faults+o.Faults, t.Kills+o.Kills
}

func (t Tally) String() string {
	return fmt.Sprintf("%d points of a crash, %d lives with a failing call, %d with a kill, %d disks checked", t.Calls, t.Faults, t.Kills, t.Images)
}

func (s *Scenario) losses(point int) []Loss {
	n := s.Seeds
	if n == 0 {
		n = 2
		if Full() {
			n = 12
		}
	}
	out := []Loss{Nothing, Everything, Names, Data}
	for i := range n {
		out = append(out, Random(uint64(point)*1000+i))
		if i < (n+1)/2 {
			out = append(out, Torn(uint64(point)*1000+i))
		}
	}
	return out
}

func (s *Scenario) begin() (*Disk, error) {
	d := New()
	if s.Before != nil {
		if err := s.Before(d.Process()); err != nil {
			return nil, fmt.Errorf("before the life: %w", err)
		}
	}
	d.Settle()
	return d, nil
}

func (s *Scenario) lie(c Call) Fault { return Fault{Lie: s.Lie != nil && s.Lie(c)} }

// Crashes crashes at each changing call of the life and whenever a fact is noted, and at each call of the recovery from it. It returns the first
// failure of a check.
func (s *Scenario) Crashes() (Tally, error) {
	var t Tally
	d, err := s.begin()
	if err != nil {
		return t, err
	}
	d.Arm(s.lie)
	d.Record()
	if err := s.Life(d.Process()); err != nil {
		return t, fmt.Errorf("a life without faults: %w", err)
	}
	d.Note(ended{})
	images := d.Images()
	t.Calls = len(images)
	for point, image := range images {
		for _, loss := range s.losses(point) {
			if err := s.judge(&t, image, loss, point); err != nil {
				return t, fmt.Errorf("crash %s, %v: %w", image.What, loss, err)
			}
		}
	}
	return t, nil
}

type ended struct{}

// judge checks one image, and those of the recovery from it.
func (s *Scenario) judge(t *Tally, image Image, loss Loss, point int) error {
	t.Images++
	if err := s.Check(image.Disk.After(loss), image.Facts); err != nil {
		return err
	}
	if s.Recover == nil || !Full() && point%thorough.Of(9, 27) != 0 {
		return nil
	}
	return s.again(t, image.Disk.After(loss), image.Facts, point)
}

// again crashes the recovery from what is on a disk.
func (s *Scenario) again(t *Tally, d *Disk, facts []any, point int) error {
	d.Arm(s.lie)
	d.Record()
	if err := s.Recover(d.Process()); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	for _, second := range d.Images() {
		for i := range uint64(3) {
			loss := []Loss{Nothing, Everything, Random(uint64(point)*10 + i)}[i]
			t.Images++
			if err := s.Check(second.Disk.After(loss), facts); err != nil {
				return fmt.Errorf("then a crash %s of the recovery, %v: %w", second.What, loss, err)
			}
		}
	}
	return nil
}

// A mode is how a call fails.
type mode struct {
	name  string
	fault Fault
	lasts bool // every later call fails, too
	all   bool // reading calls as well
	late  bool
}

func modes() []mode {
	return []mode{
		{name: "EIO", fault: Fault{Err: syscall.EIO}, all: true},
		{name: "EIO from then on", fault: Fault{Err: syscall.EIO}, all: true, lasts: true},
		{name: "ENOSPC", fault: Fault{Err: syscall.ENOSPC}},
		{name: "ENOSPC from then on", fault: Fault{Err: syscall.ENOSPC}, lasts: true},
		{name: "a short write", fault: Fault{Err: syscall.ENOSPC, Short: true}},
		{name: "short writes from then on", fault: Fault{Err: syscall.ENOSPC, Short: true}, lasts: true},
		{name: "EIO after the call was done", fault: Fault{Err: syscall.EIO, Late: true}, late: true},
	}
}

func (m mode) takes(c Call) bool {
	switch {
	case m.late:
		return c.Op == "rename" || c.Op == "remove" || c.Op == "create" || c.Op == "truncate" || c.Op == "mkdir"
	case m.fault.Short && !m.lasts:
		return c.Op == "write"
	case m.fault.Err == syscall.ENOSPC: // neither truncating nor removing needs any
		return c.Changes && c.Op != "remove" && c.Op != "truncate"
	}
	return m.all || c.Changes
}

// Faults lets each call of the life fail, in each way, once and from then on. A fault that passes must not make the life give up. Then
// the machine goes on, or forgets its caches, or loses its power; and all has to be there that was noted.
func (s *Scenario) Faults() (Tally, error) {
	var t Tally
	for _, m := range modes() {
		step := 1
		if !Full() {
			step = max(1, s.Sample) * thorough.Of(1, 3)
			if m.lasts {
				step *= 3
			}
		}
		for k := 1; ; k += step {
			hit, err := s.fail(&t, m, k)
			if err != nil {
				return t, err
			}
			if !hit {
				break
			}
		}
	}
	return t, nil
}

// fail lets the k-th call that the mode takes fail. False if there are fewer.
func (s *Scenario) fail(t *Tally, m mode, k int) (bool, error) {
	d, err := s.begin()
	if err != nil {
		return false, err
	}
	left := k
	var at *Call
	d.Arm(func(c Call) Fault {
		if m.takes(c) {
			left--
		}
		if left == 0 && at == nil {
			at = &c
		}
		switch {
		case at == nil:
		case at.N == c.N, m.lasts && m.takes(c):
			return m.fault
		}
		return s.lie(c)
	})
	p := d.Process()
	gaveUp := s.Life(p)
	d.Arm(s.lie)
	if at == nil {
		return false, nil
	}
	p.Kill()
	t.Faults++
	say := func(what string, err error) (bool, error) {
		return true, fmt.Errorf("%s in %v, %s: %w", m.name, *at, what, err)
	}
	if gaveUp != nil && !m.lasts {
		return say("and the life does not go on", gaveUp)
	}
	forgetful := func() *Disk {
		c := d.Clone()
		c.DropCaches()
		return c
	}
	live := d.Clone
	if m.lasts && m.all {
		live = forgetful // a disk that fails for good works again once it was mounted anew
	}
	if s.Recover != nil && at.Op == "sync" && m.fault.Err == syscall.EIO && !m.lasts {
		if err := s.again(t, d.Clone(), d.Facts(), k); err != nil {
			return say("and the process starts anew", err)
		}
	}
	left = k % 3 // of the rest one in turn
	for i, after := range []struct {
		what string
		disk func() *Disk
	}{
		{"the process starts anew", live},
		{Nothing.String(), func() *Disk { return d.After(Nothing) }},
		{"the caches are dropped", forgetful},
		{Everything.String(), func() *Disk { return d.After(Everything) }},
		{Random(uint64(k)).String(), func() *Disk { return d.After(Random(uint64(k))) }},
	} {
		if i >= 2 && i != 2+left && !Full() {
			continue
		}
		t.Images++
		if err := s.Check(after.disk(), d.Facts()); err != nil {
			return say(after.what, err)
		}
	}
	return true, nil
}

// Kills kills the process before each of its changing calls. Another one lives the life anew on what the killed one left, synced or not, and the
// machine crashes at each call of that one.
func (s *Scenario) Kills() (Tally, error) {
	var t Tally
	step := thorough.Of(2, 6)
	if Full() {
		step = 1
	}
	for k := 1; ; k += step {
		d, err := s.begin()
		if err != nil {
			return t, err
		}
		p := d.Process()
		p.KillAt(k)
		if err := s.Life(p); err == nil {
			return t, nil
		} else if !errors.Is(err, ErrKilled) {
			return t, fmt.Errorf("a life that is killed before changing call %d: %w", k, err)
		}
		t.Kills++
		d.Arm(s.lie)
		d.Record()
		if err := s.Life(d.Process()); err != nil {
			return t, fmt.Errorf("killed before changing call %d, and taken up: %w", k, err)
		}
		d.Note(ended{})
		for point, image := range d.Images() {
			if !Full() && point >= 12 && point%8 != k%8 {
				continue // what the killed one left is met early
			}
			for i, loss := range []Loss{Nothing, Random(uint64(point)), Names} {
				if !Full() && i != (point+k)%3 {
					continue
				}
				t.Images++
				if err := s.Check(image.Disk.After(loss), image.Facts); err != nil {
					return t, fmt.Errorf("killed before changing call %d, and a crash of the next process %s, %v: %w", k, image.What, loss, err)
				}
			}
		}
	}
}

// Needs runs the matrix with some calls doing nothing, one kind after the other, and returns those kinds which it did not miss. A kind is
// the name of a call and a pattern that the base of its file contains.
func (s *Scenario) Needs(kinds ...string) error {
	var idle []error
	for _, kind := range kinds {
		op, part, _ := strings.Cut(kind, " ")
		lying := *s
		hit := false
		lying.Lie = func(c Call) bool {
			lies := c.Op == op && strings.Contains(c.Name, part)
			hit = hit || lies
			return lies
		}
		_, err := lying.Crashes()
		switch {
		case !hit:
			idle = append(idle, fmt.Errorf("%s: there is no such call", kind))
		case err == nil:
			idle = append(idle, fmt.Errorf("%s: without it every check still holds", kind))
		}
	}
	return errors.Join(idle...)
}
