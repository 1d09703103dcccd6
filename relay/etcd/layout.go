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

// version is the v of every JSON value but a head that says what only version 2 can say. A greater one is refused and left alone.
const (
	version     = 1
	headVersion = 2 // has floor, kept or closed
)

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
func (k keys) mark() string                { return k.prefix + "mark" }
func (k keys) closings() string            { return k.prefix + "closings" }
func (k keys) ended() string               { return k.prefix + "closed/" }
func (k keys) closed(device string) string { return k.prefix + "closed/" + device }
func (k keys) newest() string              { return k.prefix + "checkpoint/newest" }
func (k keys) uploads() string             { return k.prefix + "checkpoint/upload/" }
func (k keys) upload(hash string) string   { return k.prefix + "checkpoint/upload/" + hash }
func (k keys) chunks() string              { return k.prefix + "checkpoint/chunk/" }
func (k keys) body(hash string) string     { return k.prefix + "checkpoint/chunk/" + hash + "/" }
func (k keys) chunk(hash string, n int) string {
	return fmt.Sprintf("%scheckpoint/chunk/%s/%04x", k.prefix, hash, n)
}
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
	Bytes   int64      `json:"bytes"` // of the lines of all its ops that are there, as relay.LineLen counts

	Floor  *oplog.Pos `json:"floor,omitempty"`  // up to where it was collected or marked
	Kept   uint64     `json:"kept,omitempty"`   // the first seq that was not deleted
	Closed bool       `json:"closed,omitempty"` // nothing is added any more
}

// text is the stored value.
func (h headValue) text() string {
	h.V = version
	if h.Floor != nil || h.Kept > 0 || h.Closed {
		h.V = headVersion
	}
	return encode(h)
}

// marked is how many ops are below the floor and not deleted.
func (h headValue) marked() int {
	if h.Floor == nil || h.Floor.Seq < h.Kept {
		return 0
	}
	return int(h.Floor.Seq - h.Kept + 1)
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

// newestValue is what the newest checkpoint is about, but for the chains it has closed.
type newestValue struct {
	V        int            `json:"v"`
	Hash     string         `json:"hash"`
	Author   string         `json:"author"`
	Size     int            `json:"size"` // of the body
	Frontier oplog.Frontier `json:"frontier"`
}

// uploadValue is a checkpoint whose chunks are on their way.
type uploadValue struct {
	V       int   `json:"v"`
	Size    int   `json:"size"`
	BeganMS int64 `json:"began_ms"`
}

// closedValue is the end of a closed chain.
type closedValue struct {
	V  int       `json:"v"`
	At oplog.Pos `json:"at"`
}

// closingsValue changes with every chain that is closed.
type closingsValue struct {
	V     int `json:"v"`
	Count int `json:"count"`
}

// markValue says since when ops are marked. It is there from the first mark of a collection until all that was marked is deleted.
type markValue struct {
	V        int    `json:"v"`
	MarkedMS int64  `json:"marked_ms"`
	Nonce    string `json:"nonce"` // no two are the same
}

func (m metaValue) v() (int, int)     { return m.V, version }
func (h headValue) v() (int, int)     { return h.V, headVersion }
func (a ackValue) v() (int, int)      { return a.V, version }
func (m memberValue) v() (int, int)   { return m.V, version }
func (n newestValue) v() (int, int)   { return n.V, version }
func (u uploadValue) v() (int, int)   { return u.V, version }
func (c closedValue) v() (int, int)   { return c.V, version }
func (c closingsValue) v() (int, int) { return c.V, version }
func (m markValue) v() (int, int)     { return m.V, version }

func encode(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own types
	}
	return string(b)
}

// decode reads a value of a version that this release knows. Its errors match relay.ErrCorrupt.
func decode[T interface{ v() (is, known int) }](key string, stored []byte) (T, error) {
	var value T
	if err := json.Unmarshal(stored, &value); err != nil {
		var zero T
		return zero, fmt.Errorf("%w: key %s: %w", relay.ErrCorrupt, key, err)
	}
	is, known := value.v()
	if is > known {
		var zero T
		return zero, fmt.Errorf("%w, or newer than this release: key %s has format version %d, this release knows %d: upgrade this one", relay.ErrCorrupt, key, is, known)
	}
	if is < 1 {
		var zero T
		return zero, fmt.Errorf("%w: key %s has format version %d, this release knows %d", relay.ErrCorrupt, key, is, known)
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

func (c chains) floor() oplog.Frontier {
	f := oplog.Frontier{}
	for device, h := range c {
		if h.Floor != nil {
			f[device] = *h.Floor
		}
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
