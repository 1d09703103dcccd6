package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
)

func TestDialNamesEachEndpointAndItsCause(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	refused := refusing.Addr().String()
	must(t, refusing.Close())
	secure := "https://" + serveTLS(t)

	for _, dial := range []struct {
		endpoints []string
		timeout   time.Duration
		want      []string
	}{
		{[]string{"http://" + refused, secure}, time.Minute, []string{
			"endpoint http://" + refused + ": ", "connection refused", "endpoint " + secure + ": ", "x509"}},
		{[]string{"http://" + silent.Addr().String()}, 300 * time.Millisecond, []string{
			"endpoint http://" + silent.Addr().String() + ": no answer within 300ms"}},
	} {
		_, err = Dial(bounded(t), DialConfig{Endpoints: dial.endpoints, Timeout: dial.timeout})
		wantErr(t, err, coord.ErrNotSent)
		for _, want := range dial.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in: %v", want, err)
			}
		}
	}
}

func TestDialSucceedsWithOneEndpointThatAnswers(t *testing.T) {
	cl := three(t)
	client, err := Dial(bounded(t), DialConfig{Endpoints: []string{"http://127.0.0.1:1", cl.MemberEndpoint(0)}})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	acquire(t, process(t, client, namespace()), "d1")
}

func TestDialAndOpenReportEveryMistakeAtOnce(t *testing.T) {
	_, err := Dial(context.Background(), DialConfig{
		Endpoints: []string{"ftp://x", "http://", ""}, CACert: "/no/such/ca", Cert: "/no/such/cert", User: "root",
	})
	wantErr(t, err, coord.ErrInvalid)
	for _, want := range []string{"ftp", "no host", "empty", "/no/such/ca", "cert and key", "password"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	_, err = Dial(context.Background(), DialConfig{})
	wantErr(t, err, coord.ErrInvalid)
	_, err = Open(context.Background(), Config{Namespace: "a/b", Attempt: -1})
	wantErr(t, err, coord.ErrInvalid)
	for _, want := range []string{"client", "a/b", "negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// serveTLS accepts TLS under a certificate that nobody trusts.
func serveTLS(t *testing.T) string {
	t.Helper()
	cert, key := selfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	must(t, err)
	return cert, key
}
