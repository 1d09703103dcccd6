package etcd

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// samples are one full and one small value of each kind.
func samples() map[string]value {
	at := time.Date(2026, 3, 29, 1, 30, 0, 123456789, time.UTC)
	nonce := strings.Repeat("0123456789abcdef", 2)
	process := coord.Process{Host: "host", Boot: "boot", Dir: "/var/lib/syncnode", PID: 42}
	return map[string]value{
		"meta":         metaValue{V: 1, Format: 1, Generation: nonce},
		"epoch":        epochValue{V: 1, Epoch: 7, Nonce: nonce},
		"epoch-jump":   epochValue{V: 1, Epoch: coord.MaxEpoch, Jump: 41, Nonce: nonce},
		"holder":       holderValue{V: 1, Epoch: 7, Device: "d1", Liveness: nonce + "-15", Nonce: nonce, TTL: 15000, Since: at, Process: process},
		"holder-steal": holderValue{V: 1, Epoch: 7, Device: "d1", Nonce: nonce, Since: at, Jump: 1, Note: "r1-x", By: "me", Reason: "<&> \u2028"},
		"live":         liveValue{V: 1, Process: process},
		"live-none":    liveValue{V: 1},
		"run": runValue{V: 1, Occurrence: "key:x", Input: strings.Repeat("ab", 32), Attempts: []coord.Attempt{
			{ID: nonce, Request: nonce, Device: "d1", Liveness: nonce + "-15", Epoch: 7, State: coord.Open, Begun: at, At: coord.Position{Next: 3, Head: "h"}},
			{ID: nonce, Request: nonce, Device: "d1", Epoch: 7, State: coord.Failed, Cause: coord.CauseExit, Exit: 3, Begun: at, Ended: at, Permitted: true, By: "me", Reason: "why", Result: "r"},
		}},
		"run-none":     runValue{V: 1},
		"bucket":       bucketValue{V: 1, Runs: []string{"r1-a", "r1-b"}},
		"bucket-split": bucketValue{V: 1, Split: true},
		"gate-id":      gateValue{V: 1, Gate: coord.Gate{ID: nonce, By: "me", Reason: "why", At: at}},
		"offer":        offerValue{V: 1, Offer: coord.Offer{Device: "d1", Gate: nonce, Done: true, At: at, Attempts: 9, Written: 3, Doubts: 1, Raised: 2, Peers: []string{"d2", "d3"}}},
		"offer-none":   offerValue{V: 1, Offer: coord.Offer{Device: "d1", At: at}},
		"gate":         gateValue{V: 1, Gate: coord.Gate{By: "me", Reason: "why", At: at}},
	}
}

func TestTheBytesOfEveryValueAreFrozen(t *testing.T) {
	for name, v := range samples() {
		path := filepath.Join("testdata", name+".json")
		got := encode(v) + "\n"
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if got != string(want) {
			t.Errorf("%s: got %s want %s", name, got, want)
		}
		back, err := decodeAs(v, []byte(got))
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%s: decoded %+v, %v", name, back, err)
		}
	}
}

// decodeAs decodes into the type of like.
func decodeAs(like value, raw []byte) (v value, err error) {
	switch like.(type) {
	case metaValue:
		v, err = decode[metaValue]("k", raw)
	case epochValue:
		v, err = decode[epochValue]("k", raw)
	case holderValue:
		v, err = decode[holderValue]("k", raw)
	case liveValue:
		v, err = decode[liveValue]("k", raw)
	case runValue:
		v, err = decode[runValue]("k", raw)
	case bucketValue:
		v, err = decode[bucketValue]("k", raw)
	case gateValue:
		v, err = decode[gateValue]("k", raw)
	case offerValue:
		v, err = decode[offerValue]("k", raw)
	}
	return v, err
}

func TestForeignBytesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "null", "{}", "7", `{"v":2}`, `{"v":1,"x":1}`, `{"v":1}{"v":1}`, `{"v":1} x`, `{"v":"1"}`, `[]`, "\xff"} {
		for name, v := range samples() {
			if _, err := decodeAs(v, []byte(bad)); !errors.Is(err, ErrFormat) && !(bad == `{"v":1}` && err == nil) {
				t.Errorf("%s: %q gave %v", name, bad, err)
			}
		}
	}
	for _, bad := range []value{
		epochValue{V: 1, Epoch: coord.MaxEpoch + 1}, holderValue{V: 1, Device: "d", Nonce: "n"},
		holderValue{V: 1, Epoch: 1, Device: "d", Nonce: "n", TTL: -1}, holderValue{V: 1, Epoch: 1, Nonce: "n"},
		runValue{V: 1, Attempts: []coord.Attempt{{ID: "a", State: "odd"}}}, runValue{V: 1, Attempts: []coord.Attempt{{State: coord.Open}}},
		bucketValue{V: 1, Split: true, Runs: []string{"r"}}, metaValue{V: 1, Format: 1, Generation: "x"}, metaValue{V: 1, Format: 2, Generation: coord.NewNonce()},
	} {
		if v, err := decodeAs(bad, []byte(encode(bad))); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v was read as %+v, %v", bad, v, err)
		}
	}
}

func TestNothingIsDoneOnTopOfAValueThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b := question(l, "1")
	for _, key := range []string{w.a.keys.run("a", b.Run), w.a.keys.bucket("a", b.Run, 0), w.a.keys.paused("a")} {
		_, err := w.admin.Put(bounded(t), key, "not ours")
		must(t, err)
		for _, c := range []*Coordinator{w.a, w.b} {
			_, err = c.Begin(bounded(t), b)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: got %v", key, err)
			}
		}
		_, err = w.admin.Delete(bounded(t), key)
		must(t, err)
	}
	_, err := w.a.Begin(bounded(t), b)
	must(t, err)
}

