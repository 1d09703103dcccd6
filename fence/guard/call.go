package guard

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// The headers of a call, and of an answer.
const (
	HeaderAgent    = "Syncnode-Agent"    // SYNCNODE_RUN_AGENT
	HeaderEpoch    = "Syncnode-Epoch"    // SYNCNODE_RUN_EPOCH
	HeaderKey      = "Idempotency-Key"   // SYNCNODE_RUN_ID; with a suffix of the caller's if one run makes several calls
	HeaderReplayed = "Syncnode-Replayed" // true: the answer to an earlier call with this key; nothing was executed now
	HeaderExecuted = "Syncnode-Executed" // no or maybe: see Handler
)

// A Call is what a run hands to a resource.
type Call struct {
	Agent string
	Epoch int64
	Key   string // of the effect: the run id, or what begins with it
}

type callKey struct{}

// CallOf returns what the request that ctx belongs to was admitted with, for a handler that admits it again inside of its transaction.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

func callOf(h http.Header) (c Call, err error) {
	for name, into := range map[string]*string{HeaderAgent: &c.Agent, HeaderKey: &c.Key} {
		if *into, err = single(h, name); err != nil {
			return c, err
		}
	}
	epoch, err := single(h, HeaderEpoch)
	if err != nil {
		return c, err
	}
	if c.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil || strconv.FormatInt(c.Epoch, 10) != epoch {
		return c, bad("%s must be a number", HeaderEpoch)
	}
	if c.Key, err = plainKey(c.Key); err != nil {
		return c, err
	}
	if err := check(c.Agent, c.Epoch); err != nil {
		return c, bad("%v", err)
	}
	return c, nil
}

// single refuses what two readers could take for two different values.
func single(h http.Header, name string) (string, error) {
	switch v := h.Values(name); {
	case len(v) == 0 || v[0] == "":
		return "", bad("%s is missing", name)
	case len(v) > 1:
		return "", bad("%s is there %d times", name, len(v))
	default:
		return v[0], nil
	}
}

// plainKey takes a key as it is, or in the quotes of a structured header; both are the same key.
func plainKey(s string) (string, error) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if s == "" || len(s) > 255 || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
		return "", bad("%s must be 1 to 255 visible characters without quotes", HeaderKey)
	}
	return s, nil
}
