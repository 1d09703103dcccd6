package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/doctor"
	"github.com/syncnode/syncnode/internal/embedded"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/telling"
)

const doctorLong = `doctor looks at this device, its etcd and its ledger, and says what is wrong and what to do: endpoints, releases of etcd with
known faults, certificates, clocks, room and alarms, latency, the recovery gate, leases that should have ended, runs in doubt,
the journal, who may read its files, time zones. It ends with 1 if there is a problem.

It changes nothing, but for two proposals to etcd that measure the latency: the grant of a lease without a key, and its end. An
embedded etcd is not started for it. What could not be looked at is said.

--print-rbac prints the etcdctl commands that give a user the least rights that a device needs, and does nothing else.`

// wholeJournal is up to how many bytes a journal is verified whole.
const wholeJournal = 64 << 20

type doctorFlags struct {
	backendFlags
	out    outputFlag
	json   bool
	rbac   bool
	user   string
	agents []string
	pauses bool
	noLogs bool
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{Use: "doctor", Short: "say what is wrong with this device, its etcd and its ledger, and what to do", Long: doctorLong, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }}
	f.register(cmd.Flags())
	registerSealKeys(cmd.Flags(), &f.seal.keys)
	f.out.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "the same as -o json")
	cmd.Flags().BoolVar(&f.rbac, "print-rbac", false, "print the etcdctl commands that give a user the rights of this device")
	cmd.Flags().StringVar(&f.user, "rbac-user", "", "with --print-rbac: the `NAME` of the user; the device's id if not given")
	cmd.Flags().StringSliceVar(&f.agents, "rbac-agents", nil, "with --print-rbac: rights for these `AGENTS` alone")
	cmd.Flags().BoolVar(&f.noLogs, "rbac-no-relay", false, "with --print-rbac: no rights on the relay, for a device without serve or with another relay")
	cmd.Flags().BoolVar(&f.pauses, "rbac-operator", false, "with --print-rbac: the rights to pause and resume agents too")
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command) error {
	if f.json {
		f.out.format = "json"
	}
	if err := f.out.check(); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.rbac {
		return f.printRBAC(cmd)
	}
	cfg, closing := f.examine(cmd.Context())
	defer closing()
	r := doctor.Run(cmd.Context(), cfg)
	if err := printDoctor(cmd, f.out, r); err != nil {
		return err
	}
	if r.Count(doctor.Problem) > 0 {
		return &exitError{code: exitRefused}
	}
	return nil
}

// examine wires what can be looked at. closing gives it back.
func (f *doctorFlags) examine(ctx context.Context) (cfg doctor.Config, closing func()) {
	closing = func() {}
	cfg = doctor.Config{User: f.flagUser(), CACert: f.cacert, Cert: f.cert, Key: f.key, Endpoints: f.endpoints, Timeout: f.timeout,
		NoLedger: "no etcd could be asked", DataDir: f.dataDir, Secrets: []string{f.key, f.passwordFile, sealKeysFile(f.seal.keys, f.dataDir)}}
	if _, err := os.Stat(f.dataDir); err != nil {
		cfg.DataDir, cfg.NoJournal = "", fmt.Sprintf("no data directory %s: nothing was run from here yet", f.dataDir)
	}
	endpoints, own := f.endpoints, false
	if len(endpoints) == 0 {
		var endpoint, why string
		if endpoint, why = f.running(); why != "" {
			cfg.NoEtcd = why
		} else {
			endpoints, own = []string{endpoint}, true
		}
	}
	generation := ""
	if len(endpoints) > 0 {
		generation, closing = f.examineEtcd(ctx, &cfg, endpoints, own)
	}
	f.examineJournal(&cfg, generation)
	return cfg, closing
}

func (f *doctorFlags) flagUser() string { return f.backendFlags.user }

// running finds the etcd of a living process on this data directory; else why there is none to ask. None is started.
func (f *doctorFlags) running() (endpoint, why string) {
	for _, dir := range f.ownEtcds() {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		owner, ok := embedded.FindOwner(dir)
		if !ok || owner.Endpoint == "" || errors.Is(unix.Kill(owner.PID, 0), unix.ESRCH) {
			return "", fmt.Sprintf("no process runs the etcd in %s now, and none was started", dir)
		}
		return owner.Endpoint, ""
	}
	return "", "no --endpoints, and no etcd in the data directory yet"
}

