package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// A MemberHealth is what one endpoint says of itself.
type MemberHealth struct {
	Endpoint string
	Err      error // it did not answer; the fields down to Errors are empty
	Cluster  uint64
	Member   uint64
	Version  string
	Leader   uint64 // 0: it knows none
	Learner  bool
	DBSize   int64
	// Quota is 0 where the release does not tell it, before 3.6.
	Quota int64
	// Alarms are those that stand in the cluster, as this member knows them; Errors is what else it says of itself.
	Alarms []Alarm
	Errors []string
	// Certificate is what it showed; nil without TLS.
	Certificate *x509.Certificate
	// Date is what its HTTP side says the time is, to the second, between Asked and Heard by this host's clock; DateErr says why it is not known.
	Date, Asked, Heard time.Time
	DateErr            error
}

// Health asks every endpoint of the configuration, at the same time. It changes nothing. Errors of endpoints are in the answers.
func Health(ctx context.Context, cfg DialConfig) ([]MemberHealth, error) {
	conf, err := cfg.client()
	if err != nil {
		return nil, fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	all := make([]MemberHealth, len(conf.Endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range conf.Endpoints {
		wg.Go(func() { all[i] = health(ctx, conf, endpoint, cfg.timeout()) })
	}
	wg.Wait()
	return all, nil
}

func health(ctx context.Context, conf clientv3.Config, endpoint string, timeout time.Duration) MemberHealth {
	h := MemberHealth{Endpoint: endpoint}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if h.Err = h.status(ctx, conf); h.Err != nil && ctx.Err() != nil {
		h.Err = fmt.Errorf("no answer within %s", timeout)
	}
	if h.Err == nil {
		h.http(ctx, conf.TLS)
	}
	return h
}

func (h *MemberHealth) status(ctx context.Context, conf clientv3.Config) error {
	conf.Endpoints, conf.MaxUnaryRetries, conf.Context = []string{h.Endpoint}, 1, ctx
	client, err := clientv3.New(conf)
	if err != nil {
		return errors.New(cause(err))
	}
	defer client.Close()
	r, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return errors.New(cause(err))
	}
	h.Cluster, h.Member, h.Version, h.Leader, h.Learner = r.Header.ClusterId, r.Header.MemberId, r.Version, r.Leader, r.IsLearner
	h.DBSize, h.Quota = r.DbSize, r.DbSizeQuota
	for _, text := range r.Errors {
		if a, is := readAlarm(text); is {
			h.Alarms = append(h.Alarms, a)
		} else {
			h.Errors = append(h.Errors, text)
		}
	}
	return nil
}

// An Alarm is one that a member raised: NOSPACE or CORRUPT.
type Alarm struct {
	Member uint64
	Kind   string
}

// readAlarm reads an alarm as a member's status spells it. To ask for the list of alarms would be a proposal.
func readAlarm(text string) (a Alarm, is bool) {
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, ":")
		switch name {
		case "memberID":
			a.Member, _ = strconv.ParseUint(value, 10, 64)
		case "alarm":
			a.Kind = value
		}
	}
	return a, a.Kind != ""
}

// http asks for /version: every member answers that to all, with the time in the answer's head.
func (h *MemberHealth) http(ctx context.Context, tlsConf *tls.Config) {
	u, err := url.Parse(h.Endpoint)
	if err != nil || u.Host == "" {
		u = &url.URL{Scheme: "http", Host: h.Endpoint}
	}
	transport := &http.Transport{TLSClientConfig: tlsConf, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	switch u.Scheme {
	case "unix", "unixs":
		h.DateErr = errors.New("it is on this host")
		return
	}
	if tlsConf != nil && u.Scheme == "http" && !strings.Contains(h.Endpoint, "://") {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Scheme+"://"+u.Host+"/version", nil)
	if err != nil {
		h.DateErr = err
		return
	}
	h.Asked = time.Now()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	h.Heard = time.Now()
	if err != nil {
		h.DateErr = errors.New("its HTTP side does not answer here")
		h.Certificate = certificate(ctx, u.Host, tlsConf)
		return
	}
	defer resp.Body.Close()
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		h.Certificate = resp.TLS.PeerCertificates[0]
	}
	if h.Date, err = http.ParseTime(resp.Header.Get("Date")); err != nil {
		h.DateErr = errors.New("it tells no time")
	}
}

