package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
)

// finished calls take with the two intents of each of n runs, as a program writes them. Ids are hashes, as real ones
// are, so that nothing is saved by their being alike.
func finished(n int, more string, take func(oplog.Op)) {
	seq := uint64(0)
	write := func(wall int64, payload string) {
		id := sha256.Sum256(fmt.Append(nil, "op", seq))
		const device = "host-0"
		take(oplog.Op{ID: oplog.OpID("op-" + hex.EncodeToString(id[:])), Device: device, Seq: seq,
			HLC: oplog.HLC{WallMS: wall, Device: device}, Scope: oplog.Personal, Surface: oplog.Intents, Payload: []byte(payload)})
		seq++
	}
	for i := range n {
		sum := sha256.Sum256(fmt.Append(nil, i))
		run := "r1-" + runText.EncodeToString(sum[:])
		due := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Minute)
		begun, ended := due.Add(123456789), due.Add(3*time.Second+987654321)
		common := fmt.Sprintf(`{"agent_id":"invoices-%d","attempt":"%x","begun":"%s"`, i%20, sum[:16], begun.Format(time.RFC3339Nano))
		key := fmt.Sprintf(`"epoch":%d`, i/1000+1)
		occurrence := `"occurrence":"at:` + due.Format(time.RFC3339) + `"`
		write(begun.UnixMilli(), common+","+key+`,"id":"`+run+`",`+more+occurrence+`,"status":"pending"}`)
		write(ended.UnixMilli(), common+`,"ended":"`+ended.Format(time.RFC3339Nano)+`",`+key+`,"exit_code":0,"id":"`+run+`",`+more+
			occurrence+fmt.Sprintf(`,"settled":%d,"status":"committed"}`, seq-10*min(1, seq/10)))
	}
}

func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // what pools hold goes with the second, and what finalizers held with the third
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestACommittedRunCostsAtMost200BytesOfMemory(t *testing.T) {
	runs := thorough.Of(100_000, 25_000)
	before := heap()
	s := New()
	finished(runs, "", func(op oplog.Op) {
		if !s.Apply(op) {
			t.Fatal("not applied")
		}
	})
	s.Digest()
	each := float64(heap()-before) / float64(runs)
	t.Logf("%.1f bytes for each of %d committed runs; arena %.1f", each, runs, float64(s.packed.arena.bytes)/float64(runs))
	if each > 200 {
		t.Errorf("a committed run costs %.1f bytes, at most 200 are allowed", each)
	}
	for _, a := range s.agents {
		if len(a.live) != 0 {
			t.Error("a committed run is not packed")
		}
	}
	runtime.KeepAlive(s)
}

// A packed run gives back what went in, whatever payloads look like.
func FuzzPackedPayload(f *testing.F) {
	finished(2, `"input":"00112233445566778899aabbccddeeff",`, func(op oplog.Op) { f.Add([]byte(op.Payload), []byte(op.Payload), int64(op.HLC.WallMS)) })
	for _, p := range []string{`{}`, `null`, ``, `{"id":"r","z":{}}`, `{"a":"\u0000"}`, `{"a":1.5,"b":-1,"c":9007199254740991,"d":true}`,
		`{"a":"at:2026-03-01T00:00:00Z","b":"2026-03-01T00:00:00.5Z","c":"2026-02-30T00:00:00Z"}`, `{"a":"é","status":"committed"}`,
		`{"a":"00ff00ff","b":"00FF00FF"}`, `{"a":"x","a":"x"}`, `{"a":01}`, `{"a" :1}`, `{"a":}`, `{"a":"}`} {
		f.Add([]byte(p), []byte(`{"a":"x","status":"committed"}`), int64(0))
		f.Add([]byte(`{"a":"x"}`), []byte(p), int64(-5))
	}
	f.Fuzz(func(t *testing.T, one, two []byte, wall int64) {
		var p packed
		agent, run := "a", "r1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		var slots []*slot
		for i, payload := range [][]byte{one, two} {
			rec := &Record{Surface: oplog.Intents, ID: "op-x", HLC: oplog.HLC{WallMS: wall + int64(i), Counter: uint32(i), Device: "d"},
				Scope: oplog.Scope("s" + strings.Repeat("x", i)), Payload: bytes.Clone(payload)}
			slots = append(slots, newSlot(rec, oplog.ReadIntent(payload)))
		}
		slots[1].rec.ID = oplog.OpID("op-" + strings.Repeat("0a", 32))
		at, ok := p.arena.add(p.record(agent, run, slots, make([]hash, 2)))
		if !ok {
			t.Skip("larger than a block: stays as it is")
		}
		gotAgent, gotRun, got, _ := p.slots(at)
		if gotAgent != agent || gotRun != run || len(got) != 2 || p.size(p.arena.at(at)) != p.arena.bytes {
			t.Fatalf("%q %q, %d slots", gotAgent, gotRun, len(got))
		}
		for i, sl := range got {
			want := slots[i]
			if !bytes.Equal(sl.rec.Payload, want.rec.Payload) || sl.rec.ID != want.rec.ID || sl.rec.HLC != want.rec.HLC || sl.rec.Scope != want.rec.Scope {
				t.Fatalf("slot %d: %+v, went in as %+v", i, sl.rec, want.rec)
			}
		}
	})
}

