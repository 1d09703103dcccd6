package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	multierror "github.com/hashicorp/go-multierror"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/syncnode/syncnode/coord"
)

// maxReply bounds what one answer of etcd may hold: a page of entries, each far below etcd's own limit.
const maxReply = 64 << 20

// A DialConfig says how to reach a cluster. The fields mean what etcdctl's flags of these names mean.
type DialConfig struct {
	Endpoints []string
	// CACert, Cert and Key name PEM files. Cert and Key are read again at each handshake. Without CACert an
	// https endpoint is verified by the system's roots.
	CACert, Cert, Key string
	// ServerName is verified instead of the endpoint's host.
	ServerName string
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
	// User is NAME or, if Password is empty, NAME:PASSWORD.
	User, Password string
	// Timeout bounds the first contact with each endpoint, as long as none has answered. 5 s if zero.
	Timeout time.Duration
	// KeepAliveTime and KeepAliveTimeout find a connection that went silent. 2 s and 6 s if zero.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// Logger is told of endpoints that failed before another answered; nil discards it.
	Logger *slog.Logger
}

// Dial connects to a cluster. It asks every endpoint at once and succeeds with the first that answers, so that one that is
// silent costs no time while another is there; what is wrong with the rest is not looked for, see Health. If none
// answers, the error names each endpoint and its cause. It matches coord.ErrInvalid if the configuration is wrong, and
// then nothing was contacted; else coord.ErrNotSent. The caller closes the client.
func Dial(ctx context.Context, cfg DialConfig) (*clientv3.Client, error) {
	conf, err := cfg.client()
	if err != nil {
		return nil, fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	answered, failed := probeAll(ctx, conf, cfg.timeout())
	var errs *multierror.Error
	for i, err := range failed {
		if err != nil {
			errs = multierror.Append(errs, fmt.Errorf("endpoint %s: %w", conf.Endpoints[i], err))
		}
	}
	if !answered {
		return nil, fmt.Errorf("no etcd endpoint answers: %w: %w", coord.ErrNotSent, oneLine(errs))
	}
	if errs != nil && cfg.Logger != nil {
		for _, err := range errs.Errors {
			cfg.Logger.Warn("an etcd endpoint does not answer", "err", err)
		}
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w: %s", strings.Join(conf.Endpoints, ","), coord.ErrNotSent, cause(err))
	}
	return client, nil
}

func lines(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (cfg DialConfig) timeout() time.Duration {
	if cfg.Timeout == 0 {
		return 5 * time.Second
	}
	return cfg.Timeout
}

// client checks everything and reports every mistake at once.
func (cfg DialConfig) client() (clientv3.Config, error) {
	var errs *multierror.Error
	conf := clientv3.Config{
		Endpoints: cfg.Endpoints, DialTimeout: cfg.timeout(), Logger: zap.NewNop(), MaxCallRecvMsgSize: maxReply,
		DialKeepAliveTime: cfg.KeepAliveTime, DialKeepAliveTimeout: cfg.KeepAliveTimeout, PermitWithoutStream: true,
		Username: cfg.User, Password: cfg.Password,
	}
	if conf.DialKeepAliveTime == 0 {
		conf.DialKeepAliveTime = 2 * time.Second
	}
	if conf.DialKeepAliveTimeout == 0 {
		conf.DialKeepAliveTimeout = 6 * time.Second
	}
	if len(cfg.Endpoints) == 0 {
		errs = multierror.Append(errs, errors.New("no endpoints"))
	}
	secure := cfg.CACert != "" || cfg.Cert != "" || cfg.Key != "" || cfg.InsecureSkipVerify || cfg.ServerName != ""
	for _, endpoint := range cfg.Endpoints {
		https, err := checkEndpoint(endpoint)
		errs, secure = appended(errs, err), secure || https
	}
	if cfg.Password == "" && cfg.User != "" {
		name, password, ok := strings.Cut(cfg.User, ":")
		if conf.Username, conf.Password = name, password; !ok {
			errs = multierror.Append(errs, fmt.Errorf("user %s has no password", name))
		}
	}
	if cfg.User == "" && cfg.Password != "" {
		errs = multierror.Append(errs, errors.New("a password without a user"))
	}
	if secure {
		tlsConf, err := cfg.tls()
		errs, conf.TLS = appended(errs, err), tlsConf
	}
	return conf, oneLine(errs)
}

// oneLine is nil if there are no errors.
func oneLine(errs *multierror.Error) error {
	if errs == nil {
		return nil
	}
	errs.ErrorFormat = lines
	return errs
}

func appended(errs *multierror.Error, err error) *multierror.Error {
	if err != nil {
		errs = multierror.Append(errs, err)
	}
	return errs
}

func checkEndpoint(endpoint string) (https bool, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case endpoint == "":
		return false, errors.New("an endpoint is empty")
	case !ok:
		return false, nil // HOST:PORT
	case scheme != "http" && scheme != "https" && scheme != "unix" && scheme != "unixs":
		return false, fmt.Errorf("endpoint %s: scheme %q is not http, https, unix or unixs", endpoint, scheme)
	case rest == "":
		return false, fmt.Errorf("endpoint %s: no host", endpoint)
	}
	if _, err := url.Parse(endpoint); err != nil {
		return false, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	return scheme == "https" || scheme == "unixs", nil
}

func (cfg DialConfig) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName, InsecureSkipVerify: cfg.InsecureSkipVerify}
	var errs *multierror.Error
	if cfg.CACert != "" {
		pem, err := os.ReadFile(cfg.CACert)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("cacert %s holds no PEM certificate", cfg.CACert)
		}
		errs, conf.RootCAs = appended(errs, err), pool
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		errs = multierror.Append(errs, errors.New("cert and key need each other"))
	} else if cfg.Cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			errs = multierror.Append(errs, fmt.Errorf("cert %s, key %s: %w", cfg.Cert, cfg.Key, err))
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return conf, oneLine(errs)
}

// probeAll asks all endpoints at the same time and returns once one has answered, or all failed. failed holds, by
// endpoint, why those that came before did not answer.
func probeAll(ctx context.Context, conf clientv3.Config, timeout time.Duration) (answered bool, failed []error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, enough := context.WithCancel(ctx)
	defer enough() // ends the probes that are left
	type result struct {
		endpoint int
		err      error
	}
	results := make(chan result, len(conf.Endpoints))
	for i, endpoint := range conf.Endpoints {
		wg.Go(func() { results <- result{i, probeWithin(ctx, conf, endpoint, timeout)} })
	}
	failed = make([]error, len(conf.Endpoints))
	for range conf.Endpoints {
		r := <-results
		if r.err == nil {
			return true, failed
		}
		failed[r.endpoint] = r.err
	}
	return false, failed
}

func probeWithin(ctx context.Context, conf clientv3.Config, endpoint string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := probe(ctx, conf, endpoint)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %s: %w", timeout, ctx.Err())
	}
	return errors.New(cause(err))
}

func probe(ctx context.Context, conf clientv3.Config, endpoint string) error {
	conf.Endpoints, conf.MaxUnaryRetries, conf.Context = []string{endpoint}, 1, ctx
	client, err := clientv3.New(conf)
	if err != nil {
		return err
	}
	defer client.Close()
	// Asked over the connection itself, the first failure to connect is the answer.
	_, err = etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	return err
}

// cause is the part of a gRPC error that says what is wrong: a refused connection, a certificate, a password.
func cause(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	for _, before := range []string{"desc = ", "transport: "} {
		if i := strings.LastIndex(text, before); i >= 0 {
			text = text[i+len(before):]
		}
	}
	return strings.Trim(text, `"`)
}
