package docs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	root     = "../.."
	patience = 3 * time.Minute // for one step on a starved machine; the first builds the program
	prompt   = "\x01prompt\x02"
)

// TestEveryBlockOfThePagesDoesWhatThePageSays runs the pages. It takes half a minute and more, so it is for CI.
func TestEveryBlockOfThePagesDoesWhatThePageSays(t *testing.T) {
	if os.Getenv("SYNCNODE_CI") == "" && os.Getenv("SYNCNODE_FULL") == "" {
		t.Skip("takes longer than a reader of the pages should wait: set SYNCNODE_CI=1 to run them")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/syncnode")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, page := range Pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				t.Fatal(err)
			}
			runPage(t, bin, string(text))
		})
	}
	t.Run("a page that needs an etcd", func(t *testing.T) {
		t.Parallel()
		runPage(t, bin, "<!-- file: sub/f -->\n```\nx\n```\n```sh\ntest $(cat sub/f) = x\nsyncnode exec -q --endpoints $ENDPOINTS --agent a --occurrence k -- true\n```\n"+
			"```console\n$ syncnode run list --endpoints $ENDPOINTS | wc -l\n2\n```\n")
	})
}

// runPage does what a page says, in its order.
func runPage(t *testing.T, bin, text string) {
	t.Helper()
	blocks, err := Blocks(text)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, bin)
	for _, b := range blocks {
		if b.Kind == File {
			s.write(b.About, strings.Join(b.Lines, "\n")+"\n")
		}
	}
	typed := 0
	for _, b := range blocks {
		if b.Kind != Console && b.Kind != Script {
			continue
		}
		for _, step := range b.Steps() {
			if !s.do(step, b.Kind == Console) {
				return
			}
			typed++
		}
	}
	if typed == 0 {
		t.Error("nothing of the page was run")
	}
	if left := s.lines(s.text()); len(left) > 0 {
		t.Errorf("printed in the background, and not on the page: %q", left)
	}
}

// A session is one shell in a fresh directory.
type session struct {
	t     *testing.T
	dir   string
	mark  string // in the environment of all that it starts
	names names
	ports map[string]string
	etcd  bool

	stdin io.Writer
	wake  chan struct{} // something was printed

	mu      sync.Mutex
	printed bytes.Buffer // not looked at yet
	all     bytes.Buffer
}

// shell types what it gets, one step a line, and says after each how it ended. The steps do not see its standard input.
const shell = `exec 9<&0 </dev/null
go() { case $1 in test) ;; run) command go -C "$DOCS_ROOT" "$@" ;; *) command go "$@" ;; esac; }
while IFS= read -r -u 9 step; do eval "$(base64 -d <<<"$step")"; echo "$DOCS_PROMPT $?"; done`