func TestRunIDsOfAnyFormArePackedAndGivenBack(t *testing.T) {
	for _, id := range []string{"", "r", "r1-", "r1-" + strings.Repeat("a", 52), "r1-" + strings.Repeat("7", 52), "r1-" + strings.Repeat("A", 52),
		strings.Repeat("x", 300), "r1-" + strings.Repeat("a", 51) + "\n"} {
		kept := appendRun(nil, id)
		r := reader{append(kept, 9, 9)}
		if got := r.takeRun(); runID(got) != id || len(r.b) != 2 {
			t.Errorf("%q came back as %q", id, runID(got))
		}
	}
}

// Late words about packed runs, as of a second device, let records go; what is left is moved together.
func TestLateOpsForPackedRunsWasteAtMostHalfTheArena(t *testing.T) {
	const runs, rounds = 400, 8
	packed, live := New(), New()
	seq := uint64(0)
	for round := range rounds {
		for i := range runs {
			op := oplog.Op{ID: oplog.OpID(fmt.Sprintf("op-%064x", seq)), Device: "d", Seq: seq, HLC: oplog.HLC{WallMS: int64(seq), Device: "d"},
				Scope: oplog.Personal, Surface: oplog.Intents,
				Payload: fmt.Appendf(nil, `{"agent_id":"a%d","attempt":"n","epoch":%d,"id":"r%d","status":"committed"}`, i%3, round, i)}
			packed.Apply(op)
			live.Apply(op)
			seq++
			for _, a := range live.agents { // as if nothing were ever packed
				for entry, at := range a.packed.refs {
					if at != 0 && at != gone {
						live.unpack(agentOf(op), a, fmt.Sprintf("r%d", i), entry)
					}
				}
			}
		}
		if packed.Digest() != live.Digest() {
			t.Fatalf("round %d: packed and live differ", round)
		}
	}
	if a := &packed.packed.arena; a.dead > a.bytes/2+blockBytes || a.bytes > 3*blockBytes {
		t.Errorf("%d of %d bytes of the arena are let go", a.dead, a.bytes)
	}
	count := 0
	for _, agent := range packed.Agents() {
		for _, run := range packed.Runs(agent) {
			rec, ok := packed.CommittedRun(agent, run)
			if !ok || rec.Epoch != rounds-1 {
				t.Fatalf("%s/%s: %+v", agent, run, rec)
			}
			count++
		}
	}
	if count != runs {
		t.Errorf("%d runs, want %d", count, runs)
	}
}

func agentOf(op oplog.Op) string { return oplog.ReadIntent(op.Payload).Agent }

func TestARunTooLargeToPackIsKeptAsItIs(t *testing.T) {
	s := New()
	big := strings.Repeat("x", 2*blockBytes)
	for seq, agent := range []string{"a", "a"} {
		s.Apply(oplog.Op{ID: oplog.OpID(fmt.Sprint(seq)), Device: "d", Seq: uint64(seq), HLC: oplog.HLC{WallMS: int64(seq), Device: "d"}, Surface: oplog.Intents,
			Payload: []byte(`{"agent_id":"` + agent + `","attempt":"` + fmt.Sprint(seq) + `","id":"r","reason":"` + big[:len(big)*seq] + `","status":"committed"}`)})
	}
	if rec, ok := s.CommittedRun("a", "r"); !ok || len(s.agents["a"].live) != 1 || s.agents["a"].packed.live != 0 || len(rec.Reason) != len(big) {
		t.Errorf("live %d, packed %d", len(s.agents["a"].live), s.agents["a"].packed.live)
	}
}
