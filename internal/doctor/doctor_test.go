package doctor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/doctor"
)

var now = time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)

// well is a member that nothing is wrong with.
func well() etcd.MemberHealth {
	return etcd.MemberHealth{Endpoint: "https://e1:2379", Cluster: 1, Member: 1, Leader: 1, Version: "3.7.3", DBSize: 1 << 20, Quota: 2 << 30,
		Date: now, Asked: now.Add(-time.Millisecond), Heard: now.Add(time.Millisecond), Certificate: &x509.Certificate{NotAfter: now.Add(365 * 24 * time.Hour)}}
}

// asked is a visit to these members, with a quick etcd.
func asked(members ...etcd.MemberHealth) doctor.Config {
	return doctor.Config{Now: func() time.Time { return now }, User: "fleet", Zones: fstest.MapFS{"Europe/Berlin": {}}, Etcd: &doctor.Etcd{
		Health:  func(context.Context) ([]etcd.MemberHealth, error) { return members, nil },
		Measure: func(context.Context) (etcd.Latency, error) { return etcd.Latency{Read: time.Millisecond}, nil },
	}}
}

// worst is the worst level of a check, and everything that was said about it. Whatever needs doing has to say what.
func worst(t *testing.T, cfg doctor.Config, check string) (doctor.Level, string) {
	t.Helper()
	order := map[doctor.Level]int{"": 0, doctor.OK: 1, doctor.Note: 2, doctor.Warning: 3, doctor.Problem: 4}
	level, said := doctor.Level(""), ""
	for _, f := range doctor.Run(t.Context(), cfg).Findings {
		if order[f.Level] >= order[doctor.Warning] && f.Do == "" {
			t.Errorf("%+v does not say what to do", f)
		}
		if f.Check != check {
			continue
		}
		said += f.What + "\n"
		if order[f.Level] > order[level] {
			level = f.Level
		}
	}
	return level, said
}

