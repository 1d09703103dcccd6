#!/bin/sh
# A run through the API of a node, with curl: run.sh AGENT OCCURRENCE COMMAND ARGS…
# Exit codes: 0 done now or earlier; 75 not now, try again; 1 look at it.
# SOCKET is the node's socket.
set -eu
agent=$1 occurrence=$2; shift 2
socket=${SOCKET:-$HOME/.local/state/syncnode/node.sock}

# ask METHOD PATH JSON: the answer's body in $answer, its status in $status. No status is no answer: ask the same again.
ask() {
	answer=$(curl -sS --unix-socket "$socket" --max-time 30 -X "$1" -H 'Content-Type: application/json' -d "$3" -w '\n%{http_code}' "http://node$2") || return 1
	status=${answer##*
}
}
# field NAME: a text or number of the answer. Names and values of ours have no quotes in them.
field() { printf '%s\n' "$answer" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" | head -n 1; }
nonce() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

ask POST /v1/runs "{\"agent\":\"$agent\",\"occurrence\":\"$occurrence\",\"request\":\"$(nonce)\"}" || exit 75
case $status in
201) ;;
200) echo "$occurrence was done before: $(field result)" >&2; exit 0 ;;
409) echo "$answer" >&2; [ "$(field executed)" = no ] && exit 75; exit 1 ;;
*) echo "$answer" >&2; exit 75 ;;
esac
run=$(field run_id) claim=$(field claim)

# Only 200 permits to act. The same request again hears the same: so no answer is no reason to give up.
request=$(nonce) tries=0
until ask POST "/v1/runs/$run/fence" "{\"claim\":\"$claim\",\"request\":\"$request\"}"; do
	tries=$((tries + 1)); [ $tries -lt 10 ] || exit 75
	sleep 1
done
[ "$status" = 200 ] || { echo "$answer" >&2; exit 75; }
attempt=$(field attempt) beat=$(($(field heartbeat_ms) / 1000 + 1))
left=$(($(field stop_after_ms) / 1000))
SYNCNODE_RUN_ID=$run SYNCNODE_RUN_EPOCH=$(field epoch) SYNCNODE_RUN_AGENT=$agent
export SYNCNODE_RUN_ID SYNCNODE_RUN_EPOCH SYNCNODE_RUN_AGENT

"$@" &
work=$!
# Stop when the node says so, or is not heard of for as long as its last answer allows.
while sleep "$beat" && kill -0 $work 2>/dev/null; do
	left=$((left - beat))
	if ask POST "/v1/runs/$run/heartbeat" "{\"attempt\":\"$attempt\"}" && [ "$status" = 200 ] && [ "$(field stop)" = false ]; then
		left=$(($(field stop_after_ms) / 1000))
	elif [ "${status:-}" = 412 ] || [ "$(field stop)" = true ] || [ $left -le "$beat" ]; then
		kill $work
	fi
done &
beats=$!
code=0; wait $work || code=$?
kill $beats 2>/dev/null || true

if [ $code = 0 ]; then
	verb=commit body="{\"attempt\":\"$attempt\",\"agent\":\"$agent\",\"result\":\"done\"}"
else
	verb=fail body="{\"attempt\":\"$attempt\",\"agent\":\"$agent\",\"exit_code\":$code}"
fi
tries=0
until ask POST "/v1/runs/$run/$verb" "$body" && [ "$status" != 503 ] && [ "$status" != 429 ]; do # it may be told again, and late
	tries=$((tries + 1)); [ $tries -lt 60 ] || { echo "its end could not be told: run $run is in doubt" >&2; exit 1; }
	sleep 1
done
[ "$status" = 200 ] || { echo "$answer" >&2; exit 1; }
exit $code
