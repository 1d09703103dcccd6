package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says more of a mistake in a flag: what was probably meant, or how a duration is written.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1:
		if meant := near(unknown.GetSpecifiedName(), flagNames(cmd)); meant != "" {
			return usagef("%w; --%s is meant?", err, meant)
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
			known = append(known, envName(name))
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" || !strings.HasPrefix(name, "SYNCNODE_") || strings.HasPrefix(name, "SYNCNODE_RUN_") || slices.Contains(known, name) {
			continue
		}
		if meant := near(name, known); meant != "" {
			return usagef("the environment has %s, which nothing reads; %s is meant? Rename it or unset it", name, meant)
		}
	}
	return nil
}

// near is the word that got is a slip of the hand away from, or "".
func near(got string, words []string) string {
	best, least := "", 3
	for _, w := range words {
		// In short words two other letters are another word.
		most := 2
		if len(strings.TrimPrefix(w, "SYNCNODE_")) < 8 {
			most = 1
		}
		if d := distance(got, w); d <= most && d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters to add, leave out or change make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