func TestEveryTroubleOfEtcdHasItsLevelAndSaysWhatToDo(t *testing.T) {
	member := func(change func(*etcd.MemberHealth)) doctor.Config {
		m := well()
		change(&m)
		return asked(m)
	}
	two := func(change func(*etcd.MemberHealth)) doctor.Config {
		m := well()
		m.Endpoint, m.Member = "https://e2:2379", 2
		change(&m)
		return asked(well(), m)
	}
	version := func(v string) doctor.Config { return member(func(m *etcd.MemberHealth) { m.Version = v }) }
	clock := func(ahead time.Duration) doctor.Config {
		return member(func(m *etcd.MemberHealth) { m.Date = now.Add(ahead) })
	}
	latency := func(d time.Duration) doctor.Config {
		cfg := asked(well())
		cfg.Etcd.Measure = func(context.Context) (etcd.Latency, error) { return etcd.Latency{Keepalive: d}, nil }
		return cfg
	}
	alarm := func(kind string) doctor.Config {
		return member(func(m *etcd.MemberHealth) { m.Alarms = []etcd.Alarm{{Member: 7, Kind: kind}} })
	}
	anybody := version("3.5.31")
	anybody.User = ""
	for name, c := range map[string]struct {
		cfg   doctor.Config
		check string
		want  doctor.Level
		says  string
	}{
		"well":                        {asked(well()), "endpoints", doctor.OK, "1 of 1"},
		"one of two is away":          {two(func(m *etcd.MemberHealth) { m.Err = errors.New("refused") }), "endpoints", doctor.Warning, "refused"},
		"the only one is away":        {member(func(m *etcd.MemberHealth) { m.Err = errors.New("refused") }), "endpoints", doctor.Problem, "refused"},
		"two clusters":                {two(func(m *etcd.MemberHealth) { m.Cluster = 2 }), "endpoints", doctor.Problem, "2 clusters"},
		"no leader":                   {member(func(m *etcd.MemberHealth) { m.Leader = 0 }), "endpoints", doctor.Problem, "no leader"},
		"a learner":                   {two(func(m *etcd.MemberHealth) { m.Learner = true }), "endpoints", doctor.Warning, "learner"},
		"3.7.3":                       {version("3.7.3"), "versions", doctor.OK, ""},
		"3.7.0, users":                {version("3.7.0"), "versions", doctor.Warning, "rights"},
		"3.6.13":                      {version("3.6.13"), "versions", doctor.Warning, "rights"},
		"3.6.14":                      {version("3.6.14"), "versions", doctor.OK, ""},
		"3.6.8":                       {version("3.6.8"), "versions", doctor.Warning, "stale"},
		"3.5.31, nobody has a name":   {anybody, "versions", doctor.Note, "rights"},
		"3.5.27":                      {version("3.5.27"), "versions", doctor.Warning, "stale"},
		"3.5.12":                      {version("3.5.12"), "versions", doctor.Problem, "revoke"},
		"3.5.13":                      {version("3.5.13"), "versions", doctor.Warning, "stale"},
		"3.4.30":                      {version("3.4.30"), "versions", doctor.Problem, "revoke"},
		"3.4.42":                      {version("3.4.42"), "versions", doctor.Warning, "rights"},
		"3.3.27":                      {version("3.3.27"), "versions", doctor.Problem, "not tested"},
		"3.8.0":                       {version("3.8.0"), "versions", doctor.Note, "later"},
		"a candidate":                 {version("3.7.3-rc.1"), "versions", doctor.OK, ""},
		"no release":                  {version("unknown"), "versions", doctor.Warning, "unknown"},
		"mixed":                       {two(func(m *etcd.MemberHealth) { m.Version = "3.7.2" }), "versions", doctor.Note, "different"},
		"clocks agree":                {clock(0), "clock", doctor.OK, "to the second"},
		"within a second":             {clock(-time.Second), "clock", doctor.OK, ""},
		"three seconds ahead":         {clock(3 * time.Second), "clock", doctor.Warning, "ahead"},
		"four seconds behind":         {clock(-4 * time.Second), "clock", doctor.Warning, ""},
		"a minute ahead":              {clock(time.Minute), "clock", doctor.Problem, ""},
		"a slow answer proves little": {member(func(m *etcd.MemberHealth) { m.Date, m.Asked = now.Add(-20*time.Second), now.Add(-30*time.Second) }), "clock", doctor.OK, ""},
		"no clock":                    {member(func(m *etcd.MemberHealth) { m.DateErr = errors.New("it tells no time") }), "clock", doctor.Note, "not measured"},
		"nearly full":                 {member(func(m *etcd.MemberHealth) { m.DBSize = m.Quota * 9 / 10 }), "space", doctor.Warning, "89 %"},
		"a quota that is not told":    {member(func(m *etcd.MemberHealth) { m.Quota = 0 }), "space", doctor.OK, "if it was not changed"},
		"no alarm":                    {asked(well()), "alarms", doctor.OK, ""},
		"no space":                    {alarm("NOSPACE"), "alarms", doctor.Problem, "NOSPACE"},
		"corrupt":                     {alarm("CORRUPT"), "alarms", doctor.Problem, "CORRUPT"},
		"quick":                       {latency(time.Millisecond), "latency", doctor.OK, "keepalive 1 ms"},
		"slow":                        {latency(time.Second), "latency", doctor.Warning, "1000 ms"},
		"very slow":                   {latency(4 * time.Second), "latency", doctor.Problem, ""},
		"their certificate ends":      {member(func(m *etcd.MemberHealth) { m.Certificate = &x509.Certificate{NotAfter: now.Add(3 * 24 * time.Hour)} }), "certificates", doctor.Warning, "in 3 days"},
		"their certificate ended":     {member(func(m *etcd.MemberHealth) { m.Certificate = &x509.Certificate{NotAfter: now} }), "certificates", doctor.Problem, "ended"},
		"a certificate of tomorrow":   {member(func(m *etcd.MemberHealth) { m.Certificate = &x509.Certificate{NotBefore: now.Add(time.Hour)} }), "certificates", doctor.Problem, "not valid before"},
		"clear text":                  {member(func(m *etcd.MemberHealth) { m.Endpoint, m.Certificate = "http://10.0.0.1:2379", nil }), "certificates", doctor.Warning, "clear text"},
		"clear text on this host":     {member(func(m *etcd.MemberHealth) { m.Endpoint, m.Certificate = "http://127.0.0.1:2379", nil }), "certificates", "", ""},
		"nothing to ask":              {doctor.Config{NoEtcd: "none runs"}, "etcd", doctor.Note, "none runs"},
	} {
		t.Run(name, func(t *testing.T) {
			level, said := worst(t, c.cfg, c.check)
			if level != c.want || !strings.Contains(said, c.says) {
				t.Errorf("%s: %q: %s, want %q with %q", c.check, level, said, c.want, c.says)
			}
		})
	}
}

