package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
)

// A grant is one line of a token file: who shows the token or the certificate is that caller.
type grant struct {
	caller Caller
	digest []byte // SHA-256 of the token; nil for a certificate
	cert   string // a name in the certificate; empty for a token
}

// Tokens are the callers of a file. The file holds digests and never a token. It is read again when it changes; while it
// cannot be read, or a line is wrong, what was read last holds.
//
// Each line that is not empty and does not begin with # is one grant, as words KEY=VALUE:
//
//	name=NAME roles=observe,execute,operate agents=PATTERN,… [devices=PATTERN,…] sha256=HEX
//	name=NAME roles=… agents=… [devices=…] cert=NAME
//
// A pattern is an id, or the beginning of ids followed by "*". Two lines may have one name: that is how a token is
// replaced without a gap.
type Tokens struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex // guards the rest
	grants []grant
	seen   os.FileInfo // of the file when it was last read, well or not
	looked time.Time
}

const (
	// lookEvery bounds how often the file is looked at.
	lookEvery = time.Second
	// maxTokens bounds the size of a token file.
	maxTokens = 1 << 20
)

// OpenTokens reads a token file. It must be a regular file that only its owner may read, or one of root's that a group may read
// too: so a Secret comes to a pod whose user is not root.
func OpenTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, log: log}
	grants, info, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	if len(grants) == 0 {
		return nil, fmt.Errorf("%s has no line with a token", path)
	}
	t.grants, t.seen, t.looked = grants, info, time.Now()
	return t, nil
}

func readTokens(path string) ([]grant, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, info, fmt.Errorf("%s is not a file", path)
	case exposed(info, os.Geteuid()):
		return nil, info, fmt.Errorf("%s may be read by others (mode %04o): chmod 600 %[1]s", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTokens+1))
	if err == nil && len(data) > maxTokens {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxTokens)
	}
	if err != nil {
		return nil, info, err
	}
	grants, err := parseTokens(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return grants, info, err
}

// exposed reports whether others than this user may use the file. Root may lend a file of its own to a group.
func exposed(info os.FileInfo, user int) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	lent := known && owner.Uid == 0 && user != 0
	if lent {
		return info.Mode().Perm()&0o037 != 0
	}
	return info.Mode().Perm()&0o077 != 0
}

// parseTokens reports every wrong line.
func parseTokens(data []byte) ([]grant, error) {
	var all []grant
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		g, err := parseGrant(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
		}
		all = append(all, g)
	}
	return all, errors.Join(append(errs, lines.Err())...)
}

func parseGrant(line string) (grant, error) {
	var g grant
	got := map[string]bool{}
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		if got[key] || value == "" {
			return g, fmt.Errorf("%s is empty or given twice", shown(key))
		}
		got[key] = true
		if err := g.set(key, value); err != nil {
			return g, err
		}
	}
	switch {
	case !got["name"] || !got["roles"] || !got["agents"]:
		return g, errors.New("name, roles and agents are required")
	case got["sha256"] == got["cert"]:
		return g, errors.New("either sha256 or cert is required")
	}
	return g, nil
}

func (g *grant) set(key, value string) (err error) {
	switch key {
	case "name":
		g.caller.Name = value
		return ident.Check("name", value)
	case "roles":
		for r := range strings.SplitSeq(value, ",") {
			if !slices.Contains(roles, Role(r)) {
				return fmt.Errorf("role %s: want observe, execute or operate", shown(r))
			}
			g.caller.Roles = append(g.caller.Roles, Role(r))
		}
	case "agents":
		g.caller.Agents, err = patterns(value)
	case "devices":
		g.caller.Devices, err = patterns(value)
	case "sha256":
		g.digest, err = hex.DecodeString(value)
		if err != nil || len(g.digest) != sha256.Size {
			err = errors.New("sha256 must be 64 hex digits: printf %s TOKEN | sha256sum")
		}
	case "cert":
		g.cert = value
	case "token":
		err = errors.New("put the token's SHA-256 there, not the token: printf %s TOKEN | sha256sum")
	default:
		err = fmt.Errorf("%s: want name, roles, agents, devices, sha256 or cert", shown(key))
	}
	return err
}

// shown keeps what may be a secret in the wrong place out of messages.
func shown(s string) string {
	if len(s) > 12 {
		return "a word"
	}
	return fmt.Sprintf("%q", s)
}

func patterns(value string) ([]string, error) {
	all := strings.Split(value, ",")
	for _, p := range all {
		begin, rest := strings.CutSuffix(p, "*")
		if rest && begin == "" {
			continue
		}
		if err := ident.Check("pattern", begin); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// now are the grants, read again if the file changed.
func (t *Tokens) now() []grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.looked) < lookEvery {
		return t.grants
	}
	t.looked = time.Now()
	if info, err := os.Stat(t.path); err == nil && same(info, t.seen) {
		return t.grants
	}
	grants, info, err := readTokens(t.path)
	if err == nil {
		t.grants, t.seen = grants, info
		t.log.Info("token file read again", "tokens", len(grants))
		return t.grants
	}
	if t.seen != nil || info != nil { // else it was told that it is not there
		t.log.Error("token file not read again; what was read before holds", "err", err)
	}
	t.seen = info
	return t.grants
}

func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// byToken is who may show that token. Every digest is compared, each in constant time.
func (t *Tokens) byToken(token string) (Caller, bool) {
	sum := sha256.Sum256([]byte(token))
	var found Caller
	ok := false
	for _, g := range t.now() {
		if g.digest != nil && subtle.ConstantTimeCompare(sum[:], g.digest) == 1 {
			found, ok = g.caller, true
		}
	}
	return found, ok
}

// byCert is who may show that certificate, which was verified before.
func (t *Tokens) byCert(c *x509.Certificate) (Caller, bool) {
	names := certNames(c)
	for _, g := range t.now() {
		if g.cert != "" && slices.Contains(names, g.cert) {
			return g.caller, true
		}
	}
	return Caller{}, false
}

func certNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
