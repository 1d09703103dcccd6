package etcd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// version is the v of every JSON value. A greater one is refused and left alone.
const version = 1

// keys spells the keys under one prefix.
type keys struct{ prefix string }

func newKeys(namespace string) keys { return keys{"/syncnode/" + namespace + "/relay/"} }

func (k keys) meta() string                { return k.prefix + "meta" }
func (k keys) heads() string               { return k.prefix + "head/" }
func (k keys) head(device string) string   { return k.prefix + "head/" + device }
func (k keys) acks() string                { return k.prefix + "ack/" }
func (k keys) ack(device string) string    { return k.prefix + "ack/" + device }
func (k keys) members() string             { return k.prefix + "member/" }
func (k keys) member(device string) string { return k.prefix + "member/" + device }
func (k keys) op(device string, seq uint64) string {
	return fmt.Sprintf("%sop/%s/%014x", k.prefix, device, seq)
}

// metaValue is who the store is.
type metaValue struct {
	V          int    `json:"v"`
	Instance   string `json:"instance"` // 32 hex digits
	Generation uint64 `json:"generation"`
}

// headValue is the end of one chain, and what the chain takes. No two states of a chain have the same value.
type headValue struct {
	V       int        `json:"v"`
	Seq     uint64     `json:"seq"`
	ID      oplog.OpID `json:"op_id"`
	WallMS  int64      `json:"wall_ms"`
	Counter uint32     `json:"counter"`
	Bytes   int64      `json:"bytes"` // of the lines of all its ops, as relay.LineLen counts
}

func (h headValue) head(device string) oplog.Head {
	return oplog.Head{Seq: h.Seq, ID: h.ID, HLC: oplog.HLC{WallMS: h.WallMS, Counter: h.Counter, Device: device}}
}

// ackValue is what one device has folded.
type ackValue struct {
	V      int            `json:"v"`
	Folded oplog.Frontier `json:"folded"`
}

// memberValue is the row of one device.
type memberValue struct {
	V       int        `json:"v"`
	Role    relay.Role `json:"role"`
	AddedMS int64      `json:"added_ms"`
	SeenMS  int64      `json:"seen_ms"`
}

func (m metaValue) v() int   { return m.V }
func (h headValue) v() int   { return h.V }
func (a ackValue) v() int    { return a.V }
func (m memberValue) v() int { return m.V }

func encode(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own types
	}
	return string(b)
}

// decode reads a value of this version. Its errors match relay.ErrCorrupt.
func decode[T interface{ v() int }](key string, stored []byte) (T, error) {
	var value T
	if err := json.Unmarshal(stored, &value); err != nil {
		var zero T
		return zero, fmt.Errorf("%w: key %s: %w", relay.ErrCorrupt, key, err)
	}
	if value.v() != version {
		var zero T
		return zero, fmt.Errorf("%w: key %s has format version %d, this release knows %d", relay.ErrCorrupt, key, value.v(), version)
	}
	return value, nil
}

// chains are the heads of all chains, by device.
type chains map[string]headValue

func (c chains) frontier() oplog.Frontier {
	f := make(oplog.Frontier, len(c))
	for device, h := range c {
		f[device] = oplog.Pos{Seq: h.Seq, ID: h.ID}
	}
	return f
}

func (c chains) used() int64 {
	var sum int64
	for _, h := range c {
		sum += h.Bytes
	}
	return sum
}

func (r *Relay) decodeHeads(kvs []*mvccpb.KeyValue) (chains, error) {
	heads := make(chains, len(kvs))
	for _, kv := range kvs {
		device := strings.TrimPrefix(string(kv.Key), r.keys.heads())
		if relay.CheckDevice(device) != nil {
			continue // not ours
		}
		h, err := decode[headValue](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		heads[device] = h
	}
	return heads, nil
}

func acked(key string, kvs []*mvccpb.KeyValue) (oplog.Frontier, error) {
	if len(kvs) == 0 {
		return oplog.Frontier{}, nil
	}
	a, err := decode[ackValue](key, kvs[0].Value)
	return a.Folded.Clone(), err
}

func nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func outOfSpace(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }
