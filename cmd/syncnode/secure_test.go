package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/syncnode/syncnode/internal/thorough"
)

// A certificates is an authority and the files of those it signed.
type certificates struct {
	t    *testing.T
	dir  string
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &certificates{t: t, dir: t.TempDir(), key: key, next: 2}
	c.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.write("ca.pem", "CERTIFICATE", c.sign(c.ca, &key.PublicKey))
	return c
}

func (c *certificates) sign(cert *x509.Certificate, public *ecdsa.PublicKey) []byte {
	der, err := x509.CreateCertificate(rand.Reader, cert, c.ca, public, c.key)
	must(c.t, err)
	return der
}

func (c *certificates) path(name string) string { return filepath.Join(c.dir, name) }

func (c *certificates) write(name, kind string, der []byte) {
	must(c.t, os.WriteFile(c.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// issue writes NAME.pem and NAME.key for loopback.
func (c *certificates) issue(name string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(c.t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(c.next), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	c.next++
	c.write(name+".pem", "CERTIFICATE", c.sign(cert, &key.PublicKey))
	der, err := x509.MarshalECPrivateKey(key)
	must(c.t, err)
	c.write(name+".key", "EC PRIVATE KEY", der)
}

// secureEtcd is a member that wants certificates and passwords: user fleet may touch the namespace prod alone.
func secureEtcd(t *testing.T, certs *certificates) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs = t.TempDir(), "error", []string{filepath.Join(t.TempDir(), "etcd.log")}
	client := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = certs.path("server.pem"), certs.path("server.key")
	cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = certs.path("ca.pem"), true
	cfg.UnsafeNoFsync, cfg.BcryptCost = true, 4
	e, err := embed.StartEtcd(cfg)
	must(t, err)
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	endpoint := "https://" + e.Clients[0].Addr().String()

	pair, err := tls.LoadX509KeyPair(certs.path("client.pem"), certs.path("client.key"))
	must(t, err)
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(certs.path("ca.pem"))
	must(t, err)
	roots.AppendCertsFromPEM(ca)
	admin, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
	})
	must(t, err)
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const prefix = "/syncnode/prod/"
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "toor"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.UserAdd(ctx, "fleet", "swordfish"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "syncnode"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "syncnode", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserGrantRole(ctx, "fleet", "syncnode"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		must(t, step())
	}
	return endpoint
}

func TestAnEtcdWithCertificatesPasswordsAndRolesNeedsNoMoreThanItsNamespace(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	certs := newCertificates(t)
	for _, name := range []string{"server", "client"} {
		certs.issue(name)
	}
	endpoint := secureEtcd(t, certs)
	must(t, os.WriteFile(certs.path("password"), []byte("swordfish\n"), 0o600))
	must(t, os.WriteFile(certs.path("wrong"), []byte("guess"), 0o600))
	open := hosts(t, 1, []string{endpoint})[0]
	ca := open.with("--cacert", certs.path("ca.pem"))
	mutual := ca.with("--cert", certs.path("client.pem"), "--key", certs.path("client.key"))
	fleet := mutual.with("--user", "fleet", "--password-file", certs.path("password"))
	prod := fleet.with("--namespace", "prod")
	date := []string{"exec", "--agent", "a", "--occurrence", "1", "--", "true"}

	for _, bad := range []struct {
		name string
		host host
		says string
	}{
		{"a certificate nobody vouches for", open, "certificate"},
		{"no certificate of ours", ca, "endpoint " + endpoint}, // TLS 1.3 may only end the connection
		{"no user", mutual, "--user"},
		{"another password", mutual.with("--user", "fleet", "--password-file", certs.path("wrong")), "password"},
		{"another namespace", fleet.with("--namespace", "other"), "user fleet needs a role that may read and write the keys under /syncnode/other/"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			h := bad.host
			h.t = t
			h.call(date...).want(125, bad.says, "the command was not run")
		})
	}
	prod.call(date...).want(0)
	prod.call(date...).want(0, "already committed")
	for _, verb := range [][]string{{"run", "list"}, {"lease", "list"}, {"agent", "pause", "a", "--reason", "test"}, {"agent", "resume", "a"}} {
		prod.call(verb...).want(0)
	}
	node := prod.serve()
	eventually(t, "the relay holds the record", func() bool { return prod.verify().Ops > 0 })
	node.stops()
}
