package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/relay"
)

func TestTheLogOfANodeIsJSONWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "logged")[0]
	beat := h.configure(`
version: 1
agents:
  beat: { schedule: "@every 1s", command: ["true"] }
`)
	node := h.serve(append(beat, "--log-format", "json")...)
	node.says(`"msg":"run ended"`)
	node.stops()
	seen := map[string]bool{}
	for line := range strings.Lines(node.log()) {
		var record struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time == "" || record.Level == "" || record.Msg == "" {
			t.Errorf("%q: %v", line, err)
		}
		seen[record.Msg] = true
	}
	for _, msg := range []string{"serving", "lease held", "run started", "run ended"} {
		if !seen[msg] {
			t.Errorf("no line says %q", msg)
		}
	}
	h.call("serve", "--log-format", "xml").want(2, `"xml": want text or json`)
	h.call("serve", "--log-level", "loud").want(2, `"loud": want debug, info, warn or error`)
}

func TestNothingBelowTheLevelIsLogged(t *testing.T) {
	var out bytes.Buffer
	log, err := (&loggingFlags{format: "text", level: "warn"}).open(&out)
	must(t, err)
	log.Info("quiet")
	log.Warn("told")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "told") {
		t.Errorf("%q", got)
	}
}

func TestTheLogDoesNotSayWhichGoPackageAnErrorIsOf(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := (&loggingFlags{format: format, level: "warn"}).open(&out)
		must(t, err)
		log.Warn("failed", "err", fmt.Errorf("pump: %w", errors.Join(coord.ErrNotSent, relay.ErrFull)))
		if got := out.String(); !strings.Contains(got, "pump: not sent, nothing happened; full") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

func TestNoJSONOfAnExecSaysWhichGoPackageAnErrorIsOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, text := said(t, "exec", "--output", "json", "--result", dir+"/result", "--data-dir", dir+"/d", "--endpoints", "http://127.0.0.1:1", "--backend-timeout", "300ms",
		"--agent", "a", "--occurrence", "1", "--", "true")
	file, err := os.ReadFile(dir + "/result")
	must(t, err)
	for _, got := range []string{text, string(file)} {
		if code != 125 || !strings.Contains(got, "not sent, nothing happened") || strings.Contains(got, "coord: ") {
			t.Errorf("%d: %s", code, got)
		}
	}
}
