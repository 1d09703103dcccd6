package index_test

import (
	"testing"

	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// FuzzReadDetail: any payload reads as something, and what was read is written and read the same.
func FuzzReadDetail(f *testing.F) {
	f.Add([]byte(`{"agent_id":"a","attempt":"x","epoch":3,"id":"r","status":"failed","cause":"void","why":"start"}`))
	f.Add([]byte(`{"agent_id":"a","id":"r","status":"pending","abandoned":true,"begun":"2026-01-02T03:04:05Z","ended":7}`))
	f.Add([]byte(`{"device":1,"result":[],"settled":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := index.ReadDetail(payload)
		b, err := oplog.Canonical(d)
		if err != nil {
			return // a year that RFC 3339 cannot spell, or too long
		}
		if again, err := oplog.Canonical(index.ReadDetail(b)); err != nil || string(again) != string(b) {
			t.Fatalf("read as\n%s\nand again as\n%s (%v)", b, again, err)
		}
	})
}
