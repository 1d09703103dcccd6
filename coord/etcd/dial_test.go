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
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/coord"
)

func TestDialNamesEachEndpointAndItsCause(t *testing.T) {
	silent := accepting(t)
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
		{[]string{"http://" + silent}, 300 * time.Millisecond, []string{
			"endpoint http://" + silent + ": no answer within 300ms"}},
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

// Whoever asks is answered by the one that is there, and has the rest of its time left for what it wants.
func TestDialWaitsForNoSilentEndpointWhileAnotherAnswers(t *testing.T) {
	t.Parallel()
	cl := three(t)
	for name, silent := range map[string]string{"accepts and says nothing": accepting(t), "never accepts": blackhole(t)} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			client, err := Dial(ctx, DialConfig{Endpoints: []string{"http://" + silent, cl.MemberEndpoint(0)}, Timeout: time.Hour})
			must(t, err)
			defer client.Close()
			there, err := Exists(ctx, client, namespace())
			if must(t, err); there {
				t.Error("a ledger that nobody made")
			}
			c, err := Open(ctx, Config{Client: client, Namespace: namespace()})
			must(t, err)
			defer c.Close(ctx)
			_, err = c.Acquire(ctx, request("a", "d1"))
			must(t, err)
		})
	}
}

// accepting is the address of a listener that accepts and says nothing: the kernel does it.
func accepting(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// blackhole is the address of a listener that takes no connection, as its backlog is full: what is sent there vanishes.
func blackhole(t *testing.T) string {
	t.Helper()
	open := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		unix.CloseOnExec(fd)
		return fd
	}
	listener := open()
	must(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(listener, 0))
	at, err := unix.Getsockname(listener)
	must(t, err)
	for range 8 {
		fd := open()
		must(t, unix.SetNonblock(fd, true))
		if err := unix.Connect(fd, at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
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
