package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/thorough"
)

// While a fleet is upgraded nobody may misread what another release wrote. There has been one format so far, so that what an earlier and a
// later release write is made up here.

// A store is the etcd of some hosts, written to behind their back.
type store struct {
	t      *testing.T
	client *clientv3.Client
}

func (s store) get(key string) string {
	s.t.Helper()
	got, err := s.client.Get(bounded(s.t), key)
	must(s.t, err)
	if len(got.Kvs) != 1 {
		s.t.Fatalf("%s is not there", key)
	}
	return string(got.Kvs[0].Value)
}

func (s store) put(key, value string) {
	s.t.Helper()
	_, err := s.client.Put(bounded(s.t), key, value)
	must(s.t, err)
}

// change puts another value and gives what puts the earlier one back.
func (s store) change(key, was, is string) (back func()) {
	s.t.Helper()
	old := s.get(key)
	value := strings.Replace(old, was, is, 1)
	if value == old {
		s.t.Fatalf("%s holds no %s: %s", key, was, old)
	}
	s.put(key, value)
	return func() { s.t.Helper(); s.put(key, old) }
}

// comes waits for a key.
func (s store) comes(what, key string) {
	s.t.Helper()
	eventually(s.t, what, func() bool {
		got, err := s.client.Get(bounded(s.t), key, clientv3.WithCountOnly())
		return err == nil && got.Count == 1
	})
}

// pair is two hosts and the etcd they share.
func pair(t *testing.T, namespace string) (a, b host, s store) {
	t.Helper()
	c := common.get(t)
	fleet := spaced(hosts(t, 2, c.Endpoints()), namespace)
	return fleet[0], fleet[1], store{t, c.Client(t)}
}

// sees wants a run of another host not to be run again.
func (h host) sees(agent, occurrence string) {
	h.t.Helper()
	h.call("exec", "--agent", agent, "--occurrence", occurrence, "--", "touch", "again").want(0, "already committed")
	h.notThere("again")
}

func TestALedgerInAnotherFormatRunsNothingAndSaysWhatToDo(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := common.get(t)
	h := near(t, spaced(hosts(t, 1, c.Endpoints()), "newer")[0])
	h.run("a", "before")
	s := store{t, c.Client(t)}
	const meta = "/syncnode/newer/meta"
	for _, other := range []struct{ name, was, is, says string }{
		{"newer", `"v":1,"format":1`, `"v":2,"more":{},"format":2`, "was written by a newer release, in format 2, and this release reads 1: upgrade this one"},
		{"newer layout", `"format":1`, `"format":3`, "was written by a newer release, in format 3, and this release reads 1: upgrade this one"},
		{"older", `"v":1,"format":1`, `"v":0,"format":0`, "it is in format 0, which no release has written, and this release reads 1: it is damaged, or something else wrote it"},
		{"older layout", `"format":1`, `"format":0`, "it is in format 0, which no release has written, and this release reads 1"},
		{"one more field", `"format":1`, `"format":1,"more":{}`, `it is not in format 1, which this release reads: json: unknown field "more": it is damaged, or something else wrote it`},
		{"no JSON", `{`, `[`, "it is not in format 1, which this release reads: invalid character"},
	} {
		t.Run(other.name, func(t *testing.T) {
			s := store{t, s.client}
			back := s.change(meta, other.was, other.is)
			h.call("exec", "--agent", "a", "--occurrence", "mixed", "--", "sh", "-c", "echo ran > mixed").want(125, meta, other.says, "nothing happened", "the command was not run")
			h.call("exec", "--dry-run", "--agent", "a", "--occurrence", "before", "--", "true").want(125, other.says)
			h.call("serve").want(1, meta, other.says, "nothing was started")
			h.call("run", "list").want(1, other.says)
			h.call("run", "show", "--agent", "a", "--occurrence", "before").want(1, other.says)
			h.call("doctor").want(1).prints("nothing runs from here: ")
			h.notThere("mixed")
			back()
		})
	}
	h.run("a", "mixed")
	h.call("run", "list").want(0).prints("mixed")
}

func TestANodeWhoseLedgerIsUpgradedUnderItRunsNothingUntilItIsPutBack(t *testing.T) {
	t.Parallel()
	c := common.get(t)
	h := near(t, spaced(hosts(t, 1, c.Endpoints()), "newer-under")[0])
	h.answering()
	back := store{t, c.Client(t)}.change("/syncnode/newer-under/meta", `"v":1,"format":1`, `"v":2,"format":2`)
	h.call("exec", "--backend-timeout", "1s", "--agent", "a", "--occurrence", "mixed", "--", "touch", "mixed").want(125, "was not run", "in format 2, and this release reads 1: upgrade this one")
	h.notThere("mixed")
	back()
	h.call("exec", "--agent", "a", "--occurrence", "mixed", "--", "touch", "mixed").want(0, "committed")
}

