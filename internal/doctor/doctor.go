// Package doctor looks at a device, its etcd and its ledger, and says what is wrong and what to do.
//
// # Guarantees
//
// Every finding of level warning or problem says what to do. What could not be looked at is a finding too, and never counts as sound.
// Nothing is changed, on disk or in etcd, but for the two proposals that Etcd.Measure makes.
//
// Not promised: that all is well where nothing is found.
//
// # Failure
//
// There is none: what fails is a finding.
//
// # Concurrency
//
// Run may be called once at a time.
package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
)

// A Level says how bad a finding is.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"    // worth knowing; nothing has to be done
	Warning Level = "warning" // works now, and may not for long
	Problem Level = "problem" // runs are refused, lost from sight or unsafe
)

// A Finding is one thing that was looked at.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}

// A Report is all that was found, in the order of the checks.
type Report struct {
	Findings []Finding
}

// Count is how many findings have the level.
func (r *Report) Count(l Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

func (r *Report) add(check string, l Level, do, what string, args ...any) {
	r.Findings = append(r.Findings, Finding{Check: check, Level: l, What: fmt.Sprintf(what, args...), Do: do})
}

// Etcd is how the cluster is asked.
type Etcd struct {
	// Embedded: it is the one in the data directory, which has no other members and no certificates.
	Embedded bool
	Health   func(context.Context) ([]etcd.MemberHealth, error)
	Measure  func(context.Context) (etcd.Latency, error)
}

// A Ledger is the coordinator of the namespace, as far as a doctor asks it.
type Ledger interface {
	Generation() string
	Recovery(ctx context.Context) (coord.Gate, bool, error)
	Leases(ctx context.Context) ([]coord.Lease, error)
	List(ctx context.Context, f coord.Filter) (coord.Page, error)
	Overdues(ctx context.Context) ([]etcd.Overdue, int, error)
}

// A Journal is what a verification of the device's journal said.
type Journal struct {
	Device string
	Ops    uint64
	// Whole: every byte was checked; else only its end.
	Whole       bool
	Frozen      string   // why nothing more is pushed under this id; empty if it is not
	Quarantined []string // chains, with why
	Parked      []string // chains that wait, with why
}

// A Config says what is looked at. Fields that are nil or empty are not looked at, and the fields beside them say why.
type Config struct {
	Etcd   *Etcd
	NoEtcd string
	// Connected is why no connection could be made; nil if one was, or none was tried.
	Connected error
	// User and Certificate name how the cluster knows who asks; empty if it does not.
	User, CACert, Cert, Key string
	Endpoints               []string

	Ledger   Ledger
	NoLedger string
	// Foreign is why this release must not read the ledger that is there; nil if it may.
	Foreign error
	// Known are the generations that the data directory has seen behind these endpoints.
	Known []string

	Journal   func(context.Context) (Journal, error)
	NoJournal string

	// DataDir is looked at for its modes and its room. Secrets are files that nobody else may read.
	DataDir string
	Secrets []string

	Now     func() time.Time // nil is time.Now
	Timeout time.Duration    // of each question; 10 s if zero
	Zones   fs.FS            // where the host's zones are; nil: in the usual places
}

// A visit is one Run.
type visit struct {
	cfg Config
	Report
}

// Run looks at everything.
func Run(ctx context.Context, cfg Config) Report {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	v := &visit{cfg: cfg}
	v.etcd(ctx)
	v.ledger(ctx)
	v.journal(ctx)
	v.files()
	v.zones()
	return v.Report
}

func (v *visit) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, v.cfg.Timeout, fmt.Errorf("no answer within %s", v.cfg.Timeout))
}
