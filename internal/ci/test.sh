#!/bin/sh
# Runs `go test -v "$@"`, prints a line a package and all that failed tests said, and lists every skip with its reason. Where
# SYNCNODE_CI is set, a skip that skips.txt does not explain is a failure: it would hide a test that could run. A line
# there is the name of a test, and what it may be skipped without: `NAME unless COMMAND` explains nothing where COMMAND succeeds.
set -eu
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
$go test -v "$@" >"$log" 2>&1 || status=$?
grep -E '^(ok|FAIL|panic:|\?)[[:space:]]' "$log" || true
if [ "$status" -ne 0 ]; then
	echo "== what failed"
	awk -f "$(dirname "$0")/failed.awk" "$log" "$log"
	echo "== in short"
	grep -E '^[[:space:]]*--- FAIL|^panic:|DATA RACE|^FAIL[[:space:]]' "$log" || true
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
