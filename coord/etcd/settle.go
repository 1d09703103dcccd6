package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/syncnode/syncnode/coord"
)

// A proposal is one guarded transaction. Its content never changes: each time it is sent it is the very
// same, so that at most one of its copies can ever be carried out.
type proposal struct {
	what, agent string // for messages
	cmps        []clientv3.Cmp
	puts        []clientv3.Op // carried out if all compares hold
	gets        []string      // read in the same step if one does not
	both        bool          // read them in either case
	stray       bool          // earlier copies were sent and not answered
	// ours says from what was read whether an earlier copy of this proposal was carried out. With shared it may see
	// the doing of another request too, and is asked only if an earlier copy was sent.
	ours   func(state) bool
	shared bool
}

func (p proposal) ops() (then, els []clientv3.Op) {
	for _, key := range p.gets {
		els = append(els, clientv3.OpGet(key))
	}
	then = p.puts
	if p.both {
		then = append(then[:len(then):len(then)], els...)
	}
	return then, els
}

// An answer is what etcd said about a proposal.
type answer struct {
	// done: it was carried out, by this copy or by an earlier one. No other copy can ever be.
	done bool
	// st is what was read. Without done it is never empty, unless leaseGone.
	st state
	// stray: an earlier copy was not answered. It will be carried out if its compares ever hold.
	stray bool
	// leaseGone: this copy was refused because the etcd lease it puts on does not exist.
	leaseGone bool
}

// Answers that are no error of the call.
type class int

const (
	answered    class = iota
	unknown           // it may have been carried out, or may still be
	refused           // this copy was never and will never be carried out
	noSpace           // this copy was carried out before the answer, or never will be
	noLease           // this copy was refused: its etcd lease does not exist
	leaseExists       // the etcd lease was granted before
)

// classify is the one place that says what an error of etcd means for the copy that it answers. A code
// alone never proves that nothing happened, so only errors that etcd gives before it proposes, or that
// say that the whole transaction was refused, are listed.
func classify(err error) class {
	if err == nil {
		return answered
	}
	switch rpctypes.ErrorDesc(err) {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace), "etcdserver: no space":
		return noSpace
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound):
		return noLease
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist):
		return leaseExists
	case "there is no address available", "there is no connection available":
		return refused
	}
	if status.Code(err) == codes.Unavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return unknown
	}
	for _, e := range definite {
		if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(e) {
			return refused
		}
	}
	return unknown
}

// definite are the errors that etcd gives instead of carrying a request out.
var definite = []error{
	rpctypes.ErrGRPCEmptyKey, rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey, rpctypes.ErrGRPCRequestTooLarge,
	rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCLeaseTTLTooLarge, rpctypes.ErrGRPCPermissionDenied,
	rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCAuthNotEnabled, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCUserEmpty,
	rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCInvalidClientAPIVersion, rpctypes.ErrGRPCCompacted,
}

// permanent reports whether asking again cannot help.
func permanent(err error) bool {
	if classify(err) != refused || status.Code(err) == codes.Unavailable {
		return false
	}
	text := rpctypes.ErrorDesc(err)
	return text != rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests) && text != rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken)
}

// propose sends p, again and again with the same content, until it is answered or ctx ends.
//
//	answer                                     | verdict
//	carried out                                | done
//	a compare failed, and p.ours               | done, by an earlier copy
//	a compare failed                           | not done; stray says whether a copy is still under way
//	no space, and p.ours in a read after it    | done: etcd may carry a request out and then say so
//	no space, no earlier copy                  | ErrFull, nothing happened
//	lease not found                            | leaseGone
//	refused, no earlier copy                   | ErrNotSent
//	anything else                              | ask again; at the end of ctx ErrIndeterminate
func (c *Coordinator) propose(ctx context.Context, p proposal) (answer, error) {
	t := c.tries(p.what, p.agent)
	stray := p.stray
	for {
		if err := ctx.Err(); err != nil {
			return answer{}, t.ended(ctx, stray)
		}
		resp, err := t.commit(ctx, p)
		switch classify(err) {
		case answered:
			st := readState(p.gets, resp.Header.Revision, resp.Responses, len(p.puts), resp.Succeeded)
			done := resp.Succeeded || p.ours != nil && (stray || !p.shared) && p.ours(st)
			return answer{done: done, st: st, stray: stray}, nil
		case noLease:
			return answer{stray: stray, leaseGone: true}, nil
		case noSpace:
			st, rerr := c.read(ctx, p.what, p.agent, p.gets)
			switch {
			case rerr != nil:
				return answer{}, t.ended(ctx, true)
			case p.ours != nil && p.ours(st):
				return answer{done: true, st: st, stray: stray}, nil
			case !stray && p.ours != nil:
				return answer{}, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrFull, err)
			case !stray: // not to be told from another's doing, so only a judgement of the caller helps
				return answer{st: st, stray: stray}, errFullMaybe
			}
		case refused:
			if !stray && permanent(err) {
				return answer{}, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
			}
		default:
			stray = true
		}
		t.pause(ctx)
	}
}

