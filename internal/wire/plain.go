package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// A Reply is what came back to a plain request.
type Reply struct {
	Status int
	Header http.Header
	Kind   string // its media type
	Body   []byte
}

// JSON makes a plain request, which bears no id: whoever asks judges the reply. in is its body; nil: none. Its error
// matches ErrUnsent or ErrUnknown. A body longer than MaxAnswer is ErrUnknown.
func (c *Client) JSON(ctx context.Context, method, path string, in any) (*Reply, error) {
	q := Question{Verb: method + " " + path}
	if ctx.Err() != nil {
		return nil, c.failed(ctx, q, ErrUnsent, ctx.Err())
	}
	body := ""
	if in != nil {
		text, err := raw(in)
		if err != nil {
			return nil, c.failed(ctx, q, ErrUnsent, err)
		}
		body = string(text)
	}
	used := &atomic.Bool{}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { used.Store(true) }})
	req, err := http.NewRequestWithContext(traced, method, c.base.JoinPath(path).String(), strings.NewReader(body))
	if err == nil {
		req.Header.Set("Accept", "application/json, "+ProblemType)
		req.Header.Set("Accept-Encoding", "identity")
		if in != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		err = c.identify(req)
	}
	if err != nil {
		return nil, c.failed(ctx, q, ErrUnsent, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		kind := ErrUnknown
		if c.unsent(err, used) {
			kind = ErrUnsent
		}
		return nil, c.failed(ctx, q, kind, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxAnswer+1))
	if err == nil && int64(len(text)) > c.cfg.MaxAnswer {
		err = errors.New("the answer is longer than allowed")
	}
	if err != nil {
		return nil, c.failed(ctx, q, ErrUnknown, fmt.Errorf("status %d: %w", resp.StatusCode, err))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return &Reply{Status: resp.StatusCode, Header: resp.Header, Kind: kind, Body: text}, nil
}