func TestAListShowsWhatItCanReadAndNamesWhatItCannot(t *testing.T) {
	w := newWorld(t)
	for _, agent := range []string{"a", "b", "c"} {
		l, err := w.a.Acquire(bounded(t), coord.Request{Agent: agent, Device: "d1"})
		must(t, err)
		for i := range 3 {
			_, err := w.a.Begin(bounded(t), question(l, fmt.Sprint(i)))
			must(t, err)
		}
	}
	page, err := w.a.List(bounded(t), coord.Filter{})
	must(t, err)
	bad := map[string]string{}
	for _, i := range []int{0, 4} {
		e := page.Views[i].Entry
		key := w.a.keys.run(e.Agent, e.Run)
		bad[e.Agent+"/"+e.Run] = key
		_, err := w.admin.Put(bounded(t), key, "not ours")
		must(t, err)
	}
	_, err = w.admin.Put(bounded(t), w.a.keys.holder("c"), "not ours") // nothing of c can be judged
	must(t, err)
	for _, key := range []string{"!", "a", "a/b/c", "b-", "b/", "zz", "A B/r", "z/a b", "/r"} { // no run's
		_, err := w.admin.Put(bounded(t), w.a.keys.runs()+key, "not ours")
		must(t, err)
	}
	for _, v := range page.Views[6:] {
		bad["c/"+v.Entry.Run] = w.a.keys.holder("c")
	}
	for _, limit := range []int{0, 1, 2, 3} {
		f, readable, unread := coord.Filter{Limit: limit}, 0, 0
		for {
			page, err := w.b.List(bounded(t), f)
			must(t, err)
			if limit > 0 && len(page.Views)+len(page.Unreadable) > limit {
				t.Errorf("%d and %d on a page of %d", len(page.Views), len(page.Unreadable), limit)
			}
			readable += len(page.Views)
			for _, u := range page.Unreadable {
				if key := bad[u.Agent+"/"+u.Run]; key == "" || !strings.Contains(u.Reason, key) {
					t.Errorf("not expected: %+v", u)
				}
				unread++
			}
			if f.After = page.Next; f.After == "" {
				break
			}
		}
		if readable != 4 || unread != 5 {
			t.Errorf("pages of %d: %d runs and %d that cannot be read, want 4 and 5", limit, readable, unread)
		}
	}
	one, err := w.b.List(bounded(t), coord.Filter{Agent: "b", States: []coord.RunState{coord.RunFailed}})
	if err != nil || len(one.Views) != 0 || len(one.Unreadable) != 1 {
		t.Errorf("of one agent: %+v, %v", one, err)
	}
	_, err = coord.Find(bounded(t), w.b, coord.Filter{}, page.Views[0].Entry.Run)
	if !errors.Is(err, ErrFormat) {
		t.Errorf("one of them is looked for: %v", err)
	}
}

// A ledger of a newer release is opened by nobody who might misread it; one of the previous format goes on.
func TestALedgerOfANewerFormatIsRefusedWithASentence(t *testing.T) {
	w := newWorld(t)
	key := w.a.keys.meta()
	was, err := w.admin.Get(bounded(t), key)
	must(t, err)
	for _, newer := range []string{
		`{"v":2,"format":2,"generation":"` + w.a.generation + `","more":[1]}`, `{"v":1,"format":2,"generation":"` + w.a.generation + `"}`,
	} {
		_, err := w.admin.Put(bounded(t), key, newer)
		must(t, err)
		_, err = Open(bounded(t), Config{Client: w.admin, Namespace: w.ns})
		if !errors.Is(err, coord.ErrNotSent) || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "written by a newer release, in format 2, and this release reads 1: upgrade this one") {
			t.Errorf("open: %v", err)
		}
		l, err := w.a.Acquire(bounded(t), coord.Request{Agent: "a", Device: "d1"}) // who has it open is stopped too
		if err == nil || l.Epoch != 0 {
			t.Errorf("acquired %+v, %v", l, err)
		}
	}
	_, err = w.admin.Put(bounded(t), key, string(was.Kvs[0].Value))
	must(t, err)
	acquire(t, process(t, w.admin, w.ns), "d1")
}

func FuzzDecode(f *testing.F) {
	all := samples()
	for _, v := range all {
		f.Add([]byte(encode(v)))
	}
	f.Add([]byte(`{"v":1,"attempts":[{"state":"open","id":"x","at":{"next":-1}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for name, like := range all {
			v, err := decodeAs(like, raw)
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			again, err := decodeAs(like, []byte(encode(v)))
			if err != nil || encode(again) != encode(v) {
				t.Fatalf("%s: %s became %s, %v", name, raw, encode(again), err)
			}
		}
	})
}

func FuzzKeys(f *testing.F) {
	l := newLayout("ns")
	f.Add("/syncnode/ns/run/a/r1-x")
	f.Add("/syncnode/ns/lease/a/holder")
	f.Add("/syncnode/ns/run//")
	f.Fuzz(func(t *testing.T, key string) {
		if agent, run, ok := l.parseRun(key); ok && l.run(agent, run) != key {
			t.Errorf("%q was read as %q, %q", key, agent, run)
		}
		if agent, kind, ok := l.parseLease(key); ok && l.leases()+agent+"/"+kind != key {
			t.Errorf("%q was read as %q, %q", key, agent, kind)
		}
	})
}
