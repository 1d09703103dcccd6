package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// memberEnv marks a process as a member; its value is a memberConfig.
const memberEnv = "SYNCNODE_TEST_CLUSTER_MEMBER"

// segmentBytes is the size of a member's write-ahead file. Etcd's 64 MB would be allocated and
// copied for nothing.
const segmentBytes = 4 << 20

// reportFD is where a member tells its parent how it started: the first of the extra files.
const reportFD = 3

// mainCalled says that a second execution of this program would become a member.
var mainCalled atomic.Bool

// Main runs the tests of a package, or the member that this process was started to be. It does not
// return. A TestMain that does more calls RunMember first.
func Main(m *testing.M) {
	RunMember()
	os.Exit(m.Run())
}

// RunMember does nothing in an ordinary process. In a process started as a member it serves until it
// is told to stop or its parent is gone, and does not return. It has to be called before flags are
// parsed and before anything else decides by the arguments what this program is.
func RunMember() {
	mainCalled.Store(true)
	raw, ok := os.LookupEnv(memberEnv)
	if !ok {
		return
	}
	_ = os.Unsetenv(memberEnv)
	os.Exit(serveMember(raw))
}

// A memberConfig is what a member is told by its parent.
type memberConfig struct {
	Name, Token, DataDir, LogFile, LogLevel string
	PeerURL, ClientURL, InitialCluster      string // advertised: the proxies
	TickMS, ElectionMS                      uint
	QuotaBytes                              int64
	SnapshotCount                           uint64
	NoFsync                                 bool
}

// A report is what a member tells its parent, once.
type report struct {
	ID           uint64
	Peer, Client string // where it listens
	Error        string
}

// serveMember is the life of a member and returns its exit code.
func serveMember(raw string) int {
	signal.Ignore(syscall.SIGINT) // a terminal's interrupt is the parent's to judge
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the parent is gone
	}()

	out := os.NewFile(reportFD, "report")
	etcd, err := startMember(raw)
	if err != nil {
		_ = json.NewEncoder(out).Encode(report{Error: err.Error()})
		return 1
	}
	err = json.NewEncoder(out).Encode(report{
		ID:     uint64(etcd.Server.MemberID()),
		Peer:   etcd.Peers[0].Addr().String(),
		Client: etcd.Clients[0].Addr().String(),
	})
	if err = errors.Join(err, out.Close()); err != nil {
		return 1
	}
	select {
	case <-term:
		time.AfterFunc(10*time.Second, func() { os.Exit(4) })
		etcd.Close()
		return 0
	case err := <-etcd.Err():
		fmt.Fprintln(os.Stderr, "member failed:", err)
	case <-etcd.Server.StopNotify():
		fmt.Fprintln(os.Stderr, "member stopped by itself")
	}
	return 1
}

func startMember(raw string) (*embed.Etcd, error) {
	var mc memberConfig
	if err := json.Unmarshal([]byte(raw), &mc); err != nil {
		return nil, fmt.Errorf("read %s: %w", memberEnv, err)
	}
	cfg, err := mc.embedConfig()
	if err != nil {
		return nil, err
	}
	wal.SegmentSizeBytes = segmentBytes
	return embed.StartEtcd(cfg)
}

func (mc memberConfig) embedConfig() (*embed.Config, error) {
	peer, errPeer := url.Parse(mc.PeerURL)
	client, errClient := url.Parse(mc.ClientURL)
	if err := errors.Join(errPeer, errClient); err != nil {
		return nil, err
	}
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // the kernel picks, so nothing can be taken meanwhile

	cfg := embed.NewConfig()
	cfg.Name = mc.Name
	cfg.Dir = mc.DataDir
	cfg.InitialCluster = mc.InitialCluster
	cfg.InitialClusterToken = mc.Token
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{any}, []url.URL{*peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{any}, []url.URL{*client}
	cfg.TickMs, cfg.ElectionMs = mc.TickMS, mc.ElectionMS
	cfg.QuotaBackendBytes = mc.QuotaBytes
	if mc.SnapshotCount > 0 {
		cfg.SnapshotCount = mc.SnapshotCount
	}
	cfg.UnsafeNoFsync = mc.NoFsync
	cfg.EnableGRPCGateway = false // it dials the listen URL, whose port is not known
	cfg.LogLevel = mc.LogLevel
	cfg.LogOutputs = []string{mc.LogFile}
	return cfg, nil
}
