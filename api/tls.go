package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ServerTLS is TLS 1.3 with a certificate that is read again when its file changes. With clientCA, whose certificates a client may
// show, one that is shown has to be signed by it. names are those of the certificate, for Config.Hosts.
func ServerTLS(cert, key, clientCA string) (cfg *tls.Config, names []string, err error) {
	p := &pair{cert: cert, key: key}
	first, err := p.get(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of the API: %w", err)
	}
	names = append(names, first.Leaf.DNSNames...)
	cfg = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: p.get, NextProtos: []string{"http/1.1"}}
	if clientCA == "" {
		return cfg, names, nil
	}
	pem, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, nil, err
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s has no certificate", clientCA)
	}
	return cfg, names, nil
}

// A pair is a certificate and its key in files.
type pair struct {
	cert, key string

	mu   sync.Mutex // guards the rest
	now  *tls.Certificate
	seen [2]os.FileInfo
}

// get is the pair as the files have it. One that cannot be read, as between two renames, leaves what was read last.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, errC := os.Stat(p.cert)
	k, errK := os.Stat(p.key)
	if p.now != nil && (errC != nil || errK != nil || same(c, p.seen[0]) && same(k, p.seen[1])) {
		return p.now, nil
	}
	if err := errors.Join(errC, errK); err != nil {
		return nil, err
	}
	got, err := tls.LoadX509KeyPair(p.cert, p.key)
	switch {
	case err == nil:
		p.now, p.seen = &got, [2]os.FileInfo{c, k}
	case p.now == nil:
		return nil, err
	}
	return p.now, nil
}