func open(t *testing.T, bin string) *session {
	t.Helper()
	dir := t.TempDir()
	tmp, err := os.MkdirTemp("", "docs-") // a killed program leaves things there; the name is short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, dir: dir, mark: "DOCS_PAGE=" + dir, names: names{}, ports: map[string]string{}, wake: make(chan struct{}, 1)}
	cmd := exec.Command("bash", "--norc", "-c", shell)
	cmd.Dir = dir
	cmd.Env = append(goEnv(t), s.mark, "HOME="+dir, "TMPDIR="+tmp, "LANG=C.UTF-8", "DOCS_PROMPT="+prompt, "DOCS_ROOT="+module,
		"PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, "SYNCNODE_MEMBER_CLIENT_LISTEN=http://"+s.portFor("127.0.0.1:2379")) // its default
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdin = stdin
	read, write, err := os.Pipe() // one for both streams, and one that a background process may outlive the shell with
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	var reading sync.WaitGroup
	reading.Go(func() { s.read(read) })
	t.Cleanup(func() {
		stdin.Close()
		s.killAll()
		cmd.Wait()
		reading.Wait()
		read.Close()
	})
	return s
}

// goEnv is what the go command needs where HOME is another.
func goEnv(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

func (s *session) read(from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		s.mu.Lock()
		s.printed.Write(buffer[:n])
		s.all.Write(buffer[:n])
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (s *session) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

// until looks at what was printed, each time that something was, until look is content or patience is over.
func (s *session) until(look func(printed string) bool) bool {
	over := time.After(patience)
	tick := time.NewTicker(100 * time.Millisecond) // for what is looked at elsewhere, such as a file
	defer tick.Stop()
	for {
		s.mu.Lock()
		text := s.printed.String()
		s.mu.Unlock()
		if look(text) {
			return true
		}
		select {
		case <-s.wake:
		case <-tick.C:
		case <-over:
			return false
		}
	}
}

var (
	prompted = regexp.MustCompile(prompt + ` (\d+)\n`)
	killed   = regexp.MustCompile(`(?m)^\S*bash: line \d+: +\d+ Killed .*$`)
	port     = regexp.MustCompile(`127\.0\.0\.1:(\d+)`)
	everies  = regexp.MustCompile(`--every (\d+[hm])`)
)

// do types a step and waits for what the page says; false ends the page.
func (s *session) do(step Step, compare bool) bool {
	t := s.t
	t.Helper()
	if strings.Contains(step.Command, "$ENDPOINTS") && !s.etcd {
		s.etcd = true
		const serve = "syncnode serve --data-dir the-etcd --member-name e --member-cluster e=http://127.0.0.1:2480 --member-client-listen http://127.0.0.1:2479 2>the-etcd.log &"
		const ready = "until syncnode ready --data-dir the-etcd >/dev/null 2>&1; do sleep 0.1; done"
		for _, command := range []string{serve, ready, "export ENDPOINTS=http://127.0.0.1:2479"} {
			if !s.do(Step{step.Line, command, nil}, false) {
				return false
			}
		}
	}
	s.awayFromEdge(step.Command)
	command := port.ReplaceAllStringFunc(step.Command, s.portFor)
	fmt.Fprintln(s.stdin, base64.StdEncoding.EncodeToString([]byte(command)))

	if at := index(step.Want, "Killed"); compare && at >= 0 {
		if !s.until(func(printed string) bool { return s.copy().match(step.Want[:at], s.lines(printed)) }) {
			return s.fail(step, "what it prints before it is killed did not come")
		}
		s.kill()
	}
	ended := s.until(func(printed string) bool { return prompted.MatchString(printed) })
	if !ended {
		return s.fail(step, "it does not end")
	}
	code := s.take()
	if !compare {
		s.forget()
		if code != "0" {
			return s.fail(step, "it ended with "+code)
		}
	} else {
		background := strings.HasSuffix(command, "&") || s.jobs()
		if !s.until(func(printed string) bool {
			return s.copy().match(step.Want, s.lines(printed)) || !background
		}) || !s.names.match(step.Want, s.lines(s.text())) {
			return s.fail(step, "it prints something else than the page says")
		}
		s.forget()
	}
	return true
}

// awayFromEdge waits where two commands of a page that name the same hour could name two.
func (s *session) awayFromEdge(command string) {
	every := everies.FindStringSubmatch(command)
	if every == nil {
		return
	}
	d, err := time.ParseDuration(every[1])
	if err != nil || d < time.Hour {
		return
	}
	const near = 2 * time.Minute
	edge := time.Now().Add(-d / 2).Truncate(d).Add(d + d/2) // half-way between two multiples the name changes
	if until := time.Until(edge); until < near {
		<-time.After(until + time.Second)
	}
}

// portFor gives the free port that one of the page stands for. It stays free: it lies below those that the kernel gives to connections.
func (s *session) portFor(address string) string {
	for try := 0; s.ports[address] == ""; try++ {
		free := fmt.Sprintf("127.0.0.1:%d", 16384+rand.IntN(16384))
		l, err := net.Listen("tcp", free)
		if err == nil {
			l.Close()
			s.ports[address] = free
		} else if try > 100 {
			s.t.Fatal(err)
		}
	}
	return s.ports[address]
}

func (s *session) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.printed.String()
}

// take takes the prompt out of what was printed.
func (s *session) take() (code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.printed.String()
	at := prompted.FindStringSubmatchIndex(text)
	code = text[at[2]:at[3]]
	s.printed.Reset()
	s.printed.WriteString(text[:at[0]] + text[at[1]:])
	return code
}

func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printed.Reset()
}

// lines are what was printed, as the page would have it.
func (s *session) lines(printed string) []string {
	printed = prompted.ReplaceAllString(printed, "")
	printed = killed.ReplaceAllString(printed, "Killed")
	for page, there := range s.ports {
		printed = strings.ReplaceAll(printed, there, page)
	}
	if printed = strings.TrimSuffix(printed, "\n"); printed == "" {
		return nil
	}
	return strings.Split(printed, "\n")
}

func (s *session) copy() names {
	c := names{}
	for page, there := range s.names {
		c[page] = there
	}
	return c
}

func (s *session) fail(step Step, why string) bool {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Errorf("line %d: %s: %s\npage:\n%s\nprinted:\n%s", step.Line, step.Command, why, strings.Join(step.Want, "\n"),
		strings.Join(s.lines(s.printed.String()), "\n"))
	return false
}

func index(lines []string, line string) int {
	for i, l := range lines {
		if l == line {
			return i
		}
	}
	return -1
}

// processes are those that the session started, whoever is their parent now.
func (s *session) processes() map[int]string {
	found := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(s.mark+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		found[pid] = strings.TrimSpace(string(name))
	}
	return found
}

// jobs says whether something of the session goes on beside its shell.
func (s *session) jobs() bool { return len(s.processes()) > 1 }

// kill kills the wrapper that runs now: the youngest process of the program.
func (s *session) kill() {
	youngest := 0
	for pid, name := range s.processes() {
		if name == "syncnode" && pid > youngest {
			youngest = pid
		}
	}
	if youngest == 0 || syscall.Kill(youngest, syscall.SIGKILL) != nil {
		s.t.Error("there is no process of the program to be killed")
	}
}

// killAll ends what is left of the session.
func (s *session) killAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		all := s.processes()
		if len(all) == 0 {
			return
		}
		for pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(20 * time.Millisecond) // between two looks: one may have been born behind the first
	}
}
