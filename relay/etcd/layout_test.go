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
		{k.head("laptop-1"), encode(headValue{V: version, Seq: 4711, ID: id, WallMS: 1767323045000, Counter: 2, Bytes: 123456})},
		{k.ack("laptop-1"), encode(ackValue{V: version, Folded: oplog.Frontier{"b": {Seq: 0, ID: id}, "a": {Seq: 7, ID: id}}})},
		{k.member("laptop-1"), encode(memberValue{V: version, Role: relay.Replica, AddedMS: 1767323045000, SeenMS: 1767323046000})},
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
	for _, stored := range []string{"", "{", "null", "[]", `{"v":2,"seq":1}`, `{"v":1,"seq":"x"}`, `{"v":1,"seq":-1}`} {
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