// A device that saw the run finished asks for it before every run, lest the ledger went back.
func TestARunThatANewerReleaseWroteIsLeftAlone(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := common.get(t)
	fleet := spaced(hosts(t, 2, c.Endpoints()), "newer-run")
	h, other := fleet[0], fleet[1]
	h.run("a", "one")
	s := store{t, c.Client(t)}
	const says = "was written by a newer release, in format 2, and this release reads 1: upgrade this one"
	all, err := s.client.Get(bounded(t), "/syncnode/newer-run/run/a/", clientv3.WithPrefix())
	must(t, err)
	key := string(all.Kvs[0].Key)
	back := s.change(key, `"v":1`, `"v":2,"more":{}`)
	h.call("exec", "--agent", "a", "--occurrence", "one", "--", "touch", "again").want(125, key, says, "was not run")
	other.call("exec", "--agent", "a", "--occurrence", "one", "--", "touch", "again").want(125, key, says, "was not run")
	h.call("exec", "--agent", "b", "--occurrence", "one", "--", "touch", "again").want(125, key, says, "was not run")
	h.call("run", "list").want(1, key, says)
	other.run("a", "two")
	h.call("run", "list").want(1, key, says, "of the runs in the ledger 1 cannot be read", "the others are listed").prints("key:two")
	h.call("run", "list", "--agent", "b").want(0)
	h.notThere("again")
	back()
	h.call("exec", "--agent", "a", "--occurrence", "one", "--", "touch", "again").want(0, "already committed")
	h.run("b", "one")
}

func TestAJournalThatANewerReleaseWroteIsLeftAloneAndNothingRuns(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "newer-journal")[0]
	h.run("a", "before")
	segments, err := filepath.Glob(filepath.Join(h.device(), "journal", "own-*.jsonl"))
	must(t, err)
	was, err := os.ReadFile(segments[0])
	must(t, err)
	is := []byte(strings.Replace(string(was), `"v":1`, `"v":2`, 1))
	must(t, os.WriteFile(segments[0], is, 0o600))
	const says = "has format version 2, this release knows 1: a newer release wrote it: upgrade this one"
	h.call("exec", "--agent", "a", "--occurrence", "mixed", "--", "touch", "mixed").want(125, says, "the command was not run")
	h.call("serve").want(1, says, "nothing was started")
	h.call("run", "list").want(1, says)
	if now, err := os.ReadFile(segments[0]); err != nil || string(now) != string(is) {
		t.Errorf("it was touched: %v", err)
	}
	must(t, os.WriteFile(segments[0], was, 0o600))
	h.run("a", "mixed")
}

// What others in the relay wrote stops the exchange and no run: the ledger decides those.
func TestARelayThatANewerReleaseWroteToStopsTheExchangeAndNoRun(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	a, b, s := pair(t, "newer-relay")
	na := a.serve()
	a.run("a", "one")
	b.run("b", "one")
	head := "/syncnode/newer-relay/relay/head/" + a.verify().Device
	s.comes("a's ops in the relay", head)
	na.stops()
	back := s.change(head, `"v":1`, `"v":9,"more":{}`)
	nb := b.serve()
	nb.says("format version 9, this release knows 2: upgrade this one")
	b.run("b", "two")
	b.sees("a", "one")
	back()
	agree(t, 6, b)
	nb.stops()
	back = s.change("/syncnode/newer-relay/relay/meta", `"v":1`, `"v":2`)
	b.call("serve").want(1, "has format version 2, this release knows 1: upgrade this one", "nothing was started")
	b.run("b", "three")
	back()
	b.serve()
	agree(t, 8, b)
}

func TestACheckpointThatANewerReleaseMadeIsNotTakenAndNoRunStops(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	a, b, s := pair(t, "newer-checkpoint")
	a.env = append(a.env, "SYNCNODE_SEGMENT_BYTES=2000")
	na := a.serve("--checkpoint-every", "10", "--segment-bytes", "2000")
	for n := range 6 {
		a.run("a", occ(n))
	}
	const newest = "/syncnode/newer-checkpoint/relay/checkpoint/newest"
	s.comes("a checkpoint in the relay", newest)
	na.stops()

	was := s.get(newest)
	var old struct{ Hash string }
	must(t, json.Unmarshal([]byte(was), &old))
	const chunk = "/syncnode/newer-checkpoint/relay/checkpoint/chunk/"
	body := strings.Replace(s.get(chunk+old.Hash+"/0000"), `{"checkpoint":1,`, `{"checkpoint":2,`, 1)
	sum := sha256.Sum256([]byte(body))
	s.put(chunk+hex.EncodeToString(sum[:])+"/0000", body)
	s.put(newest, strings.Replace(was, old.Hash, hex.EncodeToString(sum[:]), 1))
	nb := b.serve("--checkpoint-every", "10")
	nb.says("it has format version 2, this release knows 1: a newer release made it, upgrade this one")
	b.run("b", "one")
	b.sees("a", occ(0))
	s.put(newest, was)
	nb.says("took a checkpoint")
	if log := nb.log(); regexp.MustCompile(`(?m)^panic`).MatchString(log) {
		t.Error(log)
	}
}

// A line of an op has no version: what is new in it is told by a greater version of its chain's head, or else stops that chain alone.
func TestAnOpThatNobodyCanReadStopsItsChainAndNoRun(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	a, b, s := pair(t, "newer-op")
	na := a.serve()
	a.run("a", "one")
	key := "/syncnode/newer-op/relay/op/" + a.verify().Device + "/00000000000000"
	s.comes("a's ops in the relay", key)
	na.stops()
	back := s.change(key, `"scope":`, `"key":"k","scope":`)
	nb := b.serve()
	nb.says("a chain is quarantined")
	b.run("b", "one")
	b.sees("a", "one")
	back()
	agree(t, 4, b)
}