// certificate is what a TLS endpoint shows; nil if it cannot be had.
func certificate(ctx context.Context, host string, conf *tls.Config) *x509.Certificate {
	if conf == nil {
		return nil
	}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: conf}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// A Latency is how long a linearizable read, a grant of an etcd lease, and a keepalive of it took.
type Latency struct{ Read, Grant, Keepalive time.Duration }

// probeTTL is that of the etcd lease that Measure is granted; it runs out by itself if the program ends before it is revoked.
const probeTTL = 60

// Measure times what a run waits for. It proposes two things to etcd: the grant of an etcd lease with no key on it, and its end.
func Measure(ctx context.Context, client *clientv3.Client, namespace string) (Latency, error) {
	if err := ident.Check("namespace", namespace); err != nil {
		return Latency{}, fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	var l Latency
	ctx = clientv3.WithRequireLeader(ctx)
	began := time.Now()
	if _, err := client.Get(ctx, newLayout(namespace).meta()); err != nil {
		return l, fmt.Errorf("read: %w: %s", coord.ErrNotSent, cause(err))
	}
	l.Read = time.Since(began)
	began = time.Now()
	lease, err := client.Grant(ctx, probeTTL)
	if err != nil {
		return l, fmt.Errorf("grant: %w: %s", coord.ErrIndeterminate, cause(err))
	}
	l.Grant = time.Since(began)
	began = time.Now()
	_, err = client.KeepAliveOnce(ctx, lease.ID)
	l.Keepalive = time.Since(began)
	_, _ = client.Revoke(context.WithoutCancel(ctx), lease.ID) // else it runs out
	if err != nil {
		return l, fmt.Errorf("keepalive: %w: %s", coord.ErrNotSent, cause(err))
	}
	return l, nil
}

// Exists reports whether the namespace has a ledger. It makes none.
func Exists(ctx context.Context, client *clientv3.Client, namespace string) (bool, error) {
	if err := ident.Check("namespace", namespace); err != nil {
		return false, fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	key := newLayout(namespace).meta()
	st, err := (&Coordinator{client: client, attempt: defaultAttempt}).read(ctx, "look for a ledger", "", []string{key})
	return err == nil && st.has(key), err
}

// An Overdue is a liveness whose etcd lease should have ended: etcd says that no time is left, and the key is there.
type Overdue struct {
	Device, Liveness string
	Left             time.Duration // below 0 how long ago it should have ended, as far as etcd tells
}

// mostLives bounds how many livenesses Overdues asks about.
const mostLives = 1000

// Overdues lists the livenesses that etcd should have ended and did not, and how many it looked at. It changes nothing.
func (c *Coordinator) Overdues(ctx context.Context) (late []Overdue, looked int, err error) {
	from := c.keys.prefix + "live/"
	for start, end := from, clientv3.GetPrefixRangeEnd(from); start != "" && looked < mostLives; {
		st, keys, next, err := c.prefix(ctx, "list livenesses", start, end)
		if err != nil {
			return nil, looked, err
		}
		for _, key := range keys[:min(len(keys), mostLives-looked)] {
			looked++
			left, err := c.client.TimeToLive(ctx, st.on(key))
			if err != nil {
				return nil, looked, fmt.Errorf("ask for the rest of an etcd lease: %w: %s", coord.ErrNotSent, cause(err))
			}
			if left.TTL > 0 {
				continue
			}
			now, err := c.read(ctx, "list livenesses", "", []string{key})
			if err != nil {
				return nil, looked, err
			}
			if now.has(key) && now.on(key) == st.on(key) {
				device, liveness, _ := strings.Cut(strings.TrimPrefix(key, from), "/")
				late = append(late, Overdue{Device: device, Liveness: liveness, Left: time.Duration(left.TTL) * time.Second})
			}
		}
		start = next
	}
	slices.SortFunc(late, func(a, b Overdue) int { return strings.Compare(a.Device+a.Liveness, b.Device+b.Liveness) })
	return late, looked, nil
}
