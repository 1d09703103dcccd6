package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/remote"
)

// nodeFlags say which node a verb uses.
type nodeFlags struct {
	node, token string
}

func (n *nodeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&n.node, "node", "", "use the node at `ADDRESS`: unix:PATH or a URL; none: use no node (that of the data directory, if one runs there)")
	flags.StringVar(&n.token, "node-token", "", "`FILE` with the token for --node")
}

// askTime bounds one request to a node; the node bounds its own at less.
const askTime = 30 * time.Second

// serving is the node through which the ledger is asked; nil if none is to be used. Without --endpoints it is the node of the data
// directory, as for exec: an embedded etcd of the verb's own beside it would be another ledger.
func (n *nodeFlags) serving(ctx context.Context, f *backendFlags) (*nodeClient, error) {
	if n.node == "" && len(f.endpoints) > 0 {
		return nil, nil
	}
	c, err := n.client(f.dataDir)
	if c == nil || err != nil {
		return nil, err
	}
	var info api.NodeInfo
	_, _, err = c.do(ctx, "GET", "/v1/node", nil, &info)
	switch {
	case n.node == "" && (err != nil || info.Namespace != f.namespace):
		return nil, nil // it is starting or going, or serves another ledger
	case err != nil:
		return nil, c.told(err)
	case info.Namespace != f.namespace:
		return nil, fmt.Errorf("the node %s serves namespace %s, not %s: give --namespace %[2]s", c.where, info.Namespace, f.namespace)
	}
	return c, nil
}

// told says which node an error is of.
func (c *nodeClient) told(err error) error {
	if _, named := errors.AsType[*silence](err); named {
		return err
	}
	return fmt.Errorf("node %s: %w", c.where, err)
}

// ledger is the ledger as the node has it, if the node shows it to this caller.
func (c *nodeClient) ledger(ctx context.Context) (*remote.Coordinator, error) {
	host, _ := os.Hostname()
	cfg := remote.Config{URL: c.where, Process: coord.Process{Host: host, PID: os.Getpid()}}
	if c.token != "" {
		cfg.Token = func() (string, error) { return c.token, nil }
	}
	return remote.Open(ctx, cfg)
}

// A nodeClient speaks to one node.
type nodeClient struct {
	where string // for messages
	base  string
	token string
	http  *http.Client
}

// client gives the node to use; nil if there is none. One that was not asked for counts only if it answers.
func (n *nodeFlags) client(dataDir string) (*nodeClient, error) {
	switch n.node {
	case "none":
		return nil, nil
	case "":
		path := nodeSocket(dataDir)
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
			return nil, nil
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return nil, nil // whoever listened there is dead
		}
		conn.Close()
		return newNodeClient("unix:"+path, "")
	}
	return newNodeClient(n.node, n.token)
}

func newNodeClient(where, tokenFile string) (*nodeClient, error) {
	c := &nodeClient{where: where, base: strings.TrimRight(where, "/"), http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	transport := &http.Transport{IdleConnTimeout: time.Minute, ResponseHeaderTimeout: askTime}
	if a, err := api.ParseAddress(where); err == nil && a.Unix != "" {
		c.base = "http://node"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Unix)
		}
	} else if u, err := url.Parse(where); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, usagef("--node %q: want unix:PATH, http://HOST:PORT, https://HOST:PORT or none", where)
	}
	c.http.Transport = transport
	if tokenFile != "" {
		data, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--node-token: %w", err)
		}
		c.token = strings.TrimSpace(string(data))
	}
	return c, nil
}

// A silence means that a node did not answer: it may have done what was asked.
type silence struct {
	where string
	err   error
}

func (e *silence) Error() string { return fmt.Sprintf("node %s did not answer: %v", e.where, e.err) }
func (e *silence) Unwrap() error { return e.err }

// do asks for one thing. The error is a *api.Problem, which is an answer, or a *silence. again is when to ask again, if
// the node says so.
func (c *nodeClient) do(ctx context.Context, method, path string, in, out any) (header http.Header, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, 0, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, 0, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if e, ok := err.(*url.Error); ok {
			err = e.Err // the URL is not what was typed
		}
		return nil, 0, &silence{c.where, err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, 0, &silence{c.where, err}
	}
	if resp.StatusCode < 300 {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, 0, &silence{c.where, fmt.Errorf("its answer makes no sense: %w", err)}
		}
		return resp.Header, 0, nil
	}
	p := &api.Problem{}
	if err := json.Unmarshal(data, p); err != nil || p.Type == "" {
		return nil, 0, &silence{c.where, fmt.Errorf("status %s", resp.Status)}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.Header, time.Duration(seconds) * time.Second, p
}

// problemName is the kind of a problem; empty if err is none.
func problemName(err error) string {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return ""
	}
	return strings.TrimPrefix(p.Type, "/problems/")
}
