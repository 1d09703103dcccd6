#!/bin/sh
# Asks the service of this folder to pay, as the command of a run:
#
#   syncnode exec --agent invoices --occurrence 2026-11 -- examples/guard/pay.sh 4200
#
# The three headers are all that a run has to hand over. Trying again is safe: the service knows the key. The exit code is
# 22 for a refusal, whose words say what was executed.
set -eu
exec curl -sS --fail-with-body --max-time 20 --retry 3 --retry-connrefused \
	-H "Syncnode-Agent: $SYNCNODE_RUN_AGENT" \
	-H "Syncnode-Epoch: $SYNCNODE_RUN_EPOCH" \
	-H "Idempotency-Key: $SYNCNODE_RUN_ID" \
	--data-urlencode "cents=$1" "${PAYMENTS_URL:-http://127.0.0.1:8080/payments}"