// errFullMaybe is for proposals that cannot tell their own doing; see propose.
var errFullMaybe = fmt.Errorf("%w", coord.ErrFull)

// read reads keys in one revision. It proposes nothing and may be asked again by anybody, so that every
// error but a verdict matches ErrNotSent.
func (c *Coordinator) read(ctx context.Context, what, agent string, keys []string) (state, error) {
	t := c.tries(what, agent)
	p := proposal{gets: keys, both: true}
	for {
		if ctx.Err() != nil {
			return state{}, t.ended(ctx, false)
		}
		resp, err := t.commit(ctx, p)
		if err == nil {
			return readState(keys, resp.Header.Revision, resp.Responses, 0, true), nil
		}
		if permanent(err) {
			return state{}, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
		}
		t.pause(ctx)
	}
}

// readState collects what a transaction read. After a success its reads come behind its writes.
func readState(keys []string, rev int64, resps []*etcdserverpb.ResponseOp, puts int, succeeded bool) state {
	if succeeded {
		resps = resps[min(puts, len(resps)):]
	}
	st := state{rev: rev, kvs: make(map[string]*mvccpb.KeyValue, len(keys))}
	for i, key := range keys {
		if i >= len(resps) {
			break
		}
		st.kvs[key] = nil
		if r := resps[i].GetResponseRange(); r != nil && len(r.Kvs) > 0 {
			st.kvs[key] = r.Kvs[0]
		}
	}
	return st
}

// tries counts the copies of one request, for the message.
type tries struct {
	c           *Coordinator
	what, agent string
	began       time.Time
	wait        time.Duration // how long the next copy is waited for
	sent        int
	last        error
}

// tries begins with a quarter of what one attempt may take: the client goes to the next member with each copy, and a
// member that is paused shall not cost more than that. Each further copy is waited for twice as long, up to eight
// attempts: a cluster that is slow because of its load must not be asked ever more.
func (c *Coordinator) tries(what, agent string) *tries {
	return &tries{c: c, what: what, agent: agent, began: time.Now(), wait: c.attempt / 4}
}

func (t *tries) name() string {
	if t.agent == "" {
		return t.what
	}
	return t.what + " " + t.agent
}

// commit sends one copy of a transaction.
func (t *tries) commit(ctx context.Context, p proposal) (*clientv3.TxnResponse, error) {
	then, els := p.ops()
	var resp *clientv3.TxnResponse
	err := t.once(ctx, func(ctx context.Context) (err error) {
		resp, err = t.c.client.Txn(ctx).If(p.cmps...).Then(then...).Else(els...).Commit()
		return err
	})
	return resp, err
}

// once makes one call and waits for it as long as it is its turn to. A member that sees no leader says so at once.
func (t *tries) once(ctx context.Context, f func(context.Context) error) error {
	wait := t.wait
	t.wait = min(2*t.wait, 8*t.c.attempt)
	one, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), wait)
	defer cancel()
	t.sent++
	err := f(one)
	if err != nil && ctx.Err() == nil && one.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", wait, err)
	}
	if err != nil && (ctx.Err() == nil || t.last == nil) {
		t.last = err
	}
	return err
}

// pause waits a little, longer after each copy, and never as long as ctx lives on.
func (t *tries) pause(ctx context.Context) {
	most := min(10*time.Millisecond<<min(t.sent, 5), 250*time.Millisecond)
	timer := time.NewTimer(most/2 + rand.N(most/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ended is the error once ctx ended: what was tried, where, how often, and what came back.
func (t *tries) ended(ctx context.Context, maybe bool) error {
	kind := coord.ErrNotSent
	if maybe {
		kind = coord.ErrIndeterminate
	}
	cause := context.Cause(ctx)
	at := strings.Join(t.c.client.Endpoints(), ",")
	if t.sent == 0 || t.last == nil {
		return fmt.Errorf("%s: %w: given up before it was sent to %s: %w", t.name(), kind, at, cause)
	}
	return fmt.Errorf("%s: %w: no answer from %s in %s after %d tries (last: %w): %w", t.name(), kind, at,
		time.Since(t.began).Round(time.Millisecond), t.sent, t.last, cause)
}
