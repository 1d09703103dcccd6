package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/syncnode/syncnode/oplog"
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
	leaves []treeLeaf // in the order of their keys, without those of packed runs
	packed []ref      // the packed runs that have a leaf here, each once
	dirty  bool
	sum    hash
}

type treeLeaf struct{ key, sum hash }

// bucketOf is the number of the bucket that the leaf of that key is in: its first 12 bits.
func bucketOf(key hash) int { return int(key[0])<<4 | int(key[1])>>4 }

func (t *tree) bucket(n int) (*group, *bucket) {
	g := t.groups[n/fan]
	if g == nil {
		g = &group{}
		t.groups[n/fan] = g
	}
	return g, &g.buckets[n%fan]
}

func (b *bucket) find(key hash) (int, bool) {
	return slices.BinarySearchFunc(b.leaves, key, func(l treeLeaf, key hash) int { return bytes.Compare(l.key[:], key[:]) })
}

// put adds the leaf of a record under its key, or replaces it.
func (t *tree) put(rec *Record, key ...string) {
	l := hashLeaf(rec, key)
	g, b := t.bucket(bucketOf(l.key))
	i, found := b.find(l.key)
	if found {
		b.leaves[i] = l
	} else {
		b.leaves = slices.Insert(b.leaves, i, l)
		t.leaves++
	}
	t.dirty, g.dirty, b.dirty = true, true, true
}

// pack replaces the leaf of that key by its packed run, or adds it.
func (t *tree) pack(key hash, at ref) {
	g, b := t.bucket(bucketOf(key))
	if i, found := b.find(key); found {
		b.leaves = slices.Delete(b.leaves, i, i+1)
		if len(b.leaves) == 0 {
			b.leaves = nil
		}
	} else {
		t.leaves++
		t.dirty, g.dirty, b.dirty = true, true, true
	}
	if n := len(b.packed); n > 0 && b.packed[n-1] == at {
		return
	}
	if len(b.packed) == cap(b.packed) {
		b.packed = append(make([]ref, 0, len(b.packed)*5/4+2), b.packed...)
	}
	b.packed = append(b.packed, at)
}

// unpack forgets one leaf of a packed run, which is put next.
func (t *tree) unpack(n int, at ref) {
	_, b := t.bucket(n)
	if i := slices.Index(b.packed, at); i >= 0 {
		b.packed = slices.Delete(b.packed, i, i+1)
	}
	t.leaves--
}

// move tells the tree where packed runs are now.
func (t *tree) move(to map[ref]ref) {
	for _, g := range t.groups {
		if g == nil {
			continue
		}
		for i := range g.buckets {
			for j, at := range g.buckets[i].packed {
				g.buckets[i].packed[j] = to[at]
			}
		}
	}
}

// leafKey hashes the key of a leaf, which is the surface and the parts.
func leafKey(surface oplog.Surface, parts []string) hash {
	return sha256.Sum256(appendKey(lp(make([]byte, 0, 512), leafKeyFormat), surface, parts))
}

func appendKey(b []byte, surface oplog.Surface, parts []string) []byte {
	b = lp(b, string(surface))
	for _, p := range parts {
		b = lp(b, p)
	}
	return b
}

// hashLeaf hashes the key and the leaf, which is the key and the record.
func hashLeaf(rec *Record, parts []string) treeLeaf {
	b := appendKey(lp(make([]byte, 0, 512+len(rec.Payload)), leafKeyFormat), rec.Surface, parts)
	var l treeLeaf
	l.key = sha256.Sum256(b)

	key := b[8+len(leafKeyFormat):]
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

// packedLeaves appends the leaves that a packed run has in bucket n.
func (p *packed) packedLeaves(dst []treeLeaf, at ref, n int) []treeLeaf {
	agent, run, slots, buckets := p.slots(at)
	for i, sl := range slots {
		if buckets[i] == n {
			dst = append(dst, hashLeaf(sl.rec, sl.parts(agent, run)))
		}
	}
	return dst
}

// all are the leaves of bucket n in the order of their keys.
func (b *bucket) all(p *packed, n int) []treeLeaf {
	if len(b.packed) == 0 {
		return b.leaves
	}
	leaves := slices.Clone(b.leaves)
	for _, at := range b.packed {
		leaves = p.packedLeaves(leaves, at, n)
	}
	slices.SortFunc(leaves, func(x, y treeLeaf) int { return bytes.Compare(x.key[:], y.key[:]) })
	return leaves
}

func (b *bucket) hash(p *packed, n int) hash {
	if b.dirty {
		leaves := b.all(p, n)
		buf := u64(lp(make([]byte, 0, 64+len(leaves)*sha256.Size), bucketFormat), uint64(len(leaves)))
		for i := range leaves {
			buf = append(buf, leaves[i].sum[:]...)
		}
		b.sum, b.dirty = sha256.Sum256(buf), false
	}
	return b.sum
}

func (g *group) hash(p *packed, first int) hash {
	if g != nil && g.dirty {
		buf := lp(make([]byte, 0, 64+fan*sha256.Size), groupFormat)
		for i := range g.buckets {
			sum := g.buckets[i].hash(p, first+i)
			buf = append(buf, sum[:]...)
		}
		g.sum, g.dirty = sha256.Sum256(buf), false
	}
	if g == nil {
		return hash{}
	}
	return g.sum
}

func (t *tree) hash(p *packed) hash {
	if t.dirty || t.leaves == 0 {
		buf := u64(lp(make([]byte, 0, 64+fan*sha256.Size), stateFormat), t.leaves)
		for i, g := range t.groups {
			sum := g.hash(p, i*fan)
			buf = append(buf, sum[:]...)
		}
		t.sum, t.dirty = sha256.Sum256(buf), false
	}
	return t.sum
}

// Digest covers the whole state with its stamps: equal digests mean equal states, whatever ops led there. It does
// not cover the frontier; neither do parked ops enter it. docs/formats/oplog.md has the bytes.
func (s *State) Digest() Digest {
	sum := s.tree.hash(&s.packed)
	return Digest(hex.EncodeToString(sum[:]))
}

// FrontierDigest covers the frontier and the chains that are closed, as one: equal ones mean that the same ops were
// folded, whatever is closed.
func (s *State) FrontierDigest() Digest {
	all := s.heads.Clone()
	maps.Copy(all, s.closed)
	buf := u64(lp(nil, frontierFormat), uint64(len(all)))
	for _, device := range all.Devices() {
		buf = lp(u64(lp(buf, device), all[device].Seq), string(all[device].ID))
	}
	sum := sha256.Sum256(buf)
	return Digest(hex.EncodeToString(sum[:]))
}

func lp[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(u64(dst, uint64(len(s))), s...)
}

func u64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }
