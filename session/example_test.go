package session_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// Two devices exchange what they wrote through a relay, and have the same state.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "session")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := func(device string) *session.Session {
		j, err := journal.Open(ctx, journal.Config{Dir: filepath.Join(dir, device), Device: device})
		if err != nil {
			log.Fatal(err)
		}
		s, err := session.Open(ctx, session.Config{Device: device, Journal: j})
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	laptop, server, relay := open("laptop"), open("server"), memory.New(memory.Config{})

	if _, _, err := laptop.RecordIntent(ctx, oplog.Intent{
		RunID: "invoices-2026-03", Agent: "billing", Epoch: 1, Status: oplog.StatusCommitted,
	}); err != nil {
		log.Fatal(err)
	}
	for _, s := range []*session.Session{laptop, server} {
		if _, err := s.Pump(ctx, relay); err != nil {
			log.Fatal(err)
		}
	}
	_, committed := server.CommittedRun("billing", "invoices-2026-03")
	fmt.Println("committed:", committed)
	fmt.Println("same state:", laptop.Digest() == server.Digest())
	// Output:
	// committed: true
	// same state: true
}
