package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// A Member says how this process is one of several members of an etcd cluster.
type Member struct {
	// Dir is the member's own directory; it gets mode 0700.
	Dir string
	// Name is this member's name in Cluster.
	Name string
	// Cluster lists all members as etcd's --initial-cluster does: n1=http://n1:2380,n2=http://n2:2380.
	Cluster string
	// PeerListen and ClientListen are the URLs to listen on, such as http://0.0.0.0:2380. An empty
	// PeerListen is this member's own URL in Cluster; an empty ClientListen is http://127.0.0.1:2379.
	PeerListen, ClientListen string
	// Existing joins a cluster that was formed before, by this member's entry made there by a person.
	Existing bool
}

// Join starts a member of a cluster. It returns when the member is part of a quorum and serves. It revokes
// nothing: other processes of the cluster are alive.
func Join(ctx context.Context, m Member) (*Server, error) {
	cfg, err := m.config()
	if err != nil {
		return nil, fmt.Errorf("embedded etcd member: %w", err)
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd member: %w", err)
	}
	lock, err := takeLock(ctx, Config{Dir: m.Dir})
	if err != nil {
		return nil, err
	}
	s := &Server{dir: m.Dir, lock: lock, endpoint: loopback(cfg.ListenClientUrls[0])}
	if s.etcd, err = embed.StartEtcd(cfg); err != nil {
		s.Close()
		return nil, fmt.Errorf("embedded etcd member %s: %w", m.Name, inUse(cfg, err))
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, s.sign(Owner{PID: os.Getpid(), Since: time.Now(), Endpoint: s.Endpoint()})
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		err = fmt.Errorf("it stopped: see %s", filepath.Join(m.Dir, "etcd.log"))
	case <-ctx.Done():
		err = fmt.Errorf("no quorum of %s yet: %w", m.Cluster, context.Cause(ctx))
	}
	s.Close()
	return nil, fmt.Errorf("embedded etcd member %s: %w", m.Name, err)
}

// An InUseError says that another process listens where a member is to listen.
type InUseError struct {
	Peers bool // the address for other members; otherwise that for clients
	URL   string
	Err   error
}

func (e *InUseError) Error() string { return fmt.Sprintf("%s is in use: %v", e.URL, e.Err) }
func (e *InUseError) Unwrap() error { return e.Err }

// inUse says which of the addresses of a member is in use, if that is what is wrong.
func inUse(cfg *embed.Config, err error) error {
	listen, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) || listen.Addr == nil {
		return err
	}
	_, port, _ := net.SplitHostPort(listen.Addr.String())
	for _, u := range cfg.ListenClientUrls {
		if u.Port() == port {
			return &InUseError{URL: u.String(), Err: err}
		}
	}
	for _, u := range cfg.ListenPeerUrls {
		if u.Port() == port {
			return &InUseError{Peers: true, URL: u.String(), Err: err}
		}
	}
	return err
}

func (m Member) config() (*embed.Config, error) {
	own, missing := ownURL(m.Name, m.Cluster)
	peer, wrong := own, error(nil)
	if m.PeerListen != "" {
		peer, wrong = listenURL(m.PeerListen, "")
	}
	client, err := listenURL(m.ClientListen, "http://127.0.0.1:2379")
	if err := errors.Join(missing, wrong, err); err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, filepath.Join(m.Dir, "member"), m.Cluster
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{own}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	if m.Existing {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.EnableGRPCGateway = false
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{filepath.Join(m.Dir, "etcd.log")}
	return cfg, nil
}

// ownURL finds this member in the list of all.
func ownURL(name, cluster string) (url.URL, error) {
	for _, entry := range strings.Split(cluster, ",") {
		if n, raw, ok := strings.Cut(strings.TrimSpace(entry), "="); ok && n == name {
			return listenURL(raw, "")
		}
	}
	return url.URL{}, fmt.Errorf("member %q is not in the cluster %q: want NAME=URL,NAME=URL", name, cluster)
}

func listenURL(raw, def string) (url.URL, error) {
	if raw == "" {
		raw = def
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return url.URL{}, fmt.Errorf("%q: want a URL such as http://10.0.0.1:2380", raw)
	}
	return *u, nil
}

// loopback is an endpoint for a client on this host.
func loopback(u url.URL) string {
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}
