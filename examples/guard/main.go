// Command guard is a resource: a service that pays, into an SQLite file, what runs of syncnode ask it to pay. It
// shows where a service checks the epoch and the run id that a run hands over.
//
// What is promised: a run is paid once, however often it is asked for; and nothing of an older epoch is paid
// after something of a newer one, whatever the processes that share the file do.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver, in Go alone

	"github.com/syncnode/syncnode/fence/guard"
)

func main() {
	file := flag.String("db", "payments.db", "the SQLite `FILE`")
	listen := flag.String("listen", "127.0.0.1:8080", "the `ADDRESS` to listen on")
	flag.Parse()
	db, err := open(context.Background(), *file)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *listen, Handler: handler(db), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// open waits for a writer of another process instead of failing.
func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)")
	if err != nil {
		return nil, err
	}
	for _, create := range []string{guard.TableSQL, `CREATE TABLE IF NOT EXISTS payments (run_id TEXT PRIMARY KEY, epoch BIGINT NOT NULL, cents BIGINT NOT NULL)`} {
		if _, err := db.ExecContext(ctx, create); err != nil {
			return nil, fmt.Errorf("open %s: %w", file, err)
		}
	}
	return db, nil
}

var (
	errOther  = errors.New("another amount was paid for this run")
	errUnsure = errors.New("the commit was not answered, the payment may be made: ask again")
)

// handler puts a Guard before the service. It refuses most of what is to be refused, and repeats answers; that it has
// forgotten everything after a restart does no harm, since the transaction in pay has the last word.
func handler(db *sql.DB) http.Handler {
	return guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, _ := guard.CallOf(r.Context())
		cents, err := strconv.Atoi(r.PostFormValue("cents"))
		if err != nil || cents < 1 {
			http.Error(w, "cents must be a number above 0; nothing was paid", http.StatusBadRequest)
			return
		}
		switch err := pay(r.Context(), db, call, cents); {
		case err == nil:
			fmt.Fprintf(w, "paid %d\n", cents)
		case errors.Is(err, errOther):
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case errors.Is(err, errUnsure):
			log.Print(err)
			w.Header().Set(guard.HeaderExecuted, "maybe")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default: // stale, or the transaction was not committed
			log.Print(err)
			guard.Refuse(w, err)
		}
	}))
}

// pay pays once for the key of a call, in one transaction with its admission. Who asks again learns that it was paid, also at an
// older epoch and after a restart.
func pay(ctx context.Context, db *sql.DB, call guard.Call, cents int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	stale := guard.In(tx).Admit(ctx, call.Agent, call.Epoch)
	switch {
	case errors.Is(stale, guard.ErrStale):
	case stale != nil:
		return stale
	default:
		_, err := tx.ExecContext(ctx, `INSERT INTO payments (run_id, epoch, cents) VALUES ($1, $2, $3) ON CONFLICT (run_id) DO NOTHING`,
			call.Key, call.Epoch, cents)
		if err != nil {
			return err
		}
	}
	var paid int
	switch err := tx.QueryRowContext(ctx, `SELECT cents FROM payments WHERE run_id = $1`, call.Key).Scan(&paid); {
	case errors.Is(err, sql.ErrNoRows):
		return stale
	case err != nil:
		return err
	case paid != cents:
		return errOther
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	return nil
}
