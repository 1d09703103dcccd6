package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// freePort is free, and stays so: it lies below those that the kernel gives to connections.
func freePort(t *testing.T) int {
	t.Helper()
	for try := 0; ; try++ {
		port := 16384 + rand.IntN(16384)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			l.Close()
			return port
		}
		if try > 100 {
			t.Fatal(err)
		}
	}
}

func TestThreeMembersFormOneCluster(t *testing.T) {
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprintf("n%d=http://127.0.0.1:%d", i, freePort(t)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	servers := make([]*Server, 3)
	var joining errgroup.Group
	for i := range servers {
		m := Member{Dir: t.TempDir(), Name: fmt.Sprintf("n%d", i), Cluster: strings.Join(names, ","),
			ClientListen: fmt.Sprintf("http://0.0.0.0:%d", freePort(t))}
		joining.Go(func() (err error) {
			servers[i], err = Join(ctx, m)
			return err
		})
	}
	if err := joining.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		defer s.Close()
	}
	if _, err := dial(t, servers[0]).Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	got, err := dial(t, servers[2]).Get(ctx, "k")
	if err != nil || got.Count != 1 {
		t.Fatalf("read by another member: %v, %v", got, err)
	}
}

func TestEveryMistakeOfAMemberIsReportedAtOnce(t *testing.T) {
	_, err := Join(t.Context(), Member{Dir: t.TempDir(), Name: "n9", Cluster: "n1=http://127.0.0.1:1", PeerListen: "x", ClientListen: "http://127.0.0.1"})
	for _, want := range []string{"n9", `"x"`, `"http://127.0.0.1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestAnAddressThatIsInUseIsNamedWithWhatItIsFor(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used, free := "http://"+taken.Addr().String(), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	for _, peers := range []bool{false, true} {
		m := Member{Dir: t.TempDir(), Name: "n", Cluster: "n=" + free, PeerListen: free, ClientListen: used}
		if peers {
			m.PeerListen, m.ClientListen = used, free
		}
		_, err := Join(t.Context(), m)
		if got, ok := errors.AsType[*InUseError](err); !ok || got.Peers != peers || got.URL != used {
			t.Errorf("%v; want %s to be in use, for peers: %v", err, used, peers)
		}
	}
}
