#!/bin/sh
# Runs `go test -v "$@"`, prints a line a package and all that failed tests said, and lists every skip with its reason. Where
# SYNCNODE_CI is set, a skip that skips.txt does not explain is a failure: it would hide a test that could run. A line
# there is the name of a test, and what it may be skipped without: `NAME unless COMMAND` explains nothing where COMMAND succeeds.
set -eu
go=${GO:-go}
log=$(mktemp)
said=$(mktemp)
trap 'rm -f "$log" "$said"' EXIT
status=0
$go test -v "$@" >"$log" 2>&1 || status=$?
grep -E '^(ok|FAIL|panic:|\?)[[:space:]]' "$log" || true
if [ "$status" -ne 0 ]; then
	echo "== what failed"
	awk -f "$(dirname "$0")/failed.awk" "$log" "$log" >"$said"
	cat "$said"
	echo "== in short"
	grep -A4 -E '^[[:space:]]*(--- FAIL|[a-zA-Z0-9_]+_test\.go:[0-9]+:)|^panic:|DATA RACE|^FAIL[[:space:]]' "$said" | cut -c1-300 | tail -n 60
	exit "$status"
fi
skips=$(grep -B1 -E '^[[:space:]]*--- SKIP' "$log" | grep -vE '^--$' || true)
if [ -n "$skips" ]; then
	echo "== skipped"
	echo "$skips"
	names=$(echo "$skips" | sed -n 's/^[[:space:]]*--- SKIP: \([^ ]*\).*/\1/p')
	explained=$(while read -r name _ command; do
		if [ -z "$command" ] || ! sh -c "$command" >/dev/null 2>&1; then echo "$name"; fi
	done <"$(dirname "$0")/skips.txt")
	unexplained=$(printf '%s\n' "$names" | grep -vxF -e "$explained" || true)
	if [ -n "${SYNCNODE_CI:-}" ] && [ -n "$unexplained" ]; then
		echo "== skipped without an explanation in internal/ci/skips.txt"
		echo "$unexplained"
		exit 1
	fi
fi
