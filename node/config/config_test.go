package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/hashicorp/go-multierror"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/schedule/due"
)

const whole = `# all that a file can say
version: 1
drain: 90s
catchup_rate: 6/m
output: { per_run: 512KiB, total: 1GiB }
agents:
  nightly-report:
    schedule: "30 2 * * *"
    tz: Europe/Berlin
    command: ["/opt/report.sh", "--all", "ü \"quoted\"\n"]
    timeout: 1h30m
    overlap: queue
    catchup: all
    catchup_window: 36h
    catchup_limit: 3
    on_doubt: probe
    probe: [/opt/did-it-happen]
    on_lost: keep
    if_failed: retry
    retry: { count: 3, backoff: 30s, exit_codes: [75, 69] }
    on_failure: { webhook: "https://127.0.0.1:9/hook", secret_file: hook.key }
    ttl: 30s
    grace: 20s
  sync-crm:
    schedule: '@every 10m'
    http:
      url: http://127.0.0.1:8080/sync?full=1
      headers: { Content-Type: application/json }
      header_files: { Authorization: /run/secrets/crm }
    on_failure: { command: [logger, failed] }
  "010": { command: [date] }
  on: {}
defaults:
  retry: { count: 1, exit_codes: [1] }
`

func TestAWholeFileIsRead(t *testing.T) {
	f, err := config.Parse("conf/fleet.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if f.Drain != 90*time.Second || f.CatchUpRate != (config.Rate{N: 6, Per: time.Minute}) || f.Output != (config.Output{PerRun: 512 << 10, Total: 1 << 30}) {
		t.Errorf("%+v", f)
	}
	var ids []string
	for _, a := range f.Agents {
		ids = append(ids, a.ID)
	}
	if got := strings.Join(ids, " "); got != "010 nightly-report on sync-crm" {
		t.Errorf("agents %s", got)
	}
	a, _ := f.Agent("nightly-report")
	if s := a.Schedule.String(); !strings.Contains(s, "30 2 * * *") || a.Schedule.Zone().String() != "Europe/Berlin" {
		t.Errorf("schedule %s", s)
	}
	a.Schedule = nil
	want := config.Agent{ID: "nightly-report", Command: []string{"/opt/report.sh", "--all", "ü \"quoted\"\n"}, Policy: config.Policy{
		Timeout: 90 * time.Minute, Overlap: due.OverlapQueue, CatchUp: due.CatchUpAll, Window: 36 * time.Hour, Limit: 3,
		OnDoubt: dispatch.DoubtProbe, Probe: []string{"/opt/did-it-happen"}, OnLost: dispatch.LostKeep, IfFailed: dispatch.FailedRetry,
		Retry:   config.Retry{Count: 3, Backoff: 30 * time.Second, BackoffMax: 10 * time.Minute, ExitCodes: []int{75, 69}},
		Failure: config.Failure{Webhook: "https://127.0.0.1:9/hook", SecretFile: "hook.key"},
		TTL:     30 * time.Second, Grace: 20 * time.Second,
	}}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("got  %+v\nwant %+v", a, want)
	}
	if p := f.Path(a.Failure.SecretFile); p != filepath.Join("conf", "hook.key") {
		t.Errorf("the secret is at %s", p)
	}
	b, _ := f.Agent("sync-crm")
	if !reflect.DeepEqual(b.HTTP, &config.HTTP{Method: "POST", URL: "http://127.0.0.1:8080/sync?full=1",
		Headers: map[string]string{"Content-Type": "application/json"}, HeaderFiles: map[string]string{"Authorization": "/run/secrets/crm"}}) {
		t.Errorf("%+v", b.HTTP)
	}
	if b.Retry.Count != 1 || b.Retry.ExitCodes != nil || f.Path("/run/secrets/crm") != "/run/secrets/crm" {
		t.Errorf("%+v", b)
	}
	if c, ok := f.Agent("on"); !ok || c.Schedule != nil || c.TTL != coord.DefaultTTL || !reflect.DeepEqual(c.Policy, f.Defaults) {
		t.Errorf("%+v", c)
	}
	if _, ok := f.Agent("other"); ok {
		t.Error("there is an agent that nobody wrote")
	}
}

