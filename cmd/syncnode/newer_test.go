package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// While a fleet is upgraded nobody may misread what a newer release wrote.
func TestALedgerOfANewerFormatRunsNothingAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := common.get(t)
	h := spaced(hosts(t, 1, c.Endpoints()), "newer")[0]
	h.run("a", "before")
	client := c.Client(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const meta = "/syncnode/newer/meta"
	was, err := client.Get(ctx, meta)
	must(t, err)
	old := string(was.Kvs[0].Value)
	_, err = client.Put(ctx, meta, strings.Replace(strings.Replace(old, `"v":1`, `"v":2`, 1), `"format":1`, `"format":2`, 1))
	must(t, err)
	h.call("exec", "--agent", "a", "--occurrence", "mixed", "--", "sh", "-c", "echo ran > mixed").want(125, "written by a newer release, in format 2, and this release reads 1: upgrade this one")
	h.notThere("mixed")
	h.call("serve").want(1, "upgrade this one")
	_, err = client.Put(ctx, meta, old)
	must(t, err)
	h.run("a", "mixed")
}
