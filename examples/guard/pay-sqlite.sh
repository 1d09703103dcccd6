#!/bin/sh
# Pays into an SQLite file, as the command of a run:
#
#   syncnode exec --agent invoices --occurrence 2026-11 -- examples/guard/pay-sqlite.sh payments.db 4200
#
# Admission and payment are one transaction. The payment selects its permission: the row of the agent has the epoch
# of this run only if the epoch was admitted. Ids have no quotes in them.
set -eu
case $2 in '' | *[!0-9]*) echo "CENTS must be a number; nothing was paid" >&2 && exit 2 ;; esac
paid=$(sqlite3 -bail "$1" <<SQL
.timeout 60000
CREATE TABLE IF NOT EXISTS syncnode_guard (agent TEXT PRIMARY KEY, epoch BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS payments (run_id TEXT PRIMARY KEY, epoch BIGINT NOT NULL, cents BIGINT NOT NULL);
BEGIN IMMEDIATE;
INSERT INTO syncnode_guard (agent, epoch) VALUES ('$SYNCNODE_RUN_AGENT', $SYNCNODE_RUN_EPOCH)
ON CONFLICT (agent) DO UPDATE SET epoch = excluded.epoch WHERE syncnode_guard.epoch <= excluded.epoch;
INSERT INTO payments (run_id, epoch, cents)
SELECT '$SYNCNODE_RUN_ID', $SYNCNODE_RUN_EPOCH, $2 FROM syncnode_guard
WHERE agent = '$SYNCNODE_RUN_AGENT' AND epoch = $SYNCNODE_RUN_EPOCH
ON CONFLICT (run_id) DO NOTHING;
COMMIT;
SELECT count(*) FROM payments WHERE run_id = '$SYNCNODE_RUN_ID';
SQL
)
if [ "$paid" != 1 ]; then
	echo "epoch $SYNCNODE_RUN_EPOCH of $SYNCNODE_RUN_AGENT is older than one that was seen; nothing was paid" >&2
	exit 1
fi
