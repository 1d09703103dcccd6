#!/bin/sh
# Runs each fuzz target of the module for FUZZTIME. A module without any is an error: the list was lost.
#
# go test -fuzz sometimes ends a target with a bare "context deadline exceeded" when its own time is over while a worker
# is still at an input (golang/go#75804, fixed in Go 1.27). That is told, and no finding: a finding names the input that failed.
set -eu
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do
	for target in $(grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do
		found=$((found + 1))
		echo "fuzz $dir $target"
		status=0
		$go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 20x "$dir" >"$log" 2>&1 || status=$?
		tail -n 3 "$log"
		[ "$status" -eq 0 ] && continue
		if grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|hung or terminated|_test\.go:' "$log"; then
			echo "  the tool's time ran out while a worker was busy; no input failed"
			continue
		fi
		cat "$log"
		exit "$status"
	done
done
echo "fuzz targets: $found"
[ "$found" -gt 0 ]