// Each row is the rest of a file that has one mistake, and what is said of it; $ begins at line 2.
func TestEachMistakeIsToldWithItsPlaceAndWhatToWrite(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"agentz: {}", `f:2:1: agentz: unknown key; did you mean "agents"?`},
		{"timeout: 1h", `f:2:1: timeout: unknown key; it belongs into an agent or defaults`},
		{"defaults: {schedule: '@daily'}", `f:2:12: defaults.schedule: unknown key; it belongs into an agent`},
		{"output: {max: 1B}", `f:2:10: output.max: unknown key; known are per_run, total`},
		{"drain: 1m\ndrain: 2m", `f:3:1: drain: is there twice, first in line 2; leave one of them out`},
		{"agents: {a: {}, a: {}}", `f:2:17: agents.a: is there twice, first in line 2`},
		{"drain: 30", `f:2:8: drain: "30" has no unit; write 30s`},
		{`drain: "30"`, `f:2:8: drain: "30" has no unit; write 30s`},
		{`catchup_rate: "60"`, `"60" has no unit; write 60/m`},
		{`output: {per_run: "1048576"}`, `f:2:19: output.per_run: "1048576" has no unit`},
		{"drain: 1.5", `has no unit`},
		{"drain: 7d", `f:2:8: drain: "7d" is not a duration; a day has not always 24 hours: write 168h`},
		{"drain: soon", `"soon" is not a duration; write 90s`},
		{"drain: -1s", `-1s is below 0s`},
		{"drain: 9999999h", `is not a duration|is above`},
		{"drain: [1s]", `drain: is a list, want a duration`},
		{"drain: yes", `drain: "yes" is not a duration`},
		{"drain: true", `drain: is the truth value "true", want a duration`},
		{"drain:", `f:2:7: drain: has no value; give it a duration such as 90s, 15m or 24h, or leave the key out`},
		{"drain: ~", `drain: has no value`},
		{"catchup_rate: 60", `"60" has no unit; write 60/m`},
		{"catchup_rate: 60/d", `"60/d" is not a rate`},
		{"catchup_rate: 0/m", `"0/m" is not a rate`},
		{"output: {per_run: 1048576}", `f:2:19: output.per_run: "1048576" has no unit`},
		{"output: {per_run: 1MB}", `"1MB" is not a size; write a whole number and B, KiB, MiB or GiB`},
		{"output: {per_run: 1.5MiB}", `is not a size`},
		{"output: {per_run: 99999999999GiB}", `is above`},
		{"output: {per_run: 1GiB}", `per_run is above total`},
		{"output: {per_run: 31KiB}", `per_run is below 32KiB; write 0B to keep nothing`},
		{"output: 1GiB", `output: is the text "1GiB", want a map`},
		{"agents:", `agents: has no value; give it a map`},
		{"agents: []", `agents: is a list, want a map`},
		{"agents:\n  a:", `f:3:5: agents.a: has no value`},
		{"agents:\n  ~: {}", `f:3:3: agents: a key is no value, want a name`},
		{"agents:\n  [a]: {}", `a key is a list, want a name`},
		{"agents:\n  a b: {}", `f:3:3: agents."a b": the id has " " at byte 1`},
		{"agents:\n  -a: {}", `the id must begin with`},
		{"agents:\n  node.a: {}", `the id begins with node., as the leases of nodes do; choose another`},
		{"agents: {a: {schedule: '@daily'}}", `agents.a.schedule: has nothing to run; add command`},
		{"agents: {a: {schedule: 5, command: [x]}}", `agents.a.schedule: is the number "5", want a schedule`},
		{"agents: {a: {command: [x], http: {url: 'http://h'}}}", `agents.a.http: stands beside command`},
		{"agents: {a: {command: date}}", `agents.a.command: is the text "date", want a list: the program and its arguments; write ["date"]`},
		{"agents: {a: {command: []}}", `agents.a.command: is empty`},
		{"agents: {a: {command: ['']}}", `agents.a.command[0]: the program has no name`},
		{"agents: {a: {command: [sleep, 5]}}", `f:2:31: agents.a.command[1]: is the number "5", want a text; write "5" if that is meant`},
		{"agents: {a: {command: [x, yes]}}\n", ``}, // text, as in YAML 1.2
		{"agents: {a: {command: [x, 2026-01-02]}}", `is the date "2026-01-02", want a text`},
		{`agents: {a: {command: ["x\0"]}}`, `holds a NUL`},
		{"agents: {a: {tz: UTC}}", `agents.a.tz: means nothing without a schedule`},
		{"agents: {a: {catchup: all}}", `agents.a.catchup: means nothing without a schedule`},
		{"agents: {a: {schedule: '@daily', command: [x], catchup_limit: 2}}", `catchup_limit: means nothing with catchup: last`},
		{"agents: {a: {schedule: '@daily', command: [x], tz: europe/berlin}}", `f:2:52: agents.a.tz: "europe/berlin" is not known; Europe/Berlin is meant?`},
		{"agents: {a: {schedule: '@daily', command: [x], tz: Local}}", `agents.a.tz: "Local"`},
		{"agents: {a: {overlap: wait}}", `agents.a.overlap: "wait" is not known; write skip or queue`},
		{"agents: {a: {on_doubt: probe}}", `agents.a.on_doubt: probe needs a command`},
		{"agents: {a: {probe: [x]}}", `agents.a.probe: means nothing with on_doubt: hold`},
		{"defaults: {probe: [x]}", `defaults.probe: means nothing with on_doubt: hold`},
		{"agents: {a: {retry: {count: -1}}}", `agents.a.retry.count: -1 is not in 0 to 100`},
		{"agents: {a: {retry: {count: 0x2}}}", `want a whole number from 0 to 100`},
		{"agents: {a: {retry: {count: '2'}}}", `is the text "2", want a whole number`},
		{"agents: {a: {retry: {backoff: 1h}}}", `agents.a.retry: backoff_max 10m is below backoff 1h`},
		{"agents: {a: {retry: {exit_codes: [0]}}}", `agents.a.retry.exit_codes[0]: 0 is not in 1 to 255`},
		{"agents: {a: {retry: {exit_codes: [7, 7]}}}", `agents.a.retry.exit_codes[1]: 7 is there twice`},
		{"agents: {a: {http: {url: 'http://h'}, retry: {exit_codes: [7]}}}", `exit_codes mean nothing with http`},
		{"agents: {a: {http: {}}}", `agents.a.http: has no url`},
		{"agents: {a: {http: {url: /x}}}", `"/x" is not a URL`},
		{"agents: {a: {http: {url: 'ftp://h'}}}", `is not a URL`},
		{"agents: {a: {http: {url: 'http://h/#x'}}}", `has a fragment`},
		{"agents: {a: {http: {url: 'http://h', method: post}}}", `"post" is not known; write POST, PUT, PATCH, DELETE, GET or HEAD`},
		{"agents: {a: {http: {url: 'http://h', headers: {'a b': x}}}}", `is not the name of a header`},
		{"agents: {a: {http: {url: 'http://h', headers: {A: x, a: y}}}}", `is there twice: the case of letters`},
		{"agents: {a: {http: {url: 'http://h', headers: {A: \"x\\r\\ny: z\"}}}}", `has more than one line`},
		{"agents: {a: {http: {url: 'http://h', headers: {Idempotency-Key: x}}}}", `is set by the node`},
		{"agents: {a: {http: {url: 'http://h', headers: {A: x}, header_files: {a: f}}}}", `which is in headers too`},
		{"agents: {a: {on_failure: {command: [x], webhook: 'http://h'}}}", `stands beside command`},
		{"agents: {a: {on_failure: {secret_file: x}}}", `secret_file: means nothing without webhook`},
		{"agents: {a: {on_failure: {webhook: 'http://h', secret_file: ''}}}", `want the path of a file`},
		{"agents: {a: {ttl: 301s}}", `agents.a.ttl: 301s is above 5m`},
		{"agents: {a: {ttl: 0s}}", `0s is below 1ns`},
		{"agents: {a: &x {}, b: *x}", `f:2:13: an anchor (&) is not read`},
		{"agents: {a: {<<: {}}}", `f:2:14: a merge key (<<) is not read`},
		{"drain: !!str 1s", `f:2:8: a tag ("!!str") is not read`},
		{"---\nversion: 1", `f:2:1: a second document begins here`},
		{"--- [", `is not YAML`},
		{"agents:\n\ta: {}", `f:3:1: a tab indents this line; write spaces`},
		{"agents: {", `f:\d+:1: is not YAML`},
	} {
		_, err := config.Parse("f", []byte("version: 1\n"+c.text))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(c.want), `\|`, "|")
		pattern = strings.ReplaceAll(pattern, `\\d\+`, `\d+`)
		if !errors.Is(err, config.ErrInvalid) || !regexp.MustCompile(pattern).MatchString(err.Error()) {
			t.Errorf("%s\ngot:  %v\nwant: %s", c.text, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "f: is empty; write at least: version: 1", "# nothing": "f: is empty", "drain: 1s": "f:1:1: has no version; write: version: 1",
		"version: 2": "f:1:10: version: 2 is not in 1 to 1", "[]": "f:1:1: is a list, want a map", "\xff": "is not UTF-8", "version: 1\x00": "is not YAML",
	} {
		if _, err := config.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAMistakeInAScheduleIsToldWhereItStandsInTheLine(t *testing.T) {
	for _, c := range []struct {
		spec         string
		line, column int
	}{
		{"'0 24 * * *'", 2, 27}, {`"0 24 * * *"`, 2, 27}, {"0 24 * * *", 2, 26}, {`"0\x2024 * * *"`, 2, 24}, {"'ü 24 * * *'", 2, 25},
		{"'0 0 31 4 *'", 2, 29}, {"'0  2 * * MONN'", 2, 34},
	} {
		_, err := config.Parse("f", []byte("version: 1\nagents: {ä: {schedule: "+c.spec+", command: [x]}}"))
		all, _ := errors.AsType[*multierror.Error](err)
		if all == nil {
			t.Fatalf("%s: %v", c.spec, err)
		}
		found := false
		for _, err := range all.Errors {
			e, ok := errors.AsType[*config.Error](err)
			if ok && strings.HasSuffix(e.Key, ".schedule") {
				found = true
				if e.Line != c.line || e.Column != c.column {
					t.Errorf("%s: told at %d:%d, want %d:%d: %v", c.spec, e.Line, e.Column, c.line, c.column, e)
				}
			}
		}
		if !found {
			t.Errorf("%s: %v", c.spec, err)
		}
	}
}

func TestAllMistakesAreToldAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, err := config.Parse("f", []byte("agents:\n  b: {timeout: 5, ttl: x}\n  a: {comand: [x], schedule: 'x', tz: Mars}\ndrain: 1\nnope: 1\n"))
	all, _ := errors.AsType[*multierror.Error](err)
	if all == nil {
		t.Fatal(err)
	}
	var got []string
	for _, err := range all.Errors {
		if e, ok := errors.AsType[*config.Error](err); ok {
			got = append(got, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Key))
		}
	}
	want := []string{"1:1 ", "2:16 agents.b.timeout", "2:24 agents.b.ttl", "3:7 agents.a.comand", "3:32 agents.a.schedule", "3:39 agents.a.tz", "4:8 drain", "5:1 nope"}
	if !slices.Equal(got, want) || strings.Count(err.Error(), "\n") != len(want)-1 {
		t.Errorf("got  %q\nwant %q\n%v", got, want, err)
	}
}

