package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// logFlags say which journal is meant; none of its verbs needs etcd.
type logFlags struct {
	namespace, dataDir, deviceID, generation string
	seal                                     sealFlags // the keys alone
	out                                      outputFlag
}

func (f *logFlags) register(flags *pflag.FlagSet) {
	registerNamespace(flags, &f.namespace)
	registerDataDir(flags, &f.dataDir)
	flags.StringVar(&f.deviceID, "device-id", "", "the `ID` of the device whose journal is meant; this one's if not given")
	flags.StringVar(&f.generation, "generation", "", "the `ID` of the ledger, if the data directory has seen several under the namespace")
	f.out.register(flags)
}

// find finds the device that wrote here last, in the data directory's only ledger under the namespace, or in the one that was named. It
// changes nothing: only whoever writes gives a copied directory its new id.
func (f *logFlags) find() (*device, error) {
	if err := f.out.check(); err != nil {
		return nil, err
	}
	if err := ident.Check("namespace", f.namespace); err != nil {
		return nil, &usageError{err}
	}
	if err := hasDataDir(f.dataDir); err != nil {
		return nil, err
	}
	clusters := identity.OpenClusters(f.dataDir)
	generation := f.generation
	if generation == "" {
		known, err := clusters.Known(f.namespace)
		switch {
		case err != nil:
			return nil, err
		case len(known) == 0:
			return nil, fmt.Errorf("no journal of namespace %s in %s: nothing was run from here yet", f.namespace, f.dataDir)
		case len(known) > 1:
			return nil, usagef("%s has journals of several ledgers: give --generation, one of %s", f.dataDir, strings.Join(known, ", "))
		}
		generation = known[0]
	}
	d := &device{dataDir: f.dataDir, dir: clusters.Dir(f.namespace, generation), name: f.deviceID, given: f.deviceID != "", seal: f.seal.opener(f.dataDir)}
	if d.name == "" {
		id, err := identity.Read(f.dataDir, identity.Options{})
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no id of its own: %s", f.dataDir, d.others())
		}
		if err != nil {
			return nil, err
		}
		if id.Notice != "" {
			fmt.Fprintf(os.Stderr, "syncnode: note: %s\n", id.Notice)
		}
		d.name, d.former, d.copied = id.Device, id.Previous, id.Notice
	}
	if _, err := os.Stat(d.journalDir()); err != nil {
		return nil, fmt.Errorf("no journal of device %s under %s: %s", d.name, d.dir, d.others())
	}
	return d, nil
}

// others says whose journals there are instead, and what to do.
func (d *device) others() string {
	found, _ := filepath.Glob(filepath.Join(book.JournalDir(d.dir, "*"), "*.jsonl"))
	names := map[string]bool{}
	for _, name := range found {
		rel, err := filepath.Rel(d.dir, name)
		device, _, _ := strings.Cut(rel, string(filepath.Separator))
		if err == nil && ident.Check("device", device) == nil {
			names[device] = true
		}
	}
	if len(names) == 0 {
		return "nothing was run from here for this ledger yet; syncnode exec or serve begins a journal"
	}
	return "give --device-id, one of those that wrote here for this ledger: " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// acting refuses what a device does in its own name where the directory is a copy of the device's.
func (d *device) acting() error {
	if d.copied == "" {
		return nil
	}
	return fmt.Errorf("nothing was done in the name of device %s, of which this directory is a copy: syncnode serve or exec gives it an id first", d.name)
}

// reading opens the journal for reading.
func (d *device) reading(ctx context.Context) (*journal.Journal, error) {
	j, err := journal.Open(ctx, journal.Config{Dir: d.journalDir(), Device: d.name, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("journal in %s: %w", d.journalDir(), err)
	}
	return j, nil
}

func (d *device) journalDir() string { return book.JournalDir(d.dir, d.name) }

func newLog() *cobra.Command {
	cmd := &cobra.Command{Use: "log", Short: "read this device's journal, and decide about what stands still in it", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newLogShow(), newLogVerify(), newLogAccept())
	return cmd
}

func newLogShow() *cobra.Command {
	var f logFlags
	var peers bool
	var from uint64
	cmd := &cobra.Command{Use: "show", Short: "print the ops of this device, or of its peers", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.find()
			if err != nil {
				return err
			}
			j, err := d.reading(cmd.Context())
			if err != nil {
				return err
			}
			defer j.Close()
			cut, _, err := j.Cut()
			if err != nil {
				return err
			}
			series := journal.Own
			if peers {
				series = journal.Peers
			}
			first := uint64(0)
			for e, err := range j.Kept(cut.Checkpoint, series) {
				if err != nil {
					return err
				}
				if first == 0 {
					first = e.Op.Seq + 1
				}
				if !peers && e.Op.Seq < from {
					continue
				}
				if err := f.print(cmd, e.Op); err != nil {
					return err
				}
			}
			if cut.Checkpoint != "" && (peers || from+1 < first) {
				fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: older ops are not kept one by one: what came of them is in checkpoint %s\n", short(cut.Checkpoint))
			}
			return nil
		}}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&peers, "peers", false, "the ops of other devices, in the order they came")
	cmd.Flags().Uint64Var(&from, "from", 0, "begin at this `SEQ` of the own chain")
	return cmd
}

func (f *logFlags) print(cmd *cobra.Command, op oplog.Op) error {
	w := cmd.OutOrStdout()
	if f.out.format == "json" {
		_, err := fmt.Fprintf(w, "%s\n", op.AppendLine(nil))
		return err
	}
	at := time.UnixMilli(op.HLC.WallMS).UTC().Format(time.RFC3339)
	_, err := fmt.Fprintf(w, "%s  %s/%d  %s  %s  %s\n", at, op.Device, op.Seq, op.Scope, op.Surface, op.Payload)
	return err
}