func (f *doctorFlags) examineEtcd(ctx context.Context, cfg *doctor.Config, endpoints []string, own bool) (generation string, closing func()) {
	closing = func() {}
	dial, err := f.dial(endpoints)
	if err != nil {
		cfg.Connected = err
	}
	cfg.Etcd = &doctor.Etcd{Embedded: own, Health: func(ctx context.Context) ([]etcd.MemberHealth, error) { return etcd.Health(ctx, dial) }}
	if err != nil {
		return "", closing
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	defer cancel()
	client, err := etcd.Dial(ctx, dial)
	if err != nil {
		cfg.Connected = err
		return "", closing
	}
	closing = func() { client.Close() }
	cfg.Etcd.Measure = func(ctx context.Context) (etcd.Latency, error) { return etcd.Measure(ctx, client, f.namespace) }
	ledger, why, err := f.examineLedger(ctx, client)
	if ledger == nil {
		cfg.NoLedger, cfg.Foreign = why, err
		return "", closing
	}
	cfg.Ledger = ledger
	closing = func() {
		_ = ledger.Close(context.Background()) // it holds nothing
		client.Close()
	}
	if names := (&backend{flags: &backendFlags{endpoints: f.endpoints}}).endpointNames(); cfg.DataDir != "" {
		cfg.Known, _ = identity.OpenClusters(f.dataDir).Behind(f.namespace, names)
	}
	return ledger.Generation(), closing
}

// examineLedger opens the ledger if there is one, and makes none. Without one it says why; with an error this release must not read it.
func (f *doctorFlags) examineLedger(ctx context.Context, client *clientv3.Client) (c *etcd.Coordinator, why string, foreign error) {
	there, err := etcd.Exists(ctx, client, f.namespace)
	if err != nil {
		return nil, fmt.Sprintf("%v; %s", err, f.permission()), nil
	}
	if !there {
		return nil, fmt.Sprintf("namespace %s has no ledger yet: nothing was run in it", f.namespace), nil
	}
	c, err = etcd.Open(ctx, etcd.Config{Client: client, Namespace: f.namespace})
	switch {
	case errors.Is(err, etcd.ErrFormat):
		return nil, "this release must not read it", err
	case err != nil:
		return nil, telling.Text(err.Error()), nil
	}
	return c, "", nil
}

func (f *doctorFlags) examineJournal(cfg *doctor.Config, generation string) {
	if cfg.DataDir == "" {
		return
	}
	where := &logFlags{namespace: f.namespace, dataDir: f.dataDir, deviceID: f.deviceID, generation: generation, seal: f.seal, out: outputFlag{"text"}}
	if where.generation != "" {
		if _, err := os.Stat(identity.OpenClusters(f.dataDir).Dir(f.namespace, generation)); errors.Is(err, fs.ErrNotExist) {
			cfg.NoJournal = "this data directory has no journal of this ledger"
			return
		}
	}
	d, err := where.find()
	if err != nil {
		cfg.NoJournal = telling.Text(err.Error())
		return
	}
	cfg.Journal = func(ctx context.Context) (doctor.Journal, error) { return d.health(ctx) }
}

// health verifies the journal: the whole of it unless it is large.
func (d *device) health(ctx context.Context) (doctor.Journal, error) {
	if size := bytesIn(d.journalDir()); size > wholeJournal {
		j, err := d.reading(ctx) // which reads the end
		if err != nil {
			return doctor.Journal{}, err
		}
		defer j.Close()
		out := doctor.Journal{Device: d.name}
		if head, ok := j.Head(); ok {
			out.Ops = head.Seq + 1
		}
		frozen, noted, err := j.Frozen()
		if noted {
			out.Frozen = reasonOf(frozen)
		}
		return out, err
	}
	row, err := d.verify(ctx)
	if err != nil {
		return doctor.Journal{}, err
	}
	out := doctor.Journal{Device: d.name, Ops: row.Ops, Whole: true, Frozen: row.Frozen}
	for _, q := range row.Quarantined {
		out.Quarantined = append(out.Quarantined, quarantineText(q))
	}
	for _, p := range row.Parked {
		why := p.Reason
		if p.Until != nil {
			why = "until " + rfc3339(*p.Until)
		}
		out.Parked = append(out.Parked, fmt.Sprintf("%s, %d ops from op %d on: %s", p.Device, p.Ops, p.From, why))
	}
	return out, nil
}

func bytesIn(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}

// A doctorRow is what doctor prints as JSON.
type doctorRow struct {
	Problems int              `json:"problems"`
	Warnings int              `json:"warnings"`
	Findings []doctor.Finding `json:"findings"`
}

func printDoctor(cmd *cobra.Command, out outputFlag, r doctor.Report) error {
	row := doctorRow{Problems: r.Count(doctor.Problem), Warnings: r.Count(doctor.Warning), Findings: r.Findings}
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-8s %-12s %s\n", f.Level, f.Check, plain(f.What))
		if f.Do != "" {
			fmt.Fprintf(&b, "%-8s %-12s do: %s\n", "", "", plain(f.Do))
		}
	}
	fmt.Fprintf(&b, "problems: %d, warnings: %d\n", row.Problems, row.Warnings)
	return printOne(out, cmd.OutOrStdout(), row, b.String())
}

// printRBAC prints commands for root. The device's id is read, and none is made.
func (f *doctorFlags) printRBAC(cmd *cobra.Command) error {
	id := f.deviceID
	if id == "" {
		known, err := identity.Read(f.dataDir, identity.Options{})
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has no id yet, and none was made: the first command that writes makes one; or choose one by --device-id ID, here and for every command", f.dataDir)
		}
		if err != nil {
			return err
		}
		if known.Notice != "" {
			return fmt.Errorf("%s; give --device-id ID", known.Notice)
		}
		id = known.Device
	}
	user := f.user
	if user == "" {
		user = id
	}
	if err := ident.Check("user", user); err != nil {
		return &usageError{err}
	}
	rights, err := etcd.Rights(f.namespace, id, f.agents, !f.noLogs, f.pauses)
	if err != nil {
		return &usageError{err}
	}
	role := "syncnode." + f.namespace + "." + id
	var b bytes.Buffer
	fmt.Fprintf(&b, "etcdctl role add %s\n", role)
	for _, r := range rights {
		kind, prefix := "read", ""
		if r.Write {
			kind = "readwrite"
		}
		if r.Prefix {
			prefix = "--prefix=true "
		}
		fmt.Fprintf(&b, "etcdctl role grant-permission %s %s %s%s   # %s\n", role, kind, prefix, r.Key, r.For)
	}
	fmt.Fprintf(&b, "etcdctl user add %s   # with --no-password if it is the common name of a client certificate\netcdctl user grant-role %s %s\n", user, user, role)
	_, err = cmd.OutOrStdout().Write(b.Bytes())
	return err
}
