package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// A Digest is a SHA-256 in lower-case hex.
type Digest string

// The domains of the hashes. A change of what is hashed is a new version.
const (
	leafKeyFormat  = "syncnode/leaf-key/v1"
	leafFormat     = "syncnode/leaf/v1"
	bucketFormat   = "syncnode/bucket/v1"
	groupFormat    = "syncnode/group/v1"
	stateFormat    = "syncnode/state/v1"
	frontierFormat = "syncnode/frontier/v1"
)

const fan = 64 // groups in the tree, and buckets in a group

type hash = [sha256.Size]byte

// A tree is a Merkle tree of fixed shape over the leaves of the state: 64 groups of 64 buckets, chosen by the first
// 12 bits of the hash of the leaf's key. Only what changed since the last digest is hashed again. What is empty
// hashes to zeros.
type tree struct {
	groups [fan]*group
	leaves uint64
	dirty  bool
	sum    hash
}

type group struct {
	buckets [fan]bucket
	dirty   bool
	sum     hash
}

type bucket struct {
	leaves []treeLeaf // in the order of their keys
	dirty  bool
	sum    hash
}

type treeLeaf struct{ key, sum hash }

// put adds the leaf of a record under its key, or replaces it.
func (t *tree) put(rec *Record, key ...string) {
	l := hashLeaf(rec, key)
	g := t.groups[l.key[0]>>2]
	if g == nil {
		g = &group{}
		t.groups[l.key[0]>>2] = g
	}
	b := &g.buckets[(l.key[0]&3)<<4|l.key[1]>>4]
	i, found := slices.BinarySearchFunc(b.leaves, l, func(a, b treeLeaf) int { return bytes.Compare(a.key[:], b.key[:]) })
	if found {
		b.leaves[i] = l
	} else {
		b.leaves = slices.Insert(b.leaves, i, l)
		t.leaves++
	}
	t.dirty, g.dirty, b.dirty = true, true, true
}

// hashLeaf hashes the key, which is the surface and the parts, and the leaf, which is the key and the record.
func hashLeaf(rec *Record, parts []string) treeLeaf {
	b := make([]byte, 0, 512+len(rec.Payload))
	b = lp(b, leafKeyFormat)
	start := len(b)
	b = lp(b, string(rec.Surface))
	for _, p := range parts {
		b = lp(b, p)
	}
	var l treeLeaf
	l.key = sha256.Sum256(b)

	key := b[start:]
	b = lp(make([]byte, 0, cap(b)), leafFormat)
	b = append(b, key...)
	b = u64(b, uint64(rec.HLC.WallMS))
	b = u64(b, uint64(rec.HLC.Counter))
	b = lp(b, rec.HLC.Device)
	b = lp(b, string(rec.ID))
	b = lp(b, string(rec.Scope))
	b = lp(b, rec.Payload)
	l.sum = sha256.Sum256(b)
	return l
}

func (b *bucket) hash() hash {
	if b.dirty {
		buf := u64(lp(make([]byte, 0, 64+len(b.leaves)*sha256.Size), bucketFormat), uint64(len(b.leaves)))
		for i := range b.leaves {
			buf = append(buf, b.leaves[i].sum[:]...)
		}
		b.sum, b.dirty = sha256.Sum256(buf), false
	}
	return b.sum
}

func (g *group) hash() hash {
	if g != nil && g.dirty {
		buf := lp(make([]byte, 0, 64+fan*sha256.Size), groupFormat)
		for i := range g.buckets {
			sum := g.buckets[i].hash()
			buf = append(buf, sum[:]...)
		}
		g.sum, g.dirty = sha256.Sum256(buf), false
	}
	if g == nil {
		return hash{}
	}
	return g.sum
}

func (t *tree) hash() hash {
	if t.dirty || t.leaves == 0 {
		buf := u64(lp(make([]byte, 0, 64+fan*sha256.Size), stateFormat), t.leaves)
		for _, g := range t.groups {
			sum := g.hash()
			buf = append(buf, sum[:]...)
		}
		t.sum, t.dirty = sha256.Sum256(buf), false
	}
	return t.sum
}

// Digest covers the whole state with its stamps: equal digests mean equal states, whatever ops led there. It does
// not cover the frontier; neither do parked ops enter it. docs/formats/oplog.md has the bytes.
func (s *State) Digest() Digest {
	sum := s.tree.hash()
	return Digest(hex.EncodeToString(sum[:]))
}

// FrontierDigest covers the frontier: equal ones mean that the same ops were folded.
func (s *State) FrontierDigest() Digest {
	buf := u64(lp(nil, frontierFormat), uint64(len(s.frontier)))
	for _, device := range s.frontier.Devices() {
		p := s.frontier[device]
		buf = lp(u64(lp(buf, device), p.Seq), string(p.ID))
	}
	sum := sha256.Sum256(buf)
	return Digest(hex.EncodeToString(sum[:]))
}

func lp[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(u64(dst, uint64(len(s))), s...)
}

func u64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }
