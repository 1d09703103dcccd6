package identity_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/faultfs"
)

// Facts of a life.
type (
	was     struct{ identity.Identity }
	renewed struct{ old string }
	bound   struct{ generation string }
)

// lifeOfAnIdentity makes an id, binds it to a ledger, renews it and binds it to another.
func lifeOfAnIdentity(dir string) *faultfs.Scenario {
	options := func(p *faultfs.Process) identity.Options {
		return identity.Options{MachineID: "aaaa", Host: "web", FS: p}
	}
	retry := func(step func() error) (err error) {
		for range 3 {
			if err = step(); err == nil {
				return nil
			}
		}
		return err
	}
	endpoints := []string{"http://one:2379"}
	return &faultfs.Scenario{
		Recover: func(p *faultfs.Process) error {
			_, err := identity.Open(dir, options(p))
			return err
		},
		Life: func(p *faultfs.Process) error {
			var id identity.Identity
			open := func() (err error) {
				if id, err = identity.Open(dir, options(p)); err == nil {
					p.Disk().Note(was{id})
				}
				return err
			}
			bind := func(generation string) error {
				return retry(func() error {
					err := identity.ClustersIn(p, dir).Bind("default", endpoints, generation)
					if _, other := errors.AsType[*identity.MismatchError](err); other {
						err = identity.ClustersIn(p, dir).Adopt("default", endpoints, generation)
					}
					if err == nil {
						p.Disk().Note(bound{generation})
					}
					return err
				})
			}
			renew := func() error {
				old := id.Device
				next, err := identity.Renew(dir, old, "its log was restored", options(p))
				if err == nil {
					p.Disk().Note(renewed{old})
					p.Disk().Note(was{next})
				}
				return err
			}
			for _, step := range []func() error{
				func() error { return retry(open) },
				func() error { return bind("g1") },
				func() error { return retry(open) },
				func() error { return retry(renew) },
				func() error { return retry(open) },
				func() error { return bind("g2") },
			} {
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(d *faultfs.Disk, facts []any) error { return sameDevice(d, dir, options, endpoints, facts) },
	}
}

func sameDevice(d *faultfs.Disk, dir string, options func(*faultfs.Process) identity.Options, endpoints []string, facts []any) error {
	p := d.Process()
	id, err := identity.Open(dir, options(p))
	if err != nil {
		return err
	}
	for _, f := range facts {
		switch f := f.(type) {
		case was:
			if f.Incarnation > id.Incarnation || f.Device != id.Device && !slices.Contains(id.Previous, f.Device) {
				return fmt.Errorf("it was %s (%d) and is %s (%d) after %v", f.Device, f.Incarnation, id.Device, id.Incarnation, id.Previous)
			}
		case renewed:
			if id.Device == f.old || !slices.Contains(id.Previous, f.old) {
				return fmt.Errorf("%s was given up, and it is %s after %v", f.old, id.Device, id.Previous)
			}
		case bound:
			known, err := identity.ClustersIn(p, dir).Known("default")
			if err != nil || len(known) == 0 || slices.Max(known) < f.generation {
				return fmt.Errorf("%s was bound, known is %v, %w", f.generation, known, err)
			}
		}
	}
	changed := ""
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		if c.Changes && c.Op != "syncdir" {
			changed = c.String()
		}
		return faultfs.Fault{}
	})
	again, err := identity.Open(dir, options(p))
	if err != nil || again.Device != id.Device || again.Notice != "" || changed != "" {
		return fmt.Errorf("the second time it is %+v, %w, and was changed: %s", again, err, changed)
	}
	return nil
}

func TestMatrixOfAnIdentity(t *testing.T) {
	s := lifeOfAnIdentity(t.TempDir()) // the name is there, and nothing is ever written to it
	var sum faultfs.Tally
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Faults, s.Kills} {
		tally, err := pass()
		sum.Add(tally)
		if err != nil {
			t.Error(err)
		}
	}
	t.Log(sum)
}

func TestTheMatrixMissesEachSyncOfTheIdentityThatIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	if err := lifeOfAnIdentity(dir).Needs("sync .device.json.tmp", "sync .clusters.json.tmp", "syncdir "+dir); err != nil {
		t.Error(err)
	}
}
