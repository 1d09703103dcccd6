package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

const golden = `{"v":1,"device":"d1","relays":{"etcd":{"instance":"0123456789abcdef0123456789abcdef","generation":2,"heads":{"d1":{"seq":9,"op_id":"op-1"}},"seen":"2026-03-01T12:00:00Z"}},` +
	`"quarantined":[{"device":"d2","relay":"0123456789abcdef0123456789abcdef","seq":5,"reason":"a < b","permanent":true,"since":"2026-03-01T12:00:00Z"}]}` + "\n"

func TestTheStateFileIsWhatTheFormatSays(t *testing.T) {
	name := filepath.Join(t.TempDir(), "node.json")
	if _, err := node.ReadState(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(name, []byte(golden), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := node.ReadState(name)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil || b.String() != golden {
		t.Errorf("%v\n%swant\n%s", err, b.String(), golden)
	}
	for text, want := range map[string]string{`{"v":2}`: "version 2", `{`: "damaged"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := node.ReadState(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is read as %v", text, err)
		}
	}
}

// stuck is a session of which a chain is quarantined until it is freed.
type stuck struct {
	*session.Session
	chains atomic.Pointer[[]session.Quarantine]
}

func (s *stuck) Status() session.Status { return session.Status{Quarantined: *s.chains.Load()} }

func TestQuarantinedChainsStandInTheStateFileForWhoeverLooksBesideTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := anchored(t, "d1", memory.New(memory.Config{}))
		watched := &stuck{Session: m.Session}
		watched.chains.Store(&[]session.Quarantine{{Device: "d2", Instance: "r", Seq: 5, Reason: errors.New("forked"), Permanent: true, Since: time.Now()}})
		m.cfg.Watcher = watched
		m.start()
		bubble.Pass(10 * time.Second)
		s, err := node.ReadState(m.cfg.StateFile)
		if q := s.Quarantined; err != nil || len(q) != 1 || q[0].Device != "d2" || q[0].Seq != 5 || q[0].Reason != "forked" || !q[0].Permanent {
			t.Errorf("state %+v, %v", s, err)
		}
		watched.chains.Store(new([]session.Quarantine))
		bubble.Pass(10 * time.Second)
		if s, err := node.ReadState(m.cfg.StateFile); err != nil || len(s.Quarantined) != 0 {
			t.Errorf("freed, and the state says %+v, %v", s, err)
		}
		m.stop()
	})
}
