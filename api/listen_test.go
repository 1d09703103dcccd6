package api_test

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
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/syncnode/syncnode/api"
)

// shortDir is a directory in which a socket's name fits.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// listening serves on an address until the test's end.
func listening(t *testing.T, s *api.Server, addr string, sec api.Security) (net.Addr, func()) {
	t.Helper()
	a, err := api.ParseAddress(addr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.ListenWithin(a, sec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("served: %v", err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return l.Addr(), stop
}

func overUnix(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

func get(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

func TestTheSocketIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "node.sock")
	s := api.New(api.Config{})
	_, stop := listening(t, s, "unix:"+path, api.Security{})
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	// 503 is the answer of a route that needs the node: the kernel's word about who asks was enough.
	if code := get(t, overUnix(path), "http://node/v1/node"); code != 503 {
		t.Errorf("the owner gets %d", code)
	}
	a, _ := api.ParseAddress("unix:" + path)
	if _, err := api.Listen(a, api.Security{}); err == nil {
		t.Error("the socket of a living server was taken")
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left behind: %v", err)
	}
}

func TestASocketThatADeadProcessLeftIsReplacedAndNothingElse(t *testing.T) {
	path := filepath.Join(shortDir(t), "node.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	_, stop := listening(t, api.New(api.Config{}), "unix:"+path, api.Security{})
	if code := get(t, overUnix(path), "http://node/livez"); code != 200 {
		t.Errorf("live: %d", code)
	}
	stop()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ := api.ParseAddress("unix:" + path)
	if _, err := api.Listen(a, api.Security{}); err == nil {
		t.Error("a file was taken for a socket")
	}
	if text, _ := os.ReadFile(path); string(text) != "mine" {
		t.Error("a file was removed")
	}
}

// issue makes a certificate signed by parent, or by itself, and gives back its files.
func issue(t *testing.T, dir, name string, parent *tls.Certificate) (c tls.Certificate, cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	by, signer := template, any(priv)
	if parent != nil {
		by, signer = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &priv.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if c, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return c, cert, key
}

func TestACertificateSaysWhoAClientIs(t *testing.T) {
	dir := shortDir(t)
	ca, caFile, _ := issue(t, dir, "ca", nil)
	_, cert, key := issue(t, dir, "node.example", &ca)
	oncall, _, _ := issue(t, dir, "oncall.example", &ca)
	other, _, _ := issue(t, dir, "other.example", &ca)
	foreignCA, _, _ := issue(t, dir, "foreign-ca", nil)
	stranger, _, _ := issue(t, dir, "oncall.example.2", &foreignCA)
	cfg, names, err := api.ServerTLS(cert, key, caFile)
	if err != nil || fmt.Sprint(names) != "[node.example]" {
		t.Fatalf("names %v, %v", names, err)
	}
	toks, _ := tokens(t, "name=oncall roles=observe agents=* cert=oncall.example")
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	client := func(c *tls.Certificate) *http.Client {
		conf := &tls.Config{RootCAs: roots}
		if c != nil {
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
		}
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf}}
	}
	for _, with := range []*api.Tokens{nil, toks} {
		addr, _ := listening(t, api.New(api.Config{Tokens: with, Hosts: names}), "127.0.0.1:0", api.Security{TLS: cfg, Tokens: with != nil})
		url := "https://" + addr.String()
		for who, want := range map[*tls.Certificate]int{&oncall: 503, &other: map[bool]int{true: 503, false: 401}[with == nil]} {
			if code := get(t, client(who), url+"/v1/node"); code != want {
				t.Errorf("%s gets %d, want %d (tokens: %v)", who.Leaf.Subject.CommonName, code, want, with != nil)
			}
		}
		if r, err := client(&stranger).Get(url + "/livez"); err == nil {
			t.Errorf("a certificate of another authority gets %d", r.StatusCode)
		}
		if code := get(t, client(nil), url+"/v1/node"); code != 401 {
			t.Errorf("who shows nothing gets %d", code)
		}
		if code := get(t, client(nil), url+"/livez"); code != 200 {
			t.Errorf("a probe without a certificate gets %d", code)
		}
	}
}