func TestNoSecretStandsInAFileAndNoneIsQuoted(t *testing.T) {
	for _, text := range []string{
		"headers: {Authorization: hunter2}", "headers: {x-api-key: hunter2}", "headers: {Cookie: hunter2}",
		"url: 'http://user:hunter2@h'", "url: 'http://user:hunter2@h:x'", "url: 'http://user:hunter2@[h'",
	} {
		_, err := config.Parse("f", []byte("version: 1\nagents: {a: {http: {url: 'http://h', "+text+"}}}"))
		if strings.HasPrefix(text, "url") {
			_, err = config.Parse("f", []byte("version: 1\nagents: {a: {http: {"+text+"}}}"))
		}
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestANoteSaysWhatIsOftenMeantOtherwise(t *testing.T) {
	f, err := config.Parse("f", []byte("version: 1\nagents:\n  a: {schedule: '0 0 13 * FRI', command: [x]}\n"))
	if err != nil || len(f.Notes) != 1 || f.Notes[0].Line != 3 || f.Notes[0].Key != "agents.a.schedule" || f.Notes[0].Text == "" {
		t.Errorf("%+v %v", f, err)
	}
}

func TestAFileIsLoadedAndOneThatIsMissingIsNoMistakeInIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if _, err := config.Load(path); !errors.Is(err, os.ErrNotExist) || errors.Is(err, config.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := config.Load(path); err != nil || len(f.Agents) != 4 || f.Path("x") != filepath.Join(filepath.Dir(path), "x") {
		t.Errorf("%+v %v", f, err)
	}
	if err := os.WriteFile(path, make([]byte, config.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("%v", err)
	}
}

func TestTheExampleInTheDocsIsRight(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```\nversion: 1\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("there is none")
	}
	if f, err := config.Parse("f", []byte("version: 1\n"+text)); err != nil || len(f.Agents) != 3 || len(f.Notes) != 0 {
		t.Errorf("%+v %v", f, err)
	}
}
