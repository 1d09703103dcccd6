package guard

import (
	"context"
	"database/sql"
	"fmt"
)

// TableSQL creates the table that AdmitSQL needs, in SQLite from 3.24 on and in PostgreSQL from 9.5 on.
const TableSQL = `CREATE TABLE IF NOT EXISTS syncnode_guard (agent TEXT PRIMARY KEY, epoch BIGINT NOT NULL)`

// AdmitSQL is the one statement: it changes one row if the epoch $2 of agent $1 is admitted, and none if it is refused. In
// PostgreSQL above READ COMMITTED a concurrent newer epoch gives a serialization error: no admission either.
const AdmitSQL = `INSERT INTO syncnode_guard (agent, epoch) VALUES ($1, $2)
ON CONFLICT (agent) DO UPDATE SET epoch = excluded.epoch WHERE syncnode_guard.epoch <= excluded.epoch`

// An Execer is a *sql.Tx, *sql.Conn or *sql.DB.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// In is the Store that the table is, asked inside of x. With the transaction of the effect as x, admission and effect
// are one; with a database it is as durable, and promises no more than any Store in front of an effect.
func In(x Execer) Store { return table{x} }

type table struct{ x Execer }

func (t table) Admit(ctx context.Context, agent string, epoch int64) error {
	if err := check(agent, epoch); err != nil {
		return err
	}
	did, err := t.x.ExecContext(ctx, AdmitSQL, agent, epoch)
	if err != nil {
		return fmt.Errorf("admit epoch %d of agent %s: %w", epoch, agent, err)
	}
	rows, err := did.RowsAffected()
	switch {
	case err != nil:
		return fmt.Errorf("admit epoch %d of agent %s: %w", epoch, agent, err)
	case rows == 0:
		return &StaleError{Agent: agent, Epoch: epoch}
	}
	return nil
}
