package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// A diagnosis is what `doctor -o json` prints.
type diagnosis struct {
	Problems, Warnings int
	Findings           []struct{ Check, Level, What, Do string }
}

func (h host) doctor(code int, args ...string) diagnosis {
	h.t.Helper()
	var d diagnosis
	must(h.t, json.Unmarshal(h.call(append([]string{"doctor", "--json"}, args...)...).want(code).out.Bytes(), &d))
	return d
}

// says checks that a check found something of a level.
func (d diagnosis) says(t *testing.T, check, level, text string) {
	t.Helper()
	for _, f := range d.Findings {
		if f.Check == check && f.Level == level && strings.Contains(f.What+" "+f.Do, text) {
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", level, check, text, d.Findings)
}

func TestDoctorLooksAtEverythingAndProposesOnlyTheProbe(t *testing.T) {
	thorough.Only(t)
	c := lone.get(t)
	h := spaced(hosts(t, 1, c.Endpoints()), "doctor")[0]
	h.doctor(0).says(t, "ledger", "note", "has no ledger yet")
	h.run("job", "one")
	p := h.start("exec", "--agent", "cut", "--occurrence", "off", "--ttl", "2s", "--", "sh", "-c", "echo $$ >c; exec sleep 600")
	child := h.pid("c")
	must(t, p.cmd.Process.Kill())
	p.wait()
	_ = syscall.Kill(child, syscall.SIGKILL)
	eventually(t, "a doubt", func() bool { return h.show("cut", "off").State == "in doubt" })
	var d diagnosis
	for range 10 {
		n, err := c.CountProposals(bounded(t), func() error { d = h.doctor(0); return nil })
		if errors.Is(err, cluster.ErrDisturbed) {
			continue
		}
		must(t, err)
		if n != 2 {
			t.Errorf("doctor made %d proposals, want 2: a lease granted, and revoked", n)
		}
		break
	}
	d.says(t, "endpoints", "ok", "3 of 3 endpoints answer, 3 members")
	d.says(t, "versions", "ok", "etcd 3.7")
	d.says(t, "clock", "ok", "measured to the second")
	d.says(t, "space", "ok", "MiB")
	d.says(t, "alarms", "ok", "none")
	d.says(t, "ledger", "ok", "generation")
	d.says(t, "leases", "ok", "ended every lease in time")
	d.says(t, "runs", "warning", "cut key:off")
	d.says(t, "runs", "warning", "syncnode run resolve")
	d.says(t, "journal", "ok", "every byte was checked")
	d.says(t, "files", "ok", h.dir)
	d.says(t, "zones", "ok", "")
	if !slices.ContainsFunc(d.Findings, func(f struct{ Check, Level, What, Do string }) bool {
		return f.Check == "latency" && strings.Contains(f.What, "keepalive")
	}) {
		t.Errorf("no latency in %+v", d.Findings)
	}
	h.call("recover", "begin", "--reason", "a drill").want(0)
	h.call("doctor").want(1).prints("do: syncnode recover status")
	h.call("doctor", "-o", "yaml").want(2)
}

func TestDoctorNeedsNoEtcdAndStartsNone(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	d := h.doctor(0)
	d.says(t, "etcd", "note", "not looked at")
	d.says(t, "journal", "note", "nothing was run from here yet")
	if _, err := os.Stat(filepath.Join(h.dir, "syncnode")); err == nil {
		t.Error("doctor made a data directory")
	}
	h.run("job", "one")
	d = h.doctor(0)
	d.says(t, "etcd", "note", "none was started")
	d.says(t, "journal", "ok", "2 ops")
	p := h.start("exec", "-q", "--agent", "job", "--occurrence", "two", "--", "sh", "-c", "echo $$ >c; until test -e go; do sleep 0.2; done")
	h.pid("c")
	d = h.doctor(0)
	d.says(t, "endpoints", "ok", "1 of 1")
	d.says(t, "runs", "ok", "none is in doubt")
	h.touch("go")
	p.want(0)
	damage := h.device()
	must(t, os.Chmod(filepath.Join(h.dir, "syncnode"), 0o755))
	segments, err := filepath.Glob(filepath.Join(damage, "journal", "own-*.jsonl"))
	must(t, err)
	data, err := os.ReadFile(segments[0])
	must(t, err)
	data[len(data)/4] ^= 1
	must(t, os.WriteFile(segments[0], data, 0o600))
	d = h.doctor(1)
	d.says(t, "journal", "problem", "log verify")
	d.says(t, "files", "warning", "0755")
	h.with("--endpoints", "http://127.0.0.1:1").doctor(1).says(t, "endpoints", "problem", "refused")
	h.call("doctor", "--user", "x").want(2)
}

// apply carries out the commands that doctor printed, as root.
func apply(t *testing.T, root *clientv3.Client, script, password string) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
		line, _, _ = strings.Cut(line, " #")
		word := strings.Fields(line)
		var err error
		switch what := strings.Join(word[:3], " "); what {
		case "etcdctl role add":
			_, err = root.RoleAdd(bounded(t), word[3])
		case "etcdctl user add":
			_, err = root.UserAdd(bounded(t), word[3], password)
		case "etcdctl user grant-role":
			_, err = root.UserGrantRole(bounded(t), word[3], word[4])
		case "etcdctl role grant-permission":
			kind := map[string]clientv3.PermissionType{"read": clientv3.PermissionType(clientv3.PermRead), "readwrite": clientv3.PermissionType(clientv3.PermReadWrite)}[word[4]]
			key, end := word[len(word)-1], ""
			if word[5] == "--prefix=true" {
				end = clientv3.GetPrefixRangeEnd(key)
			}
			_, err = root.RoleGrantPermission(bounded(t), word[3], key, end, kind)
		default:
			t.Fatalf("what is %q?", line)
		}
		must(t, err)
	}
}

