package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A state is what a set of keys held at one revision.
type state struct {
	rev int64
	kvs map[string]*mvccpb.KeyValue // nil for a key that was read and was absent
}

func (s state) has(key string) bool { return s.kvs[key] != nil }

// knows says whether the key was read at all.
func (s state) knows(key string) bool { _, ok := s.kvs[key]; return ok }

// mod is the revision of the last write of the key; 0 if it was absent.
func (s state) mod(key string) int64 {
	if kv := s.kvs[key]; kv != nil {
		return kv.ModRevision
	}
	return 0
}

// on is the etcd lease that the key hangs on; 0 if it is absent or durable.
func (s state) on(key string) clientv3.LeaseID {
	if kv := s.kvs[key]; kv != nil {
		return clientv3.LeaseID(kv.Lease)
	}
	return 0
}

// unchanged compares that the key is as it was read: by revision, and by value too, because a restored
// cluster hands revisions out again. A compare of an absent key's value is never true.
func (s state) unchanged(key string) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.mod(key))}
	if kv := s.kvs[key]; kv != nil {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(key), "=", string(kv.Value)))
	}
	return cmps
}

// gone compares that the key is absent.
func gone(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// on compares that the key hangs on the etcd lease.
func on(key string, id clientv3.LeaseID) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(key), "=", id)
}

// get decodes what the key held; false if it was absent.
func get[V value](s state, key string) (V, bool, error) {
	kv := s.kvs[key]
	if kv == nil {
		var none V
		return none, false, nil
	}
	v, err := decode[V](key, kv.Value)
	return v, err == nil, err
}
