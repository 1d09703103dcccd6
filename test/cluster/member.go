package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/thorough"
)

// stopGrace is how long a member may take to end by itself before it is killed.
const stopGrace = 15 * time.Second

// A member is one etcd process and what is needed to start it again.
type member struct {
	c     *Cluster
	index int
	name  string
	dir   string
	gate  atomic.Int32 // a mode, for every client of this member

	mu     sync.Mutex
	id     uint64   // 0 before the first start
	proc   *process // nil while not running
	paused bool
}

// A process is one life of a member.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File      // its closing is the parent's death
	exited chan struct{} // closed after Wait
	state  string        // how it ended; readable once exited is closed

	// Set once the member has reported, under the member's lock.
	peerAddr, clientAddr string
	admin                *clientv3.Client // goes straight to the member, past every proxy
}

func newMember(c *Cluster, i int) (*member, error) {
	m := &member{c: c, index: i, name: fmt.Sprintf("m%d", i)}
	m.dir = filepath.Join(c.dir, m.name)
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: member %d: %w", i, err)
	}
	return m, nil
}

func (m *member) dataDir() string { return filepath.Join(m.dir, "data") }
func (m *member) logFile() string { return filepath.Join(m.dir, "member.log") }

// start runs the member until it reports its listeners. It does not wait for a leader.
func (m *member) start(ctx context.Context) error {
	if m.current() != nil {
		return fmt.Errorf("cluster: start member %d: it runs already", m.index)
	}
	p, lines, err := m.spawn()
	if err != nil {
		return fmt.Errorf("cluster: start member %d: %w", m.index, err)
	}
	m.mu.Lock()
	m.proc, m.paused = p, false
	m.mu.Unlock()
	select {
	case <-m.c.closed: // Close may have missed this process
		lines.Close()
		return errors.Join(errClosed, m.kill())
	default:
	}

	r, err := awaitReport(ctx, p, lines)
	if err == nil {
		err = m.adopt(p, r)
	}
	if err != nil {
		_ = m.kill()
		return fmt.Errorf("cluster: start member %d: %w\n%s", m.index, err, m.logTail())
	}
	return nil
}

// spawn starts the process. The file it returns yields the member's report.
func (m *member) spawn() (*process, *os.File, error) {
	env, err := json.Marshal(m.config())
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(m.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	stdin, keep, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdin.Close()
	lines, say, err := os.Pipe()
	if err != nil {
		keep.Close()
		return nil, nil, err
	}
	defer say.Close()

	cmd := exec.Command(m.c.cfg.Executable)
	cmd.Env = append(os.Environ(), memberEnv+"="+string(env))
	if !thorough.Raced() { // under which a member needs more than one
		// Members are many to a machine: one processor each, unless the environment says otherwise, leaves the others to what is tested.
		cmd.Env = append([]string{"GOMAXPROCS=1"}, cmd.Env...)
	}
	cmd.Dir = m.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, log, log
	cmd.ExtraFiles = []*os.File{say}
	cmd.SysProcAttr = childAttr()
	p := &process{cmd: cmd, stdin: keep, exited: make(chan struct{})}
	if err := m.c.spawner.start(cmd); err != nil {
		keep.Close()
		lines.Close()
		return nil, nil, err
	}
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState.String()
		close(p.exited)
	}()
	return p, lines, nil
}

func (m *member) config() memberConfig {
	cfg := m.c.cfg
	return memberConfig{
		Name: m.name, Token: m.c.token(), DataDir: m.dataDir(), LogFile: m.logFile(), LogLevel: cfg.LogLevel,
		PeerURL: m.c.peers.url(m.index), ClientURL: m.c.MemberEndpoint(m.index), InitialCluster: m.c.initialCluster(),
		TickMS: cfg.TickMS, ElectionMS: cfg.ElectionMS,
		QuotaBytes: cfg.QuotaBytes, SnapshotCount: cfg.SnapshotCount, NoFsync: cfg.NoFsync,
	}
}

// awaitReport reads the member's one line and closes lines.
func awaitReport(ctx context.Context, p *process, lines *os.File) (report, error) {
	defer lines.Close()
	stop := context.AfterFunc(ctx, func() { _ = lines.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r report
	raw, err := bufio.NewReader(lines).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("no report in time: %w", context.Cause(ctx))
	case err != nil:
		select {
		case <-p.exited:
			return r, fmt.Errorf("it ended at once (%s); does %s call cluster.RunMember?", p.state, p.cmd.Path)
		case <-ctx.Done():
			return r, fmt.Errorf("no report: %w", err)
		}
	case r.Error != "":
		return r, errors.New(r.Error)
	}
	return r, nil
}

// adopt opens the proxies' way to the member.
func (m *member) adopt(p *process, r report) error {
	admin, err := newClient([]string{"http://" + r.Client})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = r.ID
	p.peerAddr, p.clientAddr, p.admin = r.Peer, r.Client, admin
	return nil
}

// current returns the running process, or nil.
func (m *member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return nil
	}
	select {
	case <-m.proc.exited:
		return nil
	default:
		return m.proc
	}
}

// answering returns the client of a member that runs and is not paused.
func (m *member) answering() (*clientv3.Client, bool) {
	if m.current() == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused || m.proc == nil || m.proc.admin == nil {
		return nil, false
	}
	return m.proc.admin, true
}

// addrs returns where the member listens, if it runs.
func (m *member) addrs() (peer, client string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil || m.proc.peerAddr == "" {
		return "", "", false
	}
	return m.proc.peerAddr, m.proc.clientAddr, true
}

// kill ends the process at once, if there is one.
func (m *member) kill() error { return m.end(syscall.SIGKILL, 0) }

// end signals the process, waits for it, and kills it once grace is over.
func (m *member) end(sig syscall.Signal, grace time.Duration) error {
	m.mu.Lock()
	p := m.proc
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	if sig != syscall.SIGKILL {
		timer := time.NewTimer(grace)
		select {
		case <-p.exited:
		case <-timer.C:
			err = errors.Join(err, fmt.Errorf("cluster: member %d did not stop in %s and was killed", m.index, grace), p.cmd.Process.Kill())
		}
		timer.Stop()
	}
	<-p.exited
	p.stdin.Close()
	m.mu.Lock()
	m.proc, m.paused = nil, false
	admin := p.admin
	m.mu.Unlock()
	if admin != nil {
		_ = admin.Close()
	}
	return err
}

// logTail is the last lines of the member's log.
func (m *member) logTail() string {
	raw, err := os.ReadFile(m.logFile())
	if err != nil {
		return ""
	}
	raw = raw[max(0, len(raw)-8<<10):]
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
