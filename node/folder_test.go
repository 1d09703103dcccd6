package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/relay/dir"
)

// In a folder a device collects its own chain and no other: also one whose node only ever takes the checkpoints of others has to.
func TestEveryNodeCollectsItsOwnChainInAFolder(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		handle := func() *dir.Relay {
			r, err := dir.Open(dir.Config{Path: root, SegmentBytes: 2000, Poll: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			return r
		}
		var fleet []*member
		for _, d := range []string{"d1", "d2", "d3"} {
			m := anchored(t, d, handle())
			m.cfg.PumpEvery = 30 * time.Second
			fleet = append(fleet, m.start())
		}
		written := 0
		for range 20 {
			for _, m := range fleet {
				for range 6 {
					write(t, m.Session, written)
					written++
				}
			}
			bubble.Pass(time.Minute)
		}
		bubble.Pass(time.Hour)
		for _, m := range fleet {
			m.stop()
		}
		info, err := handle().Hello(t.Context(), "asks")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{"d1", "d2", "d3"} {
			if head, floor := info.Heads[d], info.Floor[d]; head.Seq != 119 || floor.Seq < 60 {
				t.Errorf("the chain of %s goes up to seq %d and was collected up to %d", d, head.Seq, floor.Seq)
			}
		}
		if fleet[0].Digest() != fleet[1].Digest() || fleet[0].Digest() != fleet[2].Digest() {
			t.Error("the digests differ")
		}
	})
}
