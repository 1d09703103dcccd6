package etcd_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/test/cluster"
)

func TestARelayOfANewerFormatIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	ns := namespace()
	r, a := open(t, etcd.Config{Client: client, Namespace: ns}), relaytest.NewAuthor("a")
	meta := "/syncnode/" + ns + "/relay/meta"
	was, err := client.Get(t.Context(), meta)
	if err != nil {
		t.Fatal(err)
	}
	old := string(was.Kvs[0].Value)
	put := func(text string) {
		t.Helper()
		if _, err := client.Put(t.Context(), meta, text); err != nil {
			t.Fatal(err)
		}
	}
	put(strings.Replace(old, `"v":1`, `"v":2`, 1))
	_, hello := r.Hello(t.Context(), "a")
	_, opened := etcd.Open(t.Context(), etcd.Config{Client: client, Namespace: ns})
	for what, err := range map[string]error{"hello": hello, "open": opened} {
		if !errors.Is(err, relay.ErrCorrupt) || !strings.Contains(err.Error(), "format version 2, this release knows 1: upgrade this one") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := r.Push(t.Context(), "a", a.Write(t, 1, 60)); err == nil || got.Accepted != 0 {
		t.Errorf("pushed %+v, %v", got, err)
	}
	put(old)
	if got, err := r.Push(t.Context(), "a", a.Ops); err != nil || got.Accepted != 1 {
		t.Errorf("pushed to the format that is known: %+v, %v", got, err)
	}
}
