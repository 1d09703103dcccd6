package journal_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/journal"
)

// What a process finds at the end may have been synced and acknowledged by the one that wrote it. A disk that fails for the first,
// and does so in every way, must not make it cut that off.
func TestAFailingDiskNeverCutsOffWhatAnotherProcessHasAcknowledged(t *testing.T) {
	for name, change := range map[string]func(*journal.Journal) error{
		"a look":    func(j *journal.Journal) error { return j.Refresh(context.Background()) },
		"an append": func(j *journal.Journal) error { _, err := j.Append(context.Background(), draft(9)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, cfg := faultyConfig(dir)
			j := open(t, cfg)
			want := appendOps(t, open(t, config(dir)), 0, 2)
			f.fail = func(call, _ string) error {
				if call == "sync" || call == "create" {
					return syscall.EIO
				}
				return nil
			}
			if err := change(j); !errors.Is(err, journal.ErrPoisoned) {
				t.Fatal(err)
			}
			sameOps(t, mustOwn(t, open(t, config(dir))), want)
		})
	}
}

func TestACrashAtAnyStepOfMovingTheUnsyncedTailLosesNothingAcknowledged(t *testing.T) {
	for n := 0; ; n++ {
		dir := t.TempDir()
		f, cfg := faultyConfig(dir)
		other := open(t, config(dir))
		want := appendOps(t, other, 0, 3)
		want = append(want, appendOps(t, other, 3, 2)...)
		j := open(t, cfg)
		f.fail = failing("sync", 0, syscall.EIO)
		if err := j.Refresh(context.Background()); !errors.Is(err, journal.ErrPoisoned) {
			t.Fatal(err)
		}
		left, crashed := n, false
		f.fail = func(string, string) error {
			if left--; left < 0 {
				crashed = true
				return syscall.EIO
			}
			return nil
		}
		_, err := journal.Open(context.Background(), cfg)
		if crashed != (err != nil) {
			t.Fatalf("step %d: %v", n, err)
		}
		sameOps(t, mustOwn(t, open(t, config(dir))), want)
		if !crashed {
			if n < 8 {
				t.Errorf("only %d steps", n)
			}
			return
		}
	}
}
