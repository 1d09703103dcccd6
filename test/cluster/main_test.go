package cluster_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.RunMember()
	goleak.VerifyTestMain(m)
}

// bounded is the longest that a test waits for one thing. Nothing is measured against it.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
