package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/syncnode/syncnode/fence/guard"
)

// TestMain is also the process that TestOfTwoProcesses… starts.
func TestMain(m *testing.M) {
	if file := os.Getenv("GUARD_PAYER_DB"); file != "" {
		if err := payer(file, os.Getenv("GUARD_PAYER_EPOCH"), os.Getenv("GUARD_PAYER_RUNS")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// payer pays for runs at an epoch until it is refused, or has paid for so many; or, if there is no number, once more
// after its input ended. It says a word for each.
func payer(file, epoch, runs string) error {
	ctx := context.Background()
	db, err := open(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	at, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return err
	}
	var told atomic.Bool
	enough := func(int) bool { return told.Load() }
	if runs != "" {
		n, err := strconv.Atoi(runs)
		if err != nil {
			return err
		}
		enough = func(i int) bool { return i+1 >= n }
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		told.Store(true)
	}()
	for i, last := 0, false; !last; i++ {
		last = enough(i)
		err := pay(ctx, db, guard.Call{Agent: "invoices", Epoch: at, Key: fmt.Sprintf("run-%d-at-%d", i, at)}, 1)
		if errors.Is(err, guard.ErrStale) {
			fmt.Println("refused")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("paid")
	}
	return nil
}

func database(t *testing.T) (*sql.DB, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "payments.db")
	db, err := open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, file
}

// epochs are those of the payments, in the order of their commits: SQLite has one writer at a time.
func epochs(t *testing.T, db *sql.DB) (all []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT epoch FROM payments ORDER BY rowid`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e int64
		if err := rows.Scan(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// inOrder holds that no payment of an older epoch comes after one of a newer.
func inOrder(t *testing.T, db *sql.DB) []int64 {
	t.Helper()
	all := epochs(t, db)
	for i := 1; i < len(all); i++ {
		if all[i] < all[i-1] {
			t.Errorf("payment %d of epoch %d came after one of epoch %d", i, all[i], all[i-1])
		}
	}
	return all
}

func TestTheTableRefusesAnOlderEpoch(t *testing.T) {
	db, file := database(t)
	s := guard.In(db)
	for _, c := range []struct {
		agent string
		epoch int64
		want  error
	}{
		{"a", 3, nil}, {"a", 3, nil}, {"a", 2, guard.ErrStale}, {"b", 2, nil}, {"a", guard.MaxEpoch, nil}, {"a", 3, guard.ErrStale}, {"b", 3, nil},
	} {
		if err := s.Admit(t.Context(), c.agent, c.epoch); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("epoch %d of %s: got %v, want %v", c.epoch, c.agent, err, c.want)
		}
	}
	again, err := open(t.Context(), file) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := guard.In(again).Admit(t.Context(), "b", 2); !errors.Is(err, guard.ErrStale) {
		t.Errorf("after a restart: %v", err)
	}
}

func TestAnEffectThatWasRolledBackRaisedNoEpoch(t *testing.T) {
	db, _ := database(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.In(tx).Admit(t.Context(), "invoices", 9); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := pay(t.Context(), db, guard.Call{Agent: "invoices", Epoch: 1, Key: "r1"}, 1); err != nil {
		t.Error(err)
	}
}

func TestARefusedPaymentLeavesNothing(t *testing.T) {
	db, _ := database(t)
	for _, c := range []struct {
		epoch int64
		key   string
		cents int
		want  error
	}{
		{2, "r1", 5, nil},
		{1, "r2", 5, guard.ErrStale},
		{1, "r1", 5, nil}, // it was paid, and who asks late learns it
		{3, "r1", 5, nil},
		{3, "r1", 6, errOther},
	} {
		err := pay(t.Context(), db, guard.Call{Agent: "invoices", Epoch: c.epoch, Key: c.key}, c.cents)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s at epoch %d: got %v, want %v", c.key, c.epoch, err, c.want)
		}
	}
	if all := epochs(t, db); len(all) != 1 || all[0] != 2 {
		t.Errorf("payments at %v", all)
	}
}

func TestOfManyConnectionsNoneIsPaidAtAnOlderEpochAfterANewer(t *testing.T) {
	db, _ := database(t)
	var wg sync.WaitGroup
	for epoch := range int64(8) {
		wg.Go(func() {
			for i := range 10 {
				err := pay(t.Context(), db, guard.Call{Agent: "invoices", Epoch: epoch + 1, Key: fmt.Sprintf("run-%d-at-%d", i, epoch)}, 1)
				if err != nil && !errors.Is(err, guard.ErrStale) {
					t.Errorf("at epoch %d: %v", epoch+1, err)
				}
			}
		})
	}
	wg.Wait()
	if all := inOrder(t, db); all[len(all)-1] != 8 {
		t.Errorf("payments at %v", all)
	}
}

func TestOfTwoProcessesTheOlderIsRefusedFromTheNewersFirstEffectOn(t *testing.T) {
	db, file := database(t)
	start := func(epoch, runs string) (*exec.Cmd, io.Closer, *bufio.Scanner) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "GUARD_PAYER_DB="+file, "GUARD_PAYER_EPOCH="+epoch, "GUARD_PAYER_RUNS="+runs)
		in, errIn := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		return cmd, in, bufio.NewScanner(out)
	}
	older, tell, saysOlder := start("1", "")
	if !saysOlder.Scan() || saysOlder.Text() != "paid" {
		t.Fatalf("the older process said %q", saysOlder.Text())
	}
	newer, _, saysNewer := start("2", "20")
	if last := lastWord(saysNewer); last != "paid" {
		t.Fatalf("the newer process's last word was %q", last)
	}
	if err := tell.Close(); err != nil {
		t.Error(err)
	}
	if last := lastWord(saysOlder); last != "refused" {
		t.Errorf("the older process's last word was %q", last)
	}
	if err := errors.Join(older.Wait(), newer.Wait()); err != nil {
		t.Error(err)
	}
	if all := inOrder(t, db); all[0] != 1 || all[len(all)-1] != 2 {
		t.Errorf("payments at %v", all)
	}
}

func lastWord(s *bufio.Scanner) (last string) {
	for s.Scan() {
		last = s.Text()
	}
	return last
}

// post asks a service to pay.
func post(t *testing.T, h http.Handler, epoch, key, cents string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader(url.Values{"cents": {cents}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set(guard.HeaderAgent, "invoices")
	r.Header.Set(guard.HeaderEpoch, epoch)
	r.Header.Set(guard.HeaderKey, key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAServiceThatForgotEverythingPaysNothingTwiceAndNothingLate(t *testing.T) {
	db, _ := database(t)
	for _, c := range []struct {
		epoch, key, cents string
		want              int
	}{
		{"2", "r1", "500", http.StatusOK},
		{"1", "r2", "500", http.StatusPreconditionFailed},
		{"1", "r1", "500", http.StatusOK},
		{"2", "r1", "501", http.StatusUnprocessableEntity},
		{"2", "r3", "-1", http.StatusBadRequest},
	} {
		restarted := handler(db) // for each call
		if w := post(t, restarted, c.epoch, c.key, c.cents); w.Code != c.want {
			t.Errorf("%s at epoch %s: got %d, want %d: %s", c.key, c.epoch, w.Code, c.want, w.Body)
		}
	}
	if all := epochs(t, db); len(all) != 1 {
		t.Errorf("payments at %v", all)
	}
}
