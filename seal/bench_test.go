package seal_test

import (
	"bytes"
	"testing"
)

func BenchmarkSeal(b *testing.B) {
	s := sealer(b, openKeys(b, keyFile(b, 1, 1)), all)
	plain := bytes.Repeat([]byte("x"), 256)
	b.ReportAllocs()
	for b.Loop() {
		mustSeal(b, s, place(), plain)
	}
}

func BenchmarkOpen(b *testing.B) {
	s := sealer(b, openKeys(b, keyFile(b, 1, 1)), all)
	e := mustSeal(b, s, place(), bytes.Repeat([]byte("x"), 256))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Open(place(), e); err != nil {
			b.Fatal(err)
		}
	}
}
