package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/syncnode/syncnode/test/cluster"
)

// roleEnv makes the test binary another program than the tests; see process_test.go.
const roleEnv = "CLUSTER_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "forgetful" {
		_, err := cluster.Start(context.Background(), cluster.Config{})
		fmt.Println(errors.Is(err, cluster.ErrNoMain))
		return
	}
	cluster.RunMember()
	if os.Getenv(roleEnv) == "parent" {
		parent()
		return
	}
	// What runs side by side waits for processes and elections; what the command line says wins.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// bounded is the longest that a test waits for one thing. Nothing is measured against it.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
