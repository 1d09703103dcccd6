package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/seal"
)

// keyFlags say which file of seal keys is meant; none of its verbs needs etcd.
type keyFlags struct {
	dataDir, file string
	out           outputFlag
}

func (f *keyFlags) register(flags *pflag.FlagSet) {
	registerDataDir(flags, &f.dataDir)
	registerSealKeys(flags, &f.file)
	f.out.register(flags)
}

func registerSealKeys(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "seal-keys", "", "`FILE` of the keys that seal and open payloads; seal.keys in the data directory if not given")
}

// sealKeysFile is the file that --seal-keys means.
func sealKeysFile(file, dataDir string) string {
	if file != "" {
		return file
	}
	return filepath.Join(dataDir, "seal.keys")
}

func (f *keyFlags) path() (string, error) {
	if err := f.out.check(); err != nil {
		return "", err
	}
	if f.file == "" && f.dataDir == "" {
		return "", usagef("no home directory: give --seal-keys FILE or --data-dir DIR")
	}
	return sealKeysFile(f.file, f.dataDir), nil
}

// A keyRow is what is shown of a key: never its bytes.
type keyRow struct {
	ID      string `json:"id"`
	Created string `json:"created"`
	Seals   bool   `json:"seals"`
	File    string `json:"file"`
}

func keyRowOf(info seal.KeyInfo, file string) keyRow {
	return keyRow{ID: info.ID, Created: info.Created.UTC().Format(time.RFC3339), Seals: info.Seals, File: file}
}

// use says what the key does.
func (r keyRow) use() string {
	if r.Seals {
		return "seals and opens"
	}
	return "opens"
}

func newKey() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "make, rotate and list the keys that seal payloads; needs no etcd", Args: noArgs,
		Long: `A key file has one or more keys: the newest seals what this device writes, every one opens what it sealed.

All devices of a fleet need the same keys: generate once, and copy the file to the others over a channel that you
trust. What a device cannot open waits until it has the key. syncnode serve --seal says what is sealed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newKeyGenerate(), newKeyRotate(), newKeyList())
	return cmd
}

func newKeyGenerate() *cobra.Command {
	var f keyFlags
	cmd := &cobra.Command{Use: "generate", Short: "make a key file with one key, once for a fleet; a file that is there stays", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := f.path()
			if err != nil {
				return err
			}
			if f.file == "" {
				if err := os.MkdirAll(f.dataDir, 0o700); err != nil {
					return fmt.Errorf("data directory: %w", err)
				}
			}
			info, err := seal.Generate(path, time.Now())
			if errors.Is(err, seal.ErrExists) {
				return fmt.Errorf("%w; nothing was changed: `syncnode key rotate` adds a key to it", err)
			}
			if err != nil {
				return err
			}
			row := keyRowOf(info, path)
			return printOne(f.out, cmd.OutOrStdout(), row, fmt.Sprintf("key      %s\ncreated  %s\nfile     %s\nCopy the file to every other device of the fleet; a device with other keys cannot read this one's.\n", row.ID, row.Created, row.File))
		}}
	f.register(cmd.Flags())
	return cmd
}

func newKeyRotate() *cobra.Command {
	var f keyFlags
	cmd := &cobra.Command{Use: "rotate", Short: "add a key that seals from now on; the older ones still open", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := f.path()
			if err != nil {
				return err
			}
			info, err := seal.Rotate(path, time.Now())
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("no key file %s: `syncnode key generate`, or copy that of another device", path)
			}
			if err != nil {
				return err
			}
			row := keyRowOf(info, path)
			return printOne(f.out, cmd.OutOrStdout(), row, fmt.Sprintf("key      %s\ncreated  %s\nfile     %s\nCopy the file to every other device of the fleet; until then what this key seals waits there.\n", row.ID, row.Created, row.File))
		}}
	f.register(cmd.Flags())
	return cmd
}

func newKeyList() *cobra.Command {
	var f keyFlags
	cmd := &cobra.Command{Use: "list", Short: "list ids and times of the keys, oldest first; never the keys", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := f.path()
			if err != nil {
				return err
			}
			keys, err := seal.Open(path)
			if err != nil {
				return err
			}
			var rows []keyRow
			for _, info := range keys.List() {
				rows = append(rows, keyRowOf(info, path))
			}
			if len(rows) == 0 {
				return fmt.Errorf("no key file %s: `syncnode key generate`, or copy that of another device", path)
			}
			return printRows(f.out, cmd.OutOrStdout(), rows, "KEY\tCREATED\tUSE", func(r keyRow) string {
				return fmt.Sprintf("%s\t%s\t%s", r.ID, r.Created, r.use())
			})
		}}
	f.register(cmd.Flags())
	return cmd
}
