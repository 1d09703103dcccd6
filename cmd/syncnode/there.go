package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/coord/etcd"
)

// What only looks makes nothing: a mistyped directory or namespace would answer that all is well.

// hasDataDir refuses a data directory that is not there.
func hasDataDir(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no data directory %s, and none was made: nothing was run from here yet", dir)
	}
	return nil
}

// ownEtcds are the folders in which the data directory may have an etcd.
func (f *backendFlags) ownEtcds() []string {
	return []string{filepath.Join(f.dataDir, "member"), filepath.Join(f.dataDir, "embedded", f.namespace)}
}

// hasOwnLedger refuses a data directory that has no etcd of its own.
func (f *backendFlags) hasOwnLedger() error {
	if err := hasDataDir(f.dataDir); err != nil {
		return fmt.Errorf("%w; for a ledger that is elsewhere give --endpoints URLS, or --data-dir DIR", err)
	}
	for _, dir := range f.ownEtcds() {
		if _, err := os.Stat(dir); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no etcd of namespace %s in %s, and none was made: nothing was run from here without --endpoints yet; give --endpoints URLS, or another --data-dir or --namespace",
		f.namespace, f.dataDir)
}

// hasLedger refuses an etcd that has no ledger of the namespace.
func (be *backend) hasLedger(ctx context.Context) error {
	there, err := etcd.Exists(ctx, be.client, be.flags.namespace)
	if err == nil && !there {
		err = fmt.Errorf("no ledger of namespace %s in %s, and none was made: nothing was run in it yet; is it another --namespace, or other --endpoints?", be.flags.namespace, be.where)
	}
	return err
}
