package child

import (
	"maps"
	"slices"
	"strings"
)

// Private says whether a variable is not for a child to inherit: all of ours, since any may carry a secret or
// the way to one and those of an outer run would speak of the wrong run, and those of etcd's own client.
func Private(name string) bool {
	return strings.HasPrefix(name, "SYNCNODE_") || strings.HasPrefix(name, "ETCDCTL_")
}

// Environ is base without the variables that drop names, and with those of add, which win. Of a name that
// base has twice the last is kept. The order is that of base, then that of the added names. drop may be nil.
func Environ(base []string, drop func(name string) bool, add map[string]string) []string {
	last := make(map[string]int, len(base))
	for i, kv := range base {
		if name, _, ok := strings.Cut(kv, "="); ok {
			last[name] = i
		}
	}
	env := make([]string, 0, len(last)+len(add))
	for i, kv := range base {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || last[name] != i || drop != nil && drop(name) {
			continue
		}
		if _, replaced := add[name]; !replaced {
			env = append(env, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(add)) {
		env = append(env, name+"="+add[name])
	}
	return env
}
