package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/syncnode/syncnode/internal/meant"
)

// envPrefix begins the name of every variable of ours.
const envPrefix = "SYNCNODE_"

// flagError says more of a mistake in a flag: what was probably meant, or how a duration is written. cmd is for flags that are not known.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1:
		if word := meant.Word(unknown.GetSpecifiedName(), flagNames(cmd)); word != "" {
			return usagef("%w; --%s is meant?", err, word)
		}
	case errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "duration":
		return usagef("%w; durations are written 90s, 15m, 24h", err)
	}
	return &usageError{err}
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// checkEnv refuses a variable that is nearly the name of one of ours: a misspelt SYNCNODE_ENDPOINTS would make
// each host ask an etcd of its own. Other names with our prefix are not ours to judge: Kubernetes makes some for a
// service that is called syncnode.
func checkEnv(root *cobra.Command, environ []string) error {
	var known []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, name := range flagNames(cmd) {
			known = append(known, strings.TrimPrefix(envName(name), envPrefix))
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if value == "" || !ours || strings.HasPrefix(rest, "RUN_") || slices.Contains(known, rest) {
			continue
		}
		if word := meant.Word(rest, known); word != "" {
			return usagef("the environment has %s, which nothing reads; %s is meant? Rename it or unset it", name, envPrefix+word)
		}
	}
	return nil
}
