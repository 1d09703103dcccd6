package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord/etcd"
)

const (
	soon        = 21 * 24 * time.Hour // a certificate that ends within it is a warning
	offWarning  = 2 * time.Second     // clocks that differ by more
	offProblem  = 30 * time.Second    // farther than a trigger may be from its instant
	fullWarning = 80                  // per cent of the quota
	slowWarning = 500 * time.Millisecond
	slowProblem = 3 * time.Second
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (v *visit) etcd(ctx context.Context) {
	v.ownCertificates()
	if v.cfg.Etcd == nil {
		v.add("etcd", Note, "", "not looked at: %s", v.cfg.NoEtcd)
		return
	}
	asked, cancel := v.bounded(ctx)
	defer cancel()
	all, err := v.cfg.Etcd.Health(asked)
	if err != nil {
		v.add("etcd", Problem, "mend the flags that name the cluster", "%v", err)
		return
	}
	v.members(all)
	if answering(all) == 0 {
		return
	}
	if v.cfg.Connected != nil {
		v.add("etcd", Problem, "give the user or the certificate that etcd wants", "no connection: %v", v.cfg.Connected)
	}
	v.versions(of(all, func(h etcd.MemberHealth) string { return h.Version }))
	if !v.cfg.Etcd.Embedded {
		v.theirCertificates(all)
		v.clocks(all)
	}
	v.space(all)
	v.latency(ctx)
}

func answering(all []etcd.MemberHealth) (n int) {
	for _, h := range all {
		if h.Err == nil {
			n++
		}
	}
	return n
}

func of(all []etcd.MemberHealth, f func(etcd.MemberHealth) string) map[string]string {
	out := map[string]string{}
	for _, h := range all {
		if h.Err == nil {
			out[h.Endpoint] = f(h)
		}
	}
	return out
}

func (v *visit) members(all []etcd.MemberHealth) {
	clusters, members := map[string][]string{}, map[string]bool{}
	for _, h := range all {
		if h.Err != nil {
			level := Warning
			if answering(all) == 0 {
				level = Problem
			}
			v.add("endpoints", level, "start that member, or take it out of --endpoints", "%s does not answer: %v", h.Endpoint, h.Err)
			continue
		}
		id := fmt.Sprintf("%x", h.Cluster)
		clusters[id] = append(clusters[id], h.Endpoint)
		members[fmt.Sprintf("%x", h.Member)] = true
		switch {
		case h.Leader == 0:
			v.add("endpoints", Problem, "bring back enough members for a majority", "%s sees no leader: nothing can begin", h.Endpoint)
		case h.Learner:
			v.add("endpoints", Warning, "promote it, or take it out of --endpoints", "%s is a learner and serves no run", h.Endpoint)
		}
		for _, e := range h.Errors {
			v.add("endpoints", Warning, "look at that member's log", "%s says of itself: %s", h.Endpoint, e)
		}
	}
	if len(clusters) > 1 {
		var parts []string
		for _, id := range sortedKeys(clusters) {
			parts = append(parts, id+": "+strings.Join(clusters[id], ", "))
		}
		v.add("endpoints", Problem, "give the endpoints of one cluster only: two clusters are two ledgers", "the endpoints belong to %d clusters (%s)", len(clusters), strings.Join(parts, "; "))
		return
	}
	for id := range clusters {
		v.add("endpoints", OK, "", "%d of %d endpoints answer, %d members of cluster %s", answering(all), len(all), len(members), id)
	}
}

// ownCertificates judges the files that this device shows or trusts.
func (v *visit) ownCertificates() {
	if v.cfg.Cert != "" {
		if _, err := tls.LoadX509KeyPair(v.cfg.Cert, v.cfg.Key); err != nil {
			v.add("certificates", Problem, "bring a certificate and the key that belongs to it", "--cert %s, --key %s: %v", v.cfg.Cert, v.cfg.Key, err)
		}
	}
	for _, file := range []string{v.cfg.CACert, v.cfg.Cert} {
		if file == "" {
			continue
		}
		certs, err := readCertificates(file)
		if err != nil {
			v.add("certificates", Problem, "bring that file", "%s: %v", file, err)
		}
		for _, c := range certs {
			v.expiry(file, c)
		}
	}
}

func readCertificates(file string) ([]*x509.Certificate, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no certificate in it")
	}
	return all, nil
}

func (v *visit) expiry(where string, c *x509.Certificate) {
	left := c.NotAfter.Sub(v.cfg.Now())
	name := fmt.Sprintf("%s (%s)", where, c.Subject.CommonName)
	end := c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case v.cfg.Now().Before(c.NotBefore):
		v.add("certificates", Problem, "set the clock right, or wait", "%s is not valid before %s", name, c.NotBefore.UTC().Format(time.RFC3339))
	case left <= 0:
		v.add("certificates", Problem, "renew it", "%s ended at %s", name, end)
	case left < soon:
		v.add("certificates", Warning, "renew it; the file is read again at each connection", "%s ends at %s, in %d days", name, end, int(left/(24*time.Hour)))
	default:
		v.add("certificates", OK, "", "%s is valid until %s", name, end)
	}
}