func TestTheRightsThatDoctorPrintsAreEnoughForADeviceAndNoMore(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	certs := newCertificates(t)
	for _, name := range []string{"server", "client"} {
		certs.issue(name)
	}
	endpoint := secureEtcd(t, certs)
	must(t, os.WriteFile(certs.path("password"), []byte("s3cret\n"), 0o600))
	pair, err := tls.LoadX509KeyPair(certs.path("client.pem"), certs.path("client.key"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(mustParse(t, certs.path("ca.pem")))
	dial := func(user, password string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, Username: user, Password: password})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	h := spaced(hosts(t, 1, []string{endpoint}), "rights")[0].with("--device-id", "web01",
		"--cacert", certs.path("ca.pem"), "--cert", certs.path("client.pem"), "--key", certs.path("client.key"), "--user", "web01", "--password-file", certs.path("password"))
	script := h.call("doctor", "--print-rbac").want(0).out.String()
	apply(t, dial("root", "toor"), script, "s3cret")

	h.run("job", "one")
	h.call("exec", "--agent", "job", "--occurrence", "one", "--", "touch", "ran").want(0, "already committed")
	h.notThere("ran")
	h.call("exec", "-q", "--agent", "job", "--occurrence", "bad", "--", "false").want(1)
	node := h.serve("--checkpoint-every", "2")
	eventually(t, "the relay holds the records", func() bool { return strings.Contains(h.call("relay", "status").out.String(), "web01") })
	h.call("recover", "begin", "--reason", "a drill").want(0)
	h.call("recover", "offer").want(0).prints("it counts")
	h.call("recover", "end", "--reason", "a drill").want(0).prints("not set")
	d := h.doctor(0)
	d.says(t, "certificates", "warning", "in 0 days") // those of the test live for an hour
	d.says(t, "alarms", "ok", "none")
	node.stops()

	h.call("agent", "pause", "job", "--reason", "no right").want(1, "permission")
	as := dial("web01", "s3cret")
	for _, key := range []string{"/syncnode/rights/live/web02/x", "/syncnode/rights/offer/web02", "/syncnode/rights/done/job/r1-", "/syncnode/other/meta", "/registry/secrets"} {
		if _, err := as.Put(context.Background(), key, "x"); err == nil {
			t.Errorf("web01 may write %s", key)
		}
	}
	if _, err := as.Get(context.Background(), "/syncnode/other/meta"); err == nil {
		t.Error("web01 may read another namespace")
	}

	limited := h.call("doctor", "--print-rbac", "--rbac-agents", "b,a", "--rbac-no-relay", "--rbac-operator", "--rbac-user", "ops").want(0).out.String()
	for _, want := range []string{"/syncnode/rights/lease/a/", "/syncnode/rights/run/b/", "/syncnode/rights/agent/", "etcdctl user grant-role ops syncnode.rights.web01"} {
		if !strings.Contains(limited, want) {
			t.Errorf("%q is not in\n%s", want, limited)
		}
	}
	if strings.Contains(limited, "/relay/") || strings.Contains(limited, "/syncnode/rights/run/ ") {
		t.Errorf("more than was asked for:\n%s", limited)
	}
	h.call("doctor", "--print-rbac", "--rbac-agents", "../x").want(2)
}

func mustParse(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(file)
	must(t, err)
	block, _ := pem.Decode(raw)
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c
}
