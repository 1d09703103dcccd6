package oplog_test

import (
	"testing"

	"github.com/syncnode/syncnode/oplog"
)

func benchOp(b *testing.B) oplog.Op {
	payload, err := oplog.Intent{RunID: "r1-77rfyxeeadkfebn73q3dkmpowfsnqhwuju2k2ywmsbtag5j2jh3a", Agent: "invoices", Epoch: 7,
		Status: oplog.StatusPending, Attempt: "0123456789abcdef0123456789abcdef"}.Payload()
	if err != nil {
		b.Fatal(err)
	}
	op, err := oplog.New("host-a", 0, "", stamp(1_700_000_000_000, "host-a"), oplog.Personal, oplog.Intents, payload)
	return must(b, op, err)
}

func BenchmarkAppendLine(b *testing.B) {
	op := benchOp(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = op.AppendLine(buf[:0])
	}
}

func BenchmarkParseLine(b *testing.B) {
	line := benchOp(b).AppendLine(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := oplog.ParseLine(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	op := benchOp(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := op.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonicalOfGoValue(b *testing.B) {
	in := oplog.ReadIntent(benchOp(b).Payload)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Payload(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadIntent(b *testing.B) {
	op := benchOp(b)
	b.ReportAllocs()
	for b.Loop() {
		oplog.ReadIntent(op.Payload)
	}
}
