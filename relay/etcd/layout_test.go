package etcd

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

var update = flag.Bool("update", false, "write the golden file")

func golden() string {
	k := newKeys("prod")
	id := oplog.OpID("op-" + strings.Repeat("0123456789abcdef", 4))
	var b strings.Builder
	for _, row := range [][2]string{
		{k.meta(), encode(metaValue{V: version, Instance: strings.Repeat("ab", 16), Generation: 3})},
		{k.head("laptop-1"), headValue{Seq: 4711, ID: id, WallMS: 1767323045000, Counter: 2, Bytes: 123456}.text()},
		{k.ack("laptop-1"), encode(ackValue{V: version, Folded: oplog.Frontier{"b": {Seq: 0, ID: id}, "a": {Seq: 7, ID: id}}})},
		{k.member("laptop-1"), encode(memberValue{V: version, Role: relay.Replica, AddedMS: 1767323045000, SeenMS: 1767323046000})},
	} {
		b.WriteString(row[0] + "\n" + row[1] + "\n")
	}
	b.WriteString(k.head("laptop-2") + "\n" + headValue{Seq: 4711, ID: id, WallMS: 1767323045000, Counter: 2, Bytes: 999,
		Floor: &oplog.Pos{Seq: 4700, ID: id}, Kept: 4001, Closed: true}.text() + "\n")
	hash := strings.Repeat("cd", 32)
	for _, row := range [][2]string{
		{k.mark(), encode(markValue{V: version, MarkedMS: 1767323045000, Nonce: strings.Repeat("ab", 16)})},
		{k.closings(), encode(closingsValue{V: version, Count: 7})},
		{k.closed("laptop-2"), encode(closedValue{V: version, At: oplog.Pos{Seq: 4711, ID: id}})},
		{k.newest(), encode(newestValue{V: version, Hash: hash, Author: "laptop-1", Size: 600000, Frontier: oplog.Frontier{"laptop-1": {Seq: 7, ID: id}}})},
		{k.upload(hash), encode(uploadValue{V: version, Size: 600000, BeganMS: 1767323045000})},
		{k.chunk(hash, 0), "(524288 bytes of the body)"},
		{k.chunk(hash, 31), "(the rest of the body)"},
	} {
		b.WriteString(row[0] + "\n" + row[1] + "\n")
	}
	b.WriteString(k.op("laptop-1", 4711) + "\n(the op's line)\n")
	b.WriteString(k.op("laptop-1", oplog.MaxInt) + "\n(the op's line)\n")
	return b.String()
}

func TestKeysAndValuesAreFrozen(t *testing.T) {
	const file = "testdata/layout.golden"
	if *update {
		if err := os.WriteFile(file, []byte(golden()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := golden(); got != string(want) {
		t.Errorf("the layout changed:\n%s\nwant:\n%s", got, want)
	}
}

func TestAHeadSaysVersion2OnlyIfItHasTo(t *testing.T) {
	id := oplog.OpID("op-" + strings.Repeat("0123456789abcdef", 4))
	old := `{"v":1,"seq":5,"op_id":"` + string(id) + `","wall_ms":1,"counter":0,"bytes":9}`
	h, err := decode[headValue]("k", []byte(old))
	if err != nil || h.text() != old || h.marked() != 0 {
		t.Fatalf("a head of version 1 becomes %s, %v", h.text(), err)
	}
	h.Floor = &oplog.Pos{Seq: 3, ID: id}
	again, err := decode[headValue]("k", []byte(h.text()))
	if err != nil || again.V != headVersion || again.marked() != 4 {
		t.Errorf("a head with a floor: %s, %v", h.text(), err)
	}
}

func TestSeqsSortAsKeysDo(t *testing.T) {
	k := newKeys("ns")
	seqs := []uint64{0, 1, 15, 16, 255, 1 << 32, oplog.MaxInt - 1, oplog.MaxInt, oplog.MaxInt + 1}
	for i, seq := range seqs[1:] {
		if k.op("d", seqs[i]) >= k.op("d", seq) {
			t.Errorf("%s does not sort before %s", k.op("d", seqs[i]), k.op("d", seq))
		}
	}
}

func TestForeignValuesAreRefusedByType(t *testing.T) {
	for _, stored := range []string{"", "{", "null", "[]", `{"v":3,"seq":1}`, `{"v":0,"seq":1}`, `{"v":1,"seq":"x"}`, `{"v":1,"seq":-1}`} {
		if _, err := decode[headValue]("k", []byte(stored)); !errors.Is(err, relay.ErrCorrupt) {
			t.Errorf("%q: %v, expected ErrCorrupt", stored, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"folded":{"a":{"seq":1,"op_id":"x"}}}`))
	f.Fuzz(func(t *testing.T, stored []byte) {
		_, _ = decode[metaValue]("k", stored)
		_, _ = decode[headValue]("k", stored)
		_, _ = decode[memberValue]("k", stored)
		_, _ = decode[newestValue]("k", stored)
		_, _ = decode[markValue]("k", stored)
		if a, err := decode[ackValue]("k", stored); err == nil {
			if b, err := decode[ackValue]("k", []byte(encode(a))); err != nil || !b.Folded.Equal(a.Folded) {
				t.Errorf("%q does not survive a round trip: %v", stored, err)
			}
		}
	})
}

func TestAChunkKeepsTheLimitsOfATransaction(t *testing.T) {
	op := func(n int) oplog.Op { return oplog.Op{Device: "a", Payload: make([]byte, n)} }
	var small, large []oplog.Op
	for range 300 {
		small, large = append(small, op(10)), append(large, op(oplog.MaxPayload))
	}
	if n := chunk(small); n != 126 {
		t.Errorf("a chunk of small ops has %d", n)
	}
	if n := chunk(large); n != 3 {
		t.Errorf("a chunk of the largest ops has %d", n)
	}
}
