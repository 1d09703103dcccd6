#!/bin/sh
# Runs each fuzz target of the module for FUZZTIME. A module without any is an error: the list was lost.
set -eu
go=${GO:-go}
found=0
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do
	for target in $(grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do
		found=$((found + 1))
		echo "fuzz $dir $target"
		$go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 20x "$dir"
	done
done
echo "fuzz targets: $found"
[ "$found" -gt 0 ]
