package guard_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/syncnode/syncnode/fence/guard"
)

// A service whose effect is somewhere else, where it cannot be in one transaction with the admission.
func ExampleGuard_Handler() {
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })
	service := guard.New(guard.Config{}).Handler(pay)

	for _, epoch := range []string{"4", "3"} {
		r := httptest.NewRequest(http.MethodPost, "/pay", nil)
		r.Header.Set("Syncnode-Agent", "invoices")
		r.Header.Set("Syncnode-Epoch", epoch)
		r.Header.Set("Idempotency-Key", "run-of-epoch-"+epoch)
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		fmt.Println("epoch", epoch, "gets", w.Code)
	}
	// Output:
	// epoch 4 gets 200
	// epoch 3 gets 412
}

// Where the effect is in a database, admission and effect are one transaction. The unique run id makes the effect one,
// however often it is asked for.
func ExampleIn() {
	pay := func(ctx context.Context, db *sql.DB, c guard.Call, cents int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()                              // after Commit it does nothing
		if err := guard.In(tx).Admit(ctx, c.Agent, c.Epoch); err != nil { // first of all
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO payments (run_id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING`, c.Key, cents); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
