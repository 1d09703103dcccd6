package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/output"
)

// outputDir is where a node keeps what its commands print, in the folder of a ledger.
func outputDir(ledger string) string { return filepath.Join(ledger, "output") }

// An outputRow says what is kept of an attempt on this host.
type outputRow struct {
	Run     string `json:"run_id"`
	Attempt string `json:"attempt"`
	Kept    int64  `json:"bytes"`
	Cut     int64  `json:"cut_bytes,omitempty"` // printed between the first half and the last, and not kept
	Last    string `json:"last"`

	dir output.Dir
}

// outputOf lists what this data directory keeps of a run, the oldest first. It asks no etcd.
func outputOf(dataDir, namespace, run string) ([]outputRow, error) {
	clusters := identity.OpenClusters(dataDir)
	generations, err := clusters.Known(namespace)
	if err != nil {
		return nil, err
	}
	type found struct {
		info output.Info
		dir  output.Dir
	}
	var all []found
	for _, g := range generations {
		dir := output.Dir(outputDir(clusters.Dir(namespace, g)))
		infos, err := dir.List(run)
		if err != nil {
			return nil, err
		}
		for _, i := range infos {
			all = append(all, found{i, dir})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.info.Last.Compare(b.info.Last) })
	rows := make([]outputRow, len(all))
	for i, f := range all {
		rows[i] = outputRow{Run: run, Attempt: f.info.Attempt, Kept: f.info.Kept, Cut: f.info.Cut, Last: f.info.Last.UTC().Format(time.RFC3339), dir: f.dir}
	}
	return rows, nil
}

const runOutputLong = `output prints what the command of a run printed, if the node on this data directory ran it: both of its streams
in the order in which they came. Of much the first half and the last are kept, with a line in between that says how
much was left out. It asks no etcd, and works beside a running node, also while the command goes on.

What exec runs prints to its caller, and is not kept.`

func newRunOutput() *cobra.Command {
	var namespace, dataDir, attempt string
	var list bool
	var out outputFlag
	var n runName
	cmd := &cobra.Command{Use: "output (ID | --agent A --occurrence K)", Short: "print what the command of a run printed, on the node that ran it", Args: atMost(1),
		Long: runOutputLong,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if err := ident.Check("namespace", namespace); err != nil {
				return &usageError{err}
			}
			run, err := n.resolve(cmd, namespace, args)
			if err != nil {
				return err
			}
			if err := hasDataDir(dataDir); err != nil {
				return err
			}
			rows, err := outputOf(dataDir, namespace, run)
			if err != nil {
				return err
			}
			if list || out.format == "json" {
				return printRows(out, cmd.OutOrStdout(), rows, "ATTEMPT\tBYTES\tLEFT OUT\tLAST", func(r outputRow) string {
					return fmt.Sprintf("%s\t%d\t%d\t%s", r.Attempt, r.Kept, r.Cut, r.Last)
				})
			}
			row, err := chooseOutput(rows, attempt)
			if err != nil {
				return fmt.Errorf("%w of run %s in %s; it may have run on another device (syncnode run show), under exec, or long ago", err, run, dataDir)
			}
			if attempt == "" && len(rows) > 1 {
				fmt.Fprintf(cmd.ErrOrStderr(), "syncnode: this is attempt %s; what else is kept of the run: --list\n", row.Attempt)
			}
			from, err := row.dir.Open(run, row.Attempt)
			if err != nil {
				return err
			}
			defer from.Close()
			_, err = io.Copy(cmd.OutOrStdout(), from)
			return err
		}}
	flags := cmd.Flags()
	registerNamespace(flags, &namespace)
	registerDataDir(flags, &dataDir)
	out.register(flags)
	n.register(cmd)
	flags.StringVar(&attempt, "attempt", "", "the `ATTEMPT` whose output is meant, or a name that --list shows; the last one if not given")
	flags.BoolVar(&list, "list", false, "list what is kept of the run: attempts, and with -probe and -failure behind it what was run because of one")
	return cmd
}

// chooseOutput is the record that was named; of none that of the last attempt.
func chooseOutput(rows []outputRow, attempt string) (outputRow, error) {
	for _, r := range slices.Backward(rows) {
		if r.Attempt == attempt || attempt == "" && !strings.Contains(r.Attempt, "-") {
			return r, nil
		}
	}
	if attempt != "" {
		return outputRow{}, fmt.Errorf("no output of attempt %s is kept", attempt)
	}
	return outputRow{}, errors.New("no output is kept")
}
