package guard

import (
	"container/list"
	"crypto/sha256"
	"net/http"
	"sync"
)

// keys are the calls that are being executed, and the answers of those that were.
type keys struct {
	keep int64 // bytes

	mu   sync.Mutex
	by   map[string]*record
	over list.List // of *record, the oldest first; those being executed are not in it and not forgotten
	used int64     // bytes of what is in over
}

// A record is a key. Its print and key never change; all else is under keys.mu.
type record struct {
	key   string
	print [sha256.Size]byte
	over  bool
	a     answer
	cost  int64
}

// An answer is what a handler wrote, as far as it is remembered.
type answer struct {
	status int // 0: none
	header http.Header
	body   []byte
	long   bool // the body was not kept
	doubt  bool // the handler did not come to its end
}

// claim returns the record of a key, and whether the caller has just made it and so has to end it by done or forget.
func (k *keys) claim(key string, print [sha256.Size]byte) (*record, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.by[key]; r != nil {
		return r, false
	}
	r := &record{key: key, print: print}
	k.by[key] = r
	return r, true
}

func (k *keys) look(r *record) (a answer, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.a, r.over
}

// forget lets the key be used again.
func (k *keys) forget(r *record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, r.key)
}

// overhead is about what a record takes besides its text.
const overhead = 512

// done keeps the answer, and forgets the oldest ones for it. What was just executed is never forgotten for itself.
func (k *keys) done(r *record, a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a.long || a.doubt {
		a.header, a.body = nil, nil
	}
	r.a, r.over = a, true
	r.cost = overhead + int64(len(r.key)+len(a.body))
	for name, values := range a.header {
		for _, v := range values {
			r.cost += int64(len(name) + len(v))
		}
	}
	k.over.PushBack(r)
	for k.used += r.cost; k.used > k.keep && k.over.Len() > 1; {
		oldest := k.over.Remove(k.over.Front()).(*record)
		k.used -= oldest.cost
		delete(k.by, oldest.key)
	}
}

// A tee hands on what a handler writes, and keeps it. It has no Flush and no Hijack: what is taken away from it could not be remembered.
type tee struct {
	http.ResponseWriter
	a answer
}

func (t *tee) WriteHeader(status int) {
	if t.a.status == 0 && status >= 200 {
		t.a.status, t.a.header = status, t.Header().Clone()
	} else if status >= 200 {
		return // net/http would ignore it, and log it
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	switch {
	case t.a.long:
	case len(t.a.body)+len(b) > MaxAnswer:
		t.a.long, t.a.body = true, nil
	default:
		t.a.body = append(t.a.body, b...)
	}
	return t.ResponseWriter.Write(b)
}
