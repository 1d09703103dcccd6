package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
)

// In the processes of tests, and in no program that is built, a node that is away can be given up sooner.
func init() {
	if d, err := time.ParseDuration(os.Getenv("SYNCNODE_TEST_TELL")); err == nil {
		tellTime = d
	}
}

// telling gives the host's exec so long to tell a node an end.
func (h host) telling(d string) host {
	h.env = append(append([]string(nil), h.env...), "SYNCNODE_TEST_TELL="+d)
	return h
}

const untilGo = "echo $$ >c; until test -e go; do sleep 0.2; done; exit "

// journaled waits until the host's own journal says how a run ended.
func (h host) journaled(status string) {
	h.t.Helper()
	bare := h
	bare.args = []string{"--namespace", h.namespace()}
	eventually(h.t, status+" in the journal", func() bool {
		out, err := bare.tries("log", "show")
		return err == nil && bytes.Contains(out, []byte(status))
	})
}

func TestTheEndOfACommandWhoseNodeIsAwayIsKeptForItsReturn(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	for _, end := range []struct {
		code, says, state, cause string
	}{{"0", "was run: committed", "committed", ""}, {"7", "was run: failed (exit 7)", "failed", "exit"}} {
		t.Run(end.state, func(t *testing.T) {
			t.Parallel()
			h := near(t, hosts(t, 1, nil)[0]).telling("1s")
			node := h.answering("--relay", "none")
			run := h.start("exec", "--agent", "a", "--occurrence", "1", "--result", h.path("result"), "--", "sh", "-c", untilGo+end.code)
			h.pid("c")
			node.killed()
			h.touch("go")
			run.want(114, end.says, "could not be told", "the outcome is in the journal and not in the ledger yet; the node writes it when it is back")
			if result := h.read("result"); !strings.Contains(result, `"ran":"yes"`) || !strings.Contains(result, `"state":"`+end.state+`"`) {
				t.Errorf("result: %s", result)
			}
			h.answering("--relay", "none")
			eventually(t, "the run is "+end.state, func() bool { s := h.show("a", "1"); return s.State == end.state && s.Cause == end.cause })
			if s := h.show("a", "1"); len(s.Attempts) != 1 {
				t.Errorf("recorded: %+v", s)
			}
			h.call("exec", "--agent", "b", "--occurrence", "1", "--", "true").want(0) // and nothing is held up
		})
	}
}

// front stands before the node at a socket, and may change its answers; an error is no answer.
func (h host) front(inner string, change func(*http.Response) error) *http.Server {
	front := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "node" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", inner)
		}},
		ModifyResponse: change,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l, err := net.Listen("unix", h.socket())
	must(h.t, err)
	server := &http.Server{Handler: front, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(l)
	return server
}

// A node that was away and then says no writes nothing from the journal either.
func TestAnEndThatANodeRefusesIsNotToldToBeWrittenLater(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	inner := filepath.Join(h.dir, "inner.sock")
	node := h.serve("--relay", "none", "--listen", "unix:"+inner)
	told := 0
	server := h.front(inner, func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/fail") {
			return nil
		}
		if told++; told == 1 {
			return io.ErrUnexpectedEOF
		}
		text := `{"type":"/problems/attempt-closed","title":"the attempt ended otherwise","status":409,"executed":"yes"}`
		r.StatusCode, r.Body, r.ContentLength = http.StatusConflict, io.NopCloser(strings.NewReader(text)), int64(len(text))
		r.Header.Set("Content-Length", strconv.Itoa(len(text)))
		return nil
	})
	defer server.Close()
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "false").want(112, "was run: failed", "the attempt ended otherwise", "so the run is in doubt")
	node.stops()
}

// The node dies after it has begun the run, and before its yes arrives.
func TestACommandThatDidNotStartIsFreeAgainWhenItsNodeIsBack(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0]).telling("1s")
	inner := filepath.Join(h.dir, "inner.sock")
	node := h.serve("--relay", "none", "--listen", "unix:"+inner)
	server := h.front(inner, func(r *http.Response) error {
		if strings.HasSuffix(r.Request.URL.Path, "/fence") && r.StatusCode == http.StatusOK {
			node.killed()
		}
		return nil
	})
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "no-such-command").want(127, "was not run", "could not be told", "until the node writes the journal's word")
	must(t, server.Close())
	h.answering("--relay", "none")
	eventually(t, "the run is free", func() bool { return h.show("a", "1").State == "free" })
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "true").want(0, "committed")
}

func TestAnEndIsOnDiskBeforeItsWrapperHasGivenUpTheNode(t *testing.T) {
	t.Parallel()
	h := near(t, spaced(hosts(t, 1, common.get(t).Endpoints()), "kept")[0]).telling("10m")
	node := h.answering()
	run := h.start("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", untilGo+"0")
	h.pid("c")
	node.killed()
	h.touch("go")
	h.journaled("committed")
	must(t, run.cmd.Process.Kill())
	run.wait()
	h.answering()
	eventually(t, "the run is committed", func() bool { return h.show("a", "1").State == "committed" })
}

func TestANodeThatStoodStillAtTheEndOfACommandRecordsItWhenItGoesOn(t *testing.T) {
	t.Parallel()
	h := near(t, spaced(hosts(t, 1, common.get(t).Endpoints()), "stood-still")[0]).telling("1s")
	node := h.answering()
	run := h.start("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", untilGo+"0")
	h.pid("c")
	lock, err := os.Open(filepath.Join(h.device(), "journal", "LOCK"))
	must(t, err)
	defer lock.Close()
	eventually(t, "the node stands still while it does not write into its journal", func() bool {
		must(t, node.cmd.Process.Signal(syscall.SIGSTOP))
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
			return true
		}
		must(t, node.cmd.Process.Signal(syscall.SIGCONT))
		return false
	})
	h.touch("go")
	run.want(114, "was run: committed", "the outcome is in the journal")
	must(t, node.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the run is committed", func() bool { return h.show("a", "1").State == "committed" })
}

func TestAnEndIsKeptAlsoWhereTheIndexIsLostAndTheJournalBeginsAtACheckpoint(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := near(t, spaced(hosts(t, 1, common.get(t).Endpoints()), "kept-cut")[0]).telling("1s").with("--segment-bytes", "2000")
	node := h.answering("--checkpoint-every", "4")
	for n := range 5 {
		h.run("b", occ(n))
	}
	eventually(t, "a journal that begins at a checkpoint", func() bool { return h.verify().Checkpoint != "" })
	run := h.start("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", untilGo+"0")
	h.pid("c")
	node.killed()
	index := filepath.Join(h.device(), "index.bolt")
	must(t, os.Remove(index+".cut"))
	must(t, os.Remove(index))
	h.touch("go")
	run.want(114, "the outcome is in the journal")
}

// A wrapper that shares no data directory with its node has no journal to write to.
func TestAnEndThatANodeElsewhereDidNotHearIsInDoubt(t *testing.T) {
	t.Parallel()
	all := hosts(t, 2, nil)
	h, far := near(t, all[0]), all[1].telling("1s")
	node := h.answering("--relay", "none")
	run := far.start("exec", "--node", "unix:"+h.socket(), "--agent", "a", "--occurrence", "1", "--", "sh", "-c", untilGo+"0")
	h.pid("c")
	node.killed()
	h.touch("go")
	run.want(112, "was run: committed", "could not be told", "so the run is in doubt: syncnode run resolve")
	h.answering("--relay", "none")
	eventually(t, "the run is in doubt", func() bool { return h.show("a", "1").State == "in doubt" })
}
