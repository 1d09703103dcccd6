package etcd_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
	"github.com/syncnode/syncnode/test/cluster"
)

func TestNothingOfWhatIsSealedLiesInEtcd(t *testing.T) {
	t.Parallel()
	const secret = "hush-7f1c"
	client := single(t, cluster.Config{}).Client(t)
	r := open(t, etcd.Config{Client: client, Namespace: namespace()})
	file := filepath.Join(t.TempDir(), "seal.keys")
	if _, err := seal.Generate(file, time.Now()); err != nil {
		t.Fatal(err)
	}
	var all []*session.Session
	for _, name := range []string{"a", "b"} {
		dir := t.TempDir()
		j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(dir, "journal"), Device: name, SegmentBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		keys, err := seal.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		sealer, err := seal.New(seal.Config{Keys: keys, Policy: seal.Policy{Scopes: []string{seal.Every}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Open(t.Context(), session.Config{Device: name, Journal: j, Seal: sealer,
			Checkpoints: &checkpoint.Store{Dir: filepath.Join(dir, "checkpoints")}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	write := func(s *session.Session, text string) {
		t.Helper()
		for i := range 20 {
			d := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"%s-%d","text":"%s"}`, s.Device(), i, text)}
			if _, err := s.Append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	exchange := func() {
		t.Helper()
		for range 2 {
			for _, s := range all {
				if _, err := s.Pump(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write(all[0], secret)
	write(all[1], secret)
	exchange()
	if out, err := all[0].Publish(t.Context(), r); err != nil || !out.New {
		t.Fatalf("%+v, %v", out, err)
	}
	write(all[1], secret+" later")
	exchange()
	if all[0].Digest() != all[1].Digest() {
		t.Error("the digests differ")
	}
	dump, err := client.Get(t.Context(), "", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	size, checkpoints := 0, 0
	for _, kv := range dump.Kvs {
		size += len(kv.Value)
		if bytes.Contains(kv.Key, []byte("/checkpoint/chunk/")) {
			checkpoints++
		}
		if bytes.Contains(kv.Value, []byte(secret)) {
			t.Errorf("%s shows it: %.200q", kv.Key, kv.Value)
		}
	}
	if size < 60*200 || checkpoints == 0 {
		t.Errorf("%d bytes in %d keys, %d chunks of a checkpoint: something is missing", size, len(dump.Kvs), checkpoints)
	}
}