func (v *visit) theirCertificates(all []etcd.MemberHealth) {
	for _, h := range all {
		switch {
		case h.Err != nil:
		case h.Certificate != nil:
			v.expiry(h.Endpoint, h.Certificate)
		case clear(h.Endpoint):
			v.add("certificates", Warning, "let etcd serve https, and give --cacert: who can listen reads passwords, and who can write there can begin runs", "%s is reached in clear text over a network", h.Endpoint)
		}
	}
}

// clear reports whether an endpoint is reached without TLS, and not on this host alone.
func clear(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		u = &url.URL{Scheme: "http", Host: endpoint}
	}
	if u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// clocks compares the clocks of the members with this host's. etcd itself has none that it tells; its HTTP side tells the time to the second.
func (v *visit) clocks(all []etcd.MemberHealth) {
	for _, h := range all {
		switch {
		case h.Err != nil:
		case h.DateErr != nil:
			v.add("clock", Note, "", "%s: not measured: %v", h.Endpoint, h.DateErr)
		default:
			least, most := offset(h)
			v.clock(h.Endpoint, least, most)
		}
	}
}

// offset is by how much a member's clock is ahead of this one's, at least and at most: it read Date to Date plus a second at some moment
// between Asked and Heard.
func offset(h etcd.MemberHealth) (least, most time.Duration) {
	return h.Date.Sub(h.Heard.Round(0)), h.Date.Add(time.Second).Sub(h.Asked.Round(0))
}

func (v *visit) clock(endpoint string, least, most time.Duration) {
	sure := time.Duration(0) // that it is off by at least
	switch {
	case least > 0:
		sure = least
	case most < 0:
		sure = -most
	}
	what := fmt.Sprintf("the clock of %s is ahead of this host's by %s to %s", endpoint, least.Round(10*time.Millisecond), most.Round(10*time.Millisecond))
	do := "let NTP set both clocks"
	switch {
	case sure > offProblem:
		v.add("clock", Problem, do+": triggers name the occurrence that is nearest to this host's time, and logs wait for stamps from the future", "%s", what)
	case sure > offWarning:
		v.add("clock", Warning, do, "%s", what)
	default:
		v.add("clock", OK, "", "%s (measured to the second)", what)
	}
}

// defaultQuota is etcd's own where a release does not tell it.
const defaultQuota = 2 << 30

func (v *visit) space(all []etcd.MemberHealth) {
	for _, h := range all {
		if h.Err != nil {
			continue
		}
		quota, told := h.Quota, ""
		if quota <= 0 {
			quota, told = defaultQuota, ", if it was not changed"
		}
		full := h.DBSize * 100 / quota
		what := fmt.Sprintf("%s uses %d MiB of a quota of %d MiB (%d %%%s)", h.Endpoint, h.DBSize>>20, quota>>20, full, told)
		if full >= fullWarning {
			v.add("space", Warning, "compact and defragment (etcdctl compact, etcdctl defrag), or raise --quota-backend-bytes: a full etcd begins no run", "%s", what)
			continue
		}
		v.add("space", OK, "", "%s", what)
	}
	v.alarms(all)
}

// alarms are told by every member; each is shown once.
func (v *visit) alarms(all []etcd.MemberHealth) {
	seen := map[etcd.Alarm]bool{}
	for _, h := range all {
		for _, a := range h.Alarms {
			if seen[a] {
				continue
			}
			seen[a] = true
			do := "restore that member from another one, and look at its disk"
			if a.Kind == "NOSPACE" {
				do = "etcdctl compact, etcdctl defrag on every member, then etcdctl alarm disarm: until then nothing begins"
			}
			v.add("alarms", Problem, do, "member %x has raised %s", a.Member, a.Kind)
		}
	}
	if len(seen) == 0 {
		v.add("alarms", OK, "", "none")
	}
}

func (v *visit) latency(ctx context.Context) {
	if v.cfg.Etcd.Measure == nil {
		return
	}
	asked, cancel := v.bounded(ctx)
	defer cancel()
	l, err := v.cfg.Etcd.Measure(asked)
	if err != nil {
		v.add("latency", Problem, "look at etcd's log: slow disks and lost majorities look like this", "not measured: %v", err)
		return
	}
	what := fmt.Sprintf("read %d ms, grant of a lease %d ms, keepalive %d ms", l.Read.Milliseconds(), l.Grant.Milliseconds(), l.Keepalive.Milliseconds())
	do := "look at the disks of the members (etcd's log warns of slow fsync) and at the network"
	switch worst := max(l.Read, l.Grant, l.Keepalive); {
	case worst > slowProblem:
		v.add("latency", Problem, do+": leases of 5 s and less cannot be kept", "%s", what)
	case worst > slowWarning:
		v.add("latency", Warning, do, "%s", what)
	default:
		v.add("latency", OK, "", "%s", what)
	}
}