func writeCert(t *testing.T, dir string, end time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web01"}, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "c.pem"), filepath.Join(dir, "c.key")
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTheOwnCertificateIsJudgedWithoutAnyEtcd(t *testing.T) {
	dir := t.TempDir()
	cfg := doctor.Config{NoEtcd: "none", Now: func() time.Time { return now }}
	cfg.Cert, cfg.Key = writeCert(t, dir, now.Add(5*24*time.Hour))
	if level, said := worst(t, cfg, "certificates"); level != doctor.Warning || !strings.Contains(said, "web01") {
		t.Errorf("five days left: %s: %s", level, said)
	}
	cfg.Cert, _ = writeCert(t, t.TempDir(), now.Add(time.Hour*24*365))
	if level, said := worst(t, cfg, "certificates"); level != doctor.Problem {
		t.Errorf("another's key: %s: %s", level, said)
	}
	cfg.Cert = filepath.Join(dir, "gone")
	if level, _ := worst(t, cfg, "certificates"); level != doctor.Problem {
		t.Errorf("no file: %s", level)
	}
}

// A ledger is one in memory, and what etcd says of its leases.
type ledger struct {
	coord.Coordinator
	late []etcd.Overdue
}

func (l ledger) Overdues(context.Context) ([]etcd.Overdue, int, error) { return l.late, 3, nil }

func TestTheLedgerIsLookedThrough(t *testing.T) {
	store := memory.New(memory.Config{Now: func() time.Time { return now }})
	c := store.Process(coord.Process{})
	l := ledger{Coordinator: c}
	cfg := doctor.Config{Now: func() time.Time { return now }, Ledger: l, Known: []string{c.Generation()}}
	for _, check := range []string{"ledger", "leases", "runs"} {
		if level, said := worst(t, cfg, check); level != doctor.OK {
			t.Errorf("an empty ledger: %s is %s: %s", check, level, said)
		}
	}
	_, a, err := c.Start(t.Context(), coord.Request{Agent: "job", Device: "d1", TTL: time.Minute},
		coord.Begin{Run: "r1-x", Occurrence: "key:one", Attempt: coord.NewNonce(), Request: coord.NewNonce()})
	if err != nil {
		t.Fatal(err)
	}
	if level, said := worst(t, cfg, "runs"); level != doctor.OK {
		t.Errorf("a run that goes on: %s: %s", level, said)
	}
	store.Expire(a.Liveness)
	if level, said := worst(t, cfg, "runs"); level != doctor.Warning || !strings.Contains(said, "job key:one of d1") {
		t.Errorf("a run in doubt: %s: %s", level, said)
	}
	if level, said := worst(t, cfg, "leases"); level != doctor.Note || !strings.Contains(said, "job of d1") {
		t.Errorf("a lease past its end: %s: %s", level, said)
	}
	l.late = []etcd.Overdue{{Device: "d9", Liveness: "x-15"}}
	cfg.Ledger = l
	if level, said := worst(t, cfg, "leases"); level != doctor.Problem || !strings.Contains(said, "d9") {
		t.Errorf("a lease that etcd does not end: %s: %s", level, said)
	}
	if err := c.SetRecovery(t.Context(), coord.Gate{By: "ana", Reason: "restored"}); err != nil {
		t.Fatal(err)
	}
	if level, said := worst(t, cfg, "ledger"); level != doctor.Problem || !strings.Contains(said, "restored") {
		t.Errorf("a gate: %s: %s", level, said)
	}
	cfg.Known = []string{strings.Repeat("0", 32)}
	if _, said := worst(t, cfg, "ledger"); !strings.Contains(said, "another one") {
		t.Errorf("another ledger: %s", said)
	}
}

func TestFilesThatOthersMayReadOrChangeAreNamed(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "seal.keys")
	cfg := doctor.Config{DataDir: dir, Secrets: []string{secret, "", filepath.Join(dir, "none")}}
	for _, c := range []struct {
		dir, secret os.FileMode
		want        doctor.Level
	}{
		{0o700, 0o600, doctor.OK},
		{0o750, 0o600, doctor.Warning},
		{0o755, 0o600, doctor.Warning},
		{0o770, 0o600, doctor.Problem},
		{0o700, 0o640, doctor.Warning},
		{0o700, 0o644, doctor.Problem},
	} {
		if err := errors.Join(os.WriteFile(secret, nil, 0o600), os.Chmod(secret, c.secret), os.Chmod(dir, c.dir)); err != nil {
			t.Fatal(err)
		}
		if level, said := worst(t, cfg, "files"); level != c.want {
			t.Errorf("directory %04o, secret %04o: %s, want %s: %s", c.dir, c.secret, level, c.want, said)
		}
	}
}

func TestTheJournalAndTheZonesAreToldOf(t *testing.T) {
	say := doctor.Journal{Device: "d1", Ops: 7}
	var fail error
	cfg := doctor.Config{Journal: func(context.Context) (doctor.Journal, error) { return say, fail }, Zones: fstest.MapFS{}}
	if level, said := worst(t, cfg, "journal"); level != doctor.OK || !strings.Contains(said, "only its end") {
		t.Errorf("a large journal: %s: %s", level, said)
	}
	say.Whole, say.Parked = true, []string{"d2: no key"}
	if level, said := worst(t, cfg, "journal"); level != doctor.Note || !strings.Contains(said, "d2") {
		t.Errorf("parked: %s: %s", level, said)
	}
	say.Quarantined = []string{"d3"}
	if level, _ := worst(t, cfg, "journal"); level != doctor.Warning {
		t.Errorf("quarantined: %s", level)
	}
	say.Quarantined, say.Frozen = nil, "restored from a backup"
	if level, _ := worst(t, cfg, "journal"); level != doctor.Warning {
		t.Errorf("frozen: %s", level)
	}
	fail = errors.New("damaged at seq 3")
	if level, said := worst(t, cfg, "journal"); level != doctor.Problem || !strings.Contains(said, "seq 3") {
		t.Errorf("damaged: %s: %s", level, said)
	}
	if level, _ := worst(t, cfg, "zones"); level != doctor.Note {
		t.Errorf("no zones: %s", level)
	}
	cfg.Zones = fstest.MapFS{"Europe/Berlin": {}, "tzdata.zi": {Data: []byte("# version 2026a\nx")}}
	if level, said := worst(t, cfg, "zones"); level != doctor.OK || !strings.Contains(said, "release 2026a") {
		t.Errorf("zones: %s: %s", level, said)
	}
}
