package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// stale is how old the noted contact of a device may be before it is noted again.
const stale = 24 * time.Hour

// Ack implements relay.Relay. An ack that says nothing new is one read and no proposal.
func (r *Relay) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckFrontier(folded); err != nil {
		return err
	}
	key := r.keys.ack(device)
	for {
		same := r.same()
		resp, err := r.client.Get(ctx, key)
		if err != nil {
			return r.unsent(ctx, "ack", err)
		}
		now, err := acked(key, resp.Kvs)
		if err != nil {
			return err
		}
		if !relay.Join(now, folded) {
			return r.enter(ctx, device, "")
		}
		done, err := r.put(ctx, "ack", same, key, resp.Kvs, encode(ackValue{V: version, Folded: now}))
		if err != nil {
			return err
		}
		if done {
			return r.enter(ctx, device, "")
		}
	}
}

// Register implements relay.Relay.
func (r *Relay) Register(ctx context.Context, device string, role relay.Role) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckRole(role); err != nil {
		return err
	}
	return r.enter(ctx, device, role)
}

// enter reads the device's row and writes it if contact would.
func (r *Relay) enter(ctx context.Context, device string, role relay.Role) error {
	resp, err := r.client.Get(ctx, r.keys.member(device))
	if err != nil {
		return r.unsent(ctx, "read the roster", err)
	}
	_, err = r.contact(ctx, device, role, resp.Kvs)
	return err
}

// contact notes a contact of device, given its row as it was read: a new row, a role that changes (if one is
// given), or a contact more than a day after the last one noted.
func (r *Relay) contact(ctx context.Context, device string, role relay.Role, kvs []keyValue) (memberValue, error) {
	key := r.keys.member(device)
	for {
		same := r.same()
		now := r.now()
		row := memberValue{V: version, Role: relay.Seen, AddedMS: now.UnixMilli()}
		if len(kvs) > 0 {
			var err error
			if row, err = decode[memberValue](key, kvs[0].Value); err != nil {
				return memberValue{}, err
			}
			if (role == "" || role == row.Role) && now.Sub(time.UnixMilli(row.SeenMS)) < stale {
				return row, nil
			}
		}
		if role != "" {
			row.Role = role
		}
		row.SeenMS = max(row.SeenMS, now.UnixMilli())
		done, err := r.put(ctx, "enter the roster", same, key, kvs, encode(row))
		if err != nil || done {
			return row, err
		}
		resp, err := r.client.Get(ctx, key)
		if err != nil {
			return memberValue{}, r.unsent(ctx, "read the roster", err)
		}
		kvs = resp.Kvs
	}
}

// put writes a small key iff it is as it was read. False means that it moved.
func (r *Relay) put(ctx context.Context, what string, same clientv3.Cmp, key string, kvs []keyValue, value string) (bool, error) {
	guards := []clientv3.Cmp{same}
	if len(kvs) == 0 {
		guards = append(guards, unchanged(key, ""))
	} else {
		guards = append(guards, unchanged(key, string(kvs[0].Value)),
			clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision))
	}
	resp, err := r.client.Txn(ctx).If(guards...).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return false, r.unknown(ctx, what, err)
	}
	if resp.Succeeded {
		return true, nil
	}
	return false, r.stillThere(ctx)
}

// Roster implements relay.Relay.
func (r *Relay) Roster(ctx context.Context) ([]relay.Member, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	resp, err := r.client.Txn(ctx).Then(
		clientv3.OpGet(r.keys.members(), clientv3.WithPrefix()),
		clientv3.OpGet(r.keys.acks(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, r.unsent(ctx, "read the roster", err)
	}
	return r.decodeRoster(resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs)
}

func (r *Relay) decodeRoster(members, acked []keyValue) ([]relay.Member, error) {
	acks, err := r.decodeAcks(acked)
	if err != nil {
		return nil, err
	}
	now := r.now()
	var roster []relay.Member
	for _, kv := range members {
		device := strings.TrimPrefix(string(kv.Key), r.keys.members())
		row, err := decode[memberValue](string(kv.Key), kv.Value)
		if err != nil {
			return nil, fmt.Errorf("row of %s: %w", device, err)
		}
		m := relay.Member{
			Device: device,
			Role:   row.Role,
			Added:  time.UnixMilli(row.AddedMS).UTC(),
			Seen:   time.UnixMilli(row.SeenMS).UTC(),
			Acked:  acks[device].Clone(),
		}
		m.Evicted = relay.IsEvicted(m.Role, m.Seen, now, r.evict)
		roster = append(roster, m)
	}
	slices.SortFunc(roster, func(a, b relay.Member) int { return strings.Compare(a.Device, b.Device) })
	return roster, nil
}

func (r *Relay) decodeAcks(kvs []keyValue) (map[string]oplog.Frontier, error) {
	acks := make(map[string]oplog.Frontier, len(kvs))
	for _, kv := range kvs {
		device := strings.TrimPrefix(string(kv.Key), r.keys.acks())
		var err error
		if acks[device], err = acked(string(kv.Key), []keyValue{kv}); err != nil {
			return nil, err
		}
	}
	return acks, nil
}
