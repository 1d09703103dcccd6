package cluster_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/syncnode/syncnode/test/cluster"
)

// A program that writes to etcd is tested against the two things that surprise it: a leader that dies, and a
// write that took effect although it failed. In a test, cluster.New takes care of the end; TestMain calls
// cluster.Main.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{}) // three members
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	way, err := c.NewClientProxy() // of the program under test alone
	if err != nil {
		log.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: way.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// The reply to the next write is lost after the write took effect.
	way.DropNextReply("Put")
	_, err = client.Put(ctx, "job", "done")
	fmt.Println("the program saw an error:", err != nil)
	if err := way.WaitDropped(ctx); err != nil {
		log.Fatal(err)
	}

	// The leader dies, and what was committed is there.
	leader, err := c.WaitLeader(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Kill(leader); err != nil {
		log.Fatal(err)
	}
	if _, err := c.WaitLeader(ctx, leader); err != nil {
		log.Fatal(err)
	}
	got, err := client.Get(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the job is %s, written %d time\n", got.Kvs[0].Value, got.Kvs[0].Version)
	// Output:
	// the program saw an error: true
	// the job is done, written 1 time
}
