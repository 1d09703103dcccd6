package main

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord/etcd"
)

func TestWhatOnlyLooksMakesNoLedger(t *testing.T) {
	t.Parallel()
	endpoints := common.get(t).Endpoints()
	h := spaced(hosts(t, 1, endpoints), "nothing-there")[0]
	for _, verb := range [][]string{
		{"run", "list"}, {"run", "show", "--agent", "a", "--occurrence", "k"}, {"lease", "list"}, {"agent", "show", "a"}, {"recover", "status"},
		{"run", "retry", "--agent", "a", "--occurrence", "k", "--reason", "x"},
	} {
		h.call(verb...).want(1, "no ledger of namespace nothing-there in etcd ", "none was made")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	must(t, err)
	defer c.Close()
	made, err := c.Get(t.Context(), etcd.Prefix("nothing-there"), clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if made.Count != 0 {
		t.Errorf("%d keys were made", made.Count)
	}
	h.call("exec", "-q", "--agent", "a", "--occurrence", "k", "--", "true").want(0)
	h.call("run", "list").want(0).prints("committed")
}
