package dir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
)

// Two machines that share a folder exchange a chain.
func Example() {
	shared, err := os.MkdirTemp("", "shared")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(shared)
	ctx := context.Background()

	here, err := dir.Open(dir.Config{Path: filepath.Join(shared, "relay")})
	if err != nil {
		panic(err)
	}
	defer here.Close()
	there, err := dir.Open(dir.Config{Path: filepath.Join(shared, "relay")})
	if err != nil {
		panic(err)
	}
	defer there.Close()

	stamp := oplog.NewClock("web01").Tick(1767323045000)
	op, err := oplog.New("web01", 0, "", stamp, oplog.Personal, oplog.Knowledge, []byte(`{"body":"hello","id":"greeting"}`))
	if err != nil {
		panic(err)
	}
	pushed, err := here.Push(ctx, "web01", []oplog.Op{op})
	fmt.Println(pushed.Accepted, err)

	page, err := there.Pull(ctx, "db02", relay.Want{})
	fmt.Println(len(page.Ops), string(page.Ops[0].Payload), err)
	// Output:
	// 1 <nil>
	// 1 {"body":"hello","id":"greeting"} <nil>
}
