package main

import (
	"log/slog"
	"sync"

	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/seal"
)

// sealFlags say what is sealed, and with which keys.
type sealFlags struct {
	scopes      []string
	keys        string
	acceptClear bool
}

func (f *sealFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.scopes, "seal", nil, "seal what is written in these `SCOPES` (personal, shared:ORG, * for all), and checkpoints, and set aside what is clear there; the same on the whole fleet")
	registerSealKeys(flags, &f.keys)
	flags.BoolVar(&f.acceptClear, "seal-accept-clear", false, "read what is clear in scopes that are sealed, for a fleet whose history began so; it lets whoever can write to the relay add to it")
}

func (f *sealFlags) policy() seal.Policy {
	return seal.Policy{Scopes: f.scopes, AcceptClear: f.acceptClear}
}

func (f *sealFlags) check() error {
	if err := f.policy().Check(); err != nil {
		return usagef("--seal: %w", err)
	}
	return nil
}

// opener opens the keys when they are asked for the first time: a bad key file is no reason not to run a job that needs none. The file
// may be absent, and come later.
func (f *sealFlags) opener(dataDir string) func() (*seal.Sealer, error) {
	return sync.OnceValues(func() (*seal.Sealer, error) {
		keys, err := seal.Open(sealKeysFile(f.keys, dataDir))
		if err != nil {
			return nil, err
		}
		return seal.New(seal.Config{Keys: keys, Policy: f.policy()})
	})
}

// warn tells what to do if something has to be sealed and there is no key.
func (f *sealFlags) warn(log *slog.Logger, s *seal.Sealer, dataDir string) {
	if len(s.Policy().Scopes) > 0 && !s.Sealing() {
		log.Warn("no seal key: what is sealed waits here, and nothing is written to sealed scopes; bring the fleet's key file, or make the first one by `syncnode key generate`; no restart is needed",
			"file", sealKeysFile(f.keys, dataDir))
	}
}
