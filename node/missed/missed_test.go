package missed_test

import (
	"testing"
	"time"

	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

var at = time.Date(2026, 11, 29, 1, 30, 0, 0, time.UTC)

const (
	goldenGap  = `{"agent":"report","at_least":true,"count":7,"first":"2026-11-29T01:30:00Z","id":"missed:report:superseded:2026-11-29T01:30:00Z:2026-11-29T02:30:00Z","kind":"missed","last":"2026-11-29T02:30:00Z","reason":"superseded"}`
	goldenSeen = `{"agent":"report","id":"scheduled:report:Europe/Berlin:30 2 * * *","kind":"scheduled","schedule":"30 2 * * *","since":"2026-11-29T01:30:00.5Z","tz":"Europe/Berlin"}`
)

func TestRecordsOfWhatWasMissedByteForByte(t *testing.T) {
	g := missed.Gap{Agent: "report", Missed: due.Missed{Reason: due.Superseded, First: at, Last: at.Add(time.Hour), Count: 7, AtLeast: true}}
	text, err := g.Payload()
	if err != nil || string(text) != goldenGap {
		t.Errorf("got %s, %v", text, err)
	}
	back, none := missed.Parse(text)
	if back == nil || none != nil || *back != g {
		t.Errorf("read back as %+v, %+v", back, none)
	}
	s, err := schedule.New("30 2 * * *", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	berlin := s.Zone()
	seen := missed.SeenAs("report", s, at.Add(time.Second/2).In(berlin))
	if text, err = seen.Payload(); err != nil || string(text) != goldenSeen {
		t.Errorf("got %s, %v", text, err)
	}
	gap, again := missed.Parse(text)
	if gap != nil || again == nil || *again != seen {
		t.Errorf("read back as %+v, %+v", gap, again)
	}
}

func TestTheEarliestOfWhatSeveralDevicesSawStands(t *testing.T) {
	s, err := schedule.New("@every 90s", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	a, b := missed.SeenAs("x", s, at), missed.SeenAs("x", s, at.Add(time.Hour))
	if a.Key() != b.Key() || a.Key() == missed.SeenAs("y", s, at).Key() {
		t.Errorf("keys %q, %q", a.Key(), b.Key())
	}
	if tier, err := missed.Surface.Tier(); err != nil || tier != oplog.TierSet {
		t.Errorf("the surface does not keep the earliest of a key: %v, %v", tier, err)
	}
}

func TestWhatIsNoSuchRecordIsLeftAlone(t *testing.T) {
	for _, text := range []string{`{}`, `[]`, `"x"`, `{"kind":"missed","agent":"x"}`, `{"kind":"missed","agent":"","first":"2026-11-29T01:30:00Z","last":"2026-11-29T01:30:00Z"}`,
		`{"kind":"missed","agent":"x","first":"2026-11-29T01:30:00Z","last":"2026-11-28T01:30:00Z"}`, `{"kind":"scheduled","agent":"x"}`, `{"kind":"other","agent":"x"}`,
		`{"kind":"missed","agent":"x","first":7,"last":8}`} {
		if gap, seen := missed.Parse([]byte(text)); gap != nil || seen != nil {
			t.Errorf("%s was read as %+v, %+v", text, gap, seen)
		}
	}
	if _, err := (missed.Gap{Agent: "no/agent"}).Payload(); err == nil {
		t.Error("an illegal agent was written")
	}
}
