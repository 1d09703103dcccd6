package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// logFlags say which journal is meant; none of its verbs needs etcd.
type logFlags struct {
	namespace, dataDir, deviceID, generation string
	out                                      outputFlag
}

func (f *logFlags) register(flags *pflag.FlagSet) {
	registerNamespace(flags, &f.namespace)
	registerDataDir(flags, &f.dataDir)
	flags.StringVar(&f.deviceID, "device-id", "", "the `ID` of the device whose journal is meant; this one's if not given")
	flags.StringVar(&f.generation, "generation", "", "the `ID` of the ledger, if the data directory has seen several under the namespace")
	f.out.register(flags)
}

// dir finds the journal: the data directory's only one under the namespace, or the one that was named.
func (f *logFlags) dir() (dir, device string, err error) {
	if err := f.out.check(); err != nil {
		return "", "", err
	}
	if err := ident.Check("namespace", f.namespace); err != nil {
		return "", "", &usageError{err}
	}
	if _, err := os.Stat(f.dataDir); errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("no data directory %s: nothing was run from here yet", f.dataDir)
	}
	clusters := identity.OpenClusters(f.dataDir)
	generation := f.generation
	if generation == "" {
		known, err := clusters.Known(f.namespace)
		switch {
		case err != nil:
			return "", "", err
		case len(known) == 0:
			return "", "", fmt.Errorf("no journal of namespace %s in %s: nothing was run from here yet", f.namespace, f.dataDir)
		case len(known) > 1:
			return "", "", usagef("%s has journals of several ledgers: give --generation, one of %s", f.dataDir, strings.Join(known, ", "))
		}
		generation = known[0]
	}
	device = f.deviceID
	if device == "" {
		id, err := identity.Open(f.dataDir, identity.Options{})
		if err != nil {
			return "", "", err
		}
		device = id.Device
	}
	dir = book.JournalDir(clusters.Dir(f.namespace, generation), device)
	if _, err := os.Stat(dir); err != nil {
		return "", "", fmt.Errorf("no journal of device %s under %s", device, filepath.Dir(dir))
	}
	return dir, device, nil
}

func newLog() *cobra.Command {
	cmd := &cobra.Command{Use: "log", Short: "read this device's journal; needs no etcd", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newLogShow(), newLogVerify())
	return cmd
}

func newLogShow() *cobra.Command {
	var f logFlags
	var peers bool
	var from uint64
	cmd := &cobra.Command{Use: "show", Short: "print the ops of this device, or of its peers", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, device, err := f.dir()
			if err != nil {
				return err
			}
			j, err := journal.Open(cmd.Context(), journal.Config{Dir: dir, Device: device, ReadOnly: true})
			if err != nil {
				return err
			}
			defer j.Close()
			if peers {
				for e, err := range j.Peers(journal.Cursor{}) {
					if err != nil {
						return err
					}
					if err := f.print(cmd, e.Op); err != nil {
						return err
					}
				}
				return nil
			}
			for op, err := range j.Own(from) {
				if err != nil {
					return err
				}
				if err := f.print(cmd, op); err != nil {
					return err
				}
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

// A logReport is what `log verify` says of an intact journal.
type logReport struct {
	Device   string         `json:"device"`
	Segments int            `json:"segments"`
	Ops      uint64         `json:"ops"`
	PeerOps  uint64         `json:"peer_ops"`
	Frontier oplog.Frontier `json:"frontier"`
	Torn     int64          `json:"torn_bytes"`
	Digest   string         `json:"digest"`
}

func newLogVerify() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{Use: "verify", Short: "check every byte of the journal: ids, links, stamps, borders", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, device, err := f.dir()
			if err != nil {
				return err
			}
			r, err := journal.Verify(dir, nil)
			if err != nil {
				return err
			}
			digest, err := digestOfJournal(cmd, dir, device)
			if err != nil {
				return err
			}
			row := logReport{Device: r.Device, Segments: r.Segments, Ops: r.Ops, PeerOps: r.PeerOps, Frontier: r.Frontier, Torn: r.Torn, Digest: digest}
			if f.out.format == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(row)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "ok        %s\ndevice    %s\nsegments  %d\nops       %d own, %d of peers\ndigest    %s\n", dir, r.Device, r.Segments, r.Ops, r.PeerOps, digest)
			if r.Torn > 0 {
				fmt.Fprintf(w, "torn      %d bytes at the end, which no record was acknowledged in; the next write cuts them\n", r.Torn)
			}
			for _, d := range devicesOf(r.Frontier) {
				fmt.Fprintf(w, "head      %s/%d %s\n", d, r.Frontier[d].Seq, r.Frontier[d].ID)
			}
			return nil
		}}
	f.register(cmd.Flags())
	return cmd
}

func devicesOf(f oplog.Frontier) []string {
	devices := make([]string, 0, len(f))
	for d := range f {
		devices = append(devices, d)
	}
	slices.Sort(devices)
	return devices
}

// digestOfJournal folds everything that is held, also what waits for its time.
func digestOfJournal(cmd *cobra.Command, dir, device string) (string, error) {
	j, err := journal.Open(cmd.Context(), journal.Config{Dir: dir, Device: device, ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer j.Close()
	state := fold.New()
	for op, err := range j.Own(0) {
		if err != nil {
			return "", err
		}
		state.Apply(op)
	}
	for e, err := range j.Peers(journal.Cursor{}) {
		if err != nil {
			return "", err
		}
		state.Apply(e.Op)
	}
	return fmt.Sprint(state.Digest()), nil
}
