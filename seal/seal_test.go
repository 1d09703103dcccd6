package seal_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var day = time.Date(2026, 11, 29, 1, 30, 0, 0, time.UTC)

// counting gives the bytes first, first+1, …: what is random in golden files.
type counting struct{ next byte }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = c.next
		c.next++
	}
	return len(p), nil
}

// keyFile makes a file with n keys that are the same in every run, and others for another seed.
func keyFile(t testing.TB, seed byte, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seal.keys")
	random := &counting{seed}
	if _, err := seal.GenerateFrom(path, day, random); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < n; i++ {
		if _, err := seal.RotateFrom(path, day.Add(time.Duration(i)*time.Hour), random); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func openKeys(t testing.TB, path string) *seal.Keys {
	t.Helper()
	k, err := seal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealer(t testing.TB, k *seal.Keys, p seal.Policy) *seal.Sealer {
	t.Helper()
	s, err := seal.New(seal.Config{Keys: k, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var all = seal.Policy{Scopes: []string{seal.Every}}

// place is a header like that of a real op.
func place() seal.Header {
	return seal.Header{Device: "host-1", Seq: 7, Prev: "op-" + strings.Repeat("ab", 32), Wall: 1764379800000, Counter: 3,
		Stamper: "host-1", Scope: "shared:acme", Surface: "knowledge"}
}

var text = []byte(`{"id":"k1","text":"who reads this has the key"}`)

func mustSeal(t testing.TB, s *seal.Sealer, h seal.Header, plain []byte) []byte {
	t.Helper()
	e, err := s.Seal(h, plain)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWhatWasSealedOpensWhole(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	for _, plain := range [][]byte{{}, []byte("1"), text, bytes.Repeat([]byte("x"), 100_000)} {
		e := mustSeal(t, s, place(), plain)
		if len(plain) > 1 && bytes.Contains(e, plain) {
			t.Errorf("the envelope shows %.60q", plain)
		}
		got, err := s.Open(place(), e)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: got %d, %v", len(plain), len(got), err)
		}
	}
}

func TestTheSameTextIsNeverSealedTheSame(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	if bytes.Equal(mustSeal(t, s, place(), text), mustSeal(t, s, place(), text)) {
		t.Error("two envelopes of one text are equal: a relay could see repetition")
	}
}

func TestAnEnvelopeOpensUnderNoOtherHeader(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	e := mustSeal(t, s, place(), text)
	for name, change := range map[string]func(*seal.Header){
		"device":  func(h *seal.Header) { h.Device = "host-2" },
		"seq":     func(h *seal.Header) { h.Seq++ },
		"prev":    func(h *seal.Header) { h.Prev = "op-" + strings.Repeat("ac", 32) },
		"wall":    func(h *seal.Header) { h.Wall++ },
		"counter": func(h *seal.Header) { h.Counter++ },
		"stamper": func(h *seal.Header) { h.Stamper = "host-2" },
		"scope":   func(h *seal.Header) { h.Scope = "personal" },
		"surface": func(h *seal.Header) { h.Surface = "skill" },
		"border":  func(h *seal.Header) { h.Scope, h.Surface = "shared:acmek", "nowledge" },
	} {
		h := place()
		change(&h)
		if got, err := s.Open(h, e); !errors.Is(err, seal.ErrTampered) || got != nil || seal.Temporary(err) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestNoChangedByteOfAnEnvelopeOpens(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 2)), all)
	e := mustSeal(t, s, place(), text)
	for i := range e {
		for _, bit := range []byte{1, 2, 0x80} {
			bad := bytes.Clone(e)
			bad[i] ^= bit
			got, err := s.Open(place(), bad)
			if _, typed := errors.AsType[*seal.OpenError](err); !typed || got != nil {
				t.Fatalf("byte %d: got %q, %v", i, got, err)
			}
		}
	}
}

func TestACutOrExtendedEnvelopeDoesNotOpen(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	e := mustSeal(t, s, place(), text)
	cut := func(from, to int) []byte { return append(bytes.Clone(e[:from]), e[to:]...) }
	for i := range e {
		for _, bad := range [][]byte{e[:i], e[i+1:], cut(i, i+1), cut(i, i)[:i], append(bytes.Clone(e), e[i])} {
			if got, err := s.Open(place(), bad); err == nil || got != nil {
				t.Fatalf("at %d: got %q, %v", i, got, err)
			}
		}
		if len(`{"ct":"`) <= i && i < len(e)-110 { // inside the ciphertext it stays an envelope
			if _, err := s.Open(place(), cut(i, i+1)); !errors.Is(err, seal.ErrTampered) {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	}
}

func TestEnvelopesThatSwapTheirCiphertextDoNotOpen(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	a, b := place(), place()
	b.Seq++
	if _, err := s.Open(b, mustSeal(t, s, a, text)); !errors.Is(err, seal.ErrTampered) {
		t.Error(err)
	}
}

func TestAnotherKeyUnderTheNameOfOursDoesNotOpen(t *testing.T) {
	k := openKeys(t, keyFile(t, 1, 2))
	s := sealer(t, k, all)
	e := mustSeal(t, s, place(), text)
	ids := k.List()
	if !bytes.Contains(e, []byte(ids[1].ID)) {
		t.Fatalf("not sealed with the newest key: %s", e)
	}
	bad := bytes.Replace(e, []byte(ids[1].ID), []byte(ids[0].ID), 1)
	if _, err := s.Open(place(), bad); !errors.Is(err, seal.ErrTampered) {
		t.Error(err)
	}
}

func TestWithoutTheKeyNothingOpensAndNothingIsWritten(t *testing.T) {
	e := mustSeal(t, sealer(t, openKeys(t, keyFile(t, 1, 1)), all), place(), text)
	for name, k := range map[string]*seal.Keys{"none": nil, "no file": openKeys(t, filepath.Join(t.TempDir(), "none")), "other": openKeys(t, keyFile(t, 99, 1))} {
		s := sealer(t, k, all)
		_, err := s.Open(place(), e)
		open, typed := errors.AsType[*seal.OpenError](err)
		if !typed || !errors.Is(err, seal.ErrNoKey) || !seal.Temporary(err) || !strings.HasPrefix(open.Key, "k1-") {
			t.Errorf("%s: open: %v", name, err)
		}
		if _, err := s.Read(place(), e); !errors.Is(err, seal.ErrNoKey) {
			t.Errorf("%s: read: %v", name, err)
		}
		if name == "other" {
			continue
		}
		if p, err := s.Seal(place(), text); !errors.Is(err, seal.ErrNoKey) || p != nil {
			t.Errorf("%s: seal: %v", name, err)
		}
		if d, err := s.Draft("personal", "skill", text); !errors.Is(err, seal.ErrNoKey) || d != nil {
			t.Errorf("%s: draft: %v", name, err)
		}
		if _, err := s.SealBlob(&bytes.Buffer{}, label); !errors.Is(err, seal.ErrNoKey) {
			t.Errorf("%s: blob: %v", name, err)
		}
	}
}

func TestWhatANewerReleaseSealedIsParked(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	e := mustSeal(t, s, place(), text)
	newer := append(bytes.TrimSuffix(e, []byte("1}")), "2}"...)
	if _, err := s.Read(place(), newer); !errors.Is(err, seal.ErrVersion) || !seal.Temporary(err) {
		t.Error(err)
	}
}

func TestAnEnvelopeIsAPayloadLikeAnyOther(t *testing.T) {
	if seal.Intents != string(oplog.Intents) {
		t.Error("the surface of intents has another name")
	}
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	for _, n := range []int{0, 1, 2, 3, 100, seal.MaxPlaintext - 1, seal.MaxPlaintext} {
		e := mustSeal(t, s, place(), make([]byte, n))
		if err := oplog.CheckCanonical(e); err != nil || !seal.LooksSealed(e) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if n == seal.MaxPlaintext && len(e)+2 <= oplog.MaxPayload {
			t.Errorf("%d more bytes would fit", oplog.MaxPayload-len(e))
		}
		h := place()
		op, err := oplog.New(h.Device, h.Seq, oplog.OpID(h.Prev), oplog.HLC{WallMS: h.Wall, Counter: h.Counter, Device: h.Stamper},
			oplog.Scope(h.Scope), oplog.Surface(h.Surface), e)
		if err != nil || op.Check() != nil || !bytes.Equal(op.Payload, e) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		back, err := oplog.ParseLine(op.AppendLine(nil))
		if err != nil || back.Check() != nil || !bytes.Equal(back.Payload, e) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	big := make([]byte, seal.MaxPlaintext+1)
	if _, err := s.Seal(place(), big); !errors.Is(err, seal.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := s.Draft("personal", "skill", big); !errors.Is(err, seal.ErrTooLarge) {
		t.Error(err)
	}
}

func TestAnIllegalHeaderIsNotSealedFor(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	for name, change := range map[string]func(*seal.Header){
		"no device":  func(h *seal.Header) { h.Device = "" },
		"no stamper": func(h *seal.Header) { h.Stamper = "" },
		"no scope":   func(h *seal.Header) { h.Scope = "" },
		"no surface": func(h *seal.Header) { h.Surface = "" },
		"wall":       func(h *seal.Header) { h.Wall = -1 },
		"no prev":    func(h *seal.Header) { h.Prev = "" },
		"prev at 0":  func(h *seal.Header) { h.Seq = 0 },
		"intent":     func(h *seal.Header) { h.Surface = seal.Intents },
	} {
		h := place()
		change(&h)
		if e, err := s.Seal(h, text); !errors.Is(err, seal.ErrHeader) || e != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingSecretIsEverPrinted(t *testing.T) {
	path := keyFile(t, 0x41, 1)
	k := openKeys(t, path)
	s := sealer(t, k, all)
	e := mustSeal(t, s, place(), text)
	raw := []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`") // the key: 0x41, 0x42, …
	content, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(content, []byte(hex.EncodeToString(raw))) {
		t.Fatalf("the canary is not in the file: %v", err)
	}
	secret := k.AnySecret()
	var out bytes.Buffer
	for _, v := range []any{secret, &secret, struct{ S seal.Secret }{secret}, struct{ s seal.Secret }{secret}, []seal.Secret{secret}, k, s, k.List()} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		b, _ := json.Marshal(v)
		out.Write(b)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
	}
	for _, bad := range []string{"", "x", string(content[:len(content)-5]), strings.Replace(string(content), "k1-", "k1-0", 1), string(content) + string(content[bytes.Index(content, []byte("key ")):])} {
		_, _, err := seal.ParseFile([]byte(bad))
		if err == nil {
			t.Errorf("accepted %q", bad)
		}
		fmt.Fprintf(&out, "%v %+v\n", err, err)
	}
	_, err = s.Open(place(), bytes.ToUpper(e))
	fmt.Fprintf(&out, "%v %+v\n", err, err)
	for _, form := range []string{string(raw), hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)), fmt.Sprint(raw), "65 66 67", "0x41, 0x42", "QUJDREVG", "[A B C"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the key is shown as %q in\n%s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), "[redacted]") {
		t.Error("nothing was redacted: the test lost its object")
	}
}

func TestKeysMayBeReloadedWhileTheyAreUsed(t *testing.T) {
	path := keyFile(t, 1, 1)
	k := openKeys(t, path)
	s := sealer(t, k, all)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				e, err := s.Seal(place(), text)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Open(place(), e); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	for range 5 {
		if _, err := seal.Rotate(path, day); err != nil {
			t.Error(err)
		}
		if changed, err := k.Reload(); err != nil || !changed {
			t.Errorf("%v, %v", changed, err)
		}
	}
	wg.Wait()
}

func TestScopesOfStrangersDoNotFillTheMemory(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	e := mustSeal(t, s, place(), text)
	for i := range 2000 {
		h := place()
		h.Scope = fmt.Sprint("shared:x", i)
		if _, err := s.Open(h, e); !errors.Is(err, seal.ErrTampered) {
			t.Fatal(err)
		}
	}
	if n := s.Derived(); n > 256 {
		t.Errorf("%d derived keys are kept", n)
	}
	if _, err := s.Open(place(), e); err != nil {
		t.Error(err)
	}
}
