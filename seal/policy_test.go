package seal_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/syncnode/syncnode/seal"
)

func TestThePolicySaysWhatIsSealed(t *testing.T) {
	personal := seal.Policy{Scopes: []string{"personal"}, Clear: []string{"routing"}}
	for _, c := range []struct {
		policy         seal.Policy
		scope, surface string
		want           bool
	}{
		{seal.Policy{}, "personal", "skill", false},
		{personal, "personal", "skill", true},
		{personal, "personal", "registry:x", true},
		{personal, "personal", "routing", false},
		{personal, "shared:a", "skill", false},
		{personal, "personal", seal.Intents, false},
		{all, "shared:a", "conversation", true},
		{all, "shared:a", seal.Intents, false},
	} {
		if got := c.policy.Seals(c.scope, c.surface); got != c.want {
			t.Errorf("%+v: %s %s: %v", c.policy, c.scope, c.surface, got)
		}
	}
}

func TestAnIllegalPolicyIsRefused(t *testing.T) {
	for _, p := range []seal.Policy{{Scopes: []string{""}}, {Scopes: []string{"shared:"}}, {Scopes: []string{"all"}}, {Clear: []string{""}}} {
		if _, err := seal.New(seal.Config{Policy: p}); !errors.Is(err, seal.ErrPolicy) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestAPolicyIsNotChangedFromOutside(t *testing.T) {
	scopes := []string{"personal"}
	s := sealer(t, nil, seal.Policy{Scopes: scopes})
	scopes[0] = "shared:a"
	s.Policy().Scopes[0] = "shared:b"
	if !s.Policy().Seals("personal", "skill") {
		t.Error("a scope is not sealed any more")
	}
}

func TestReadGivesTheContentOrSaysWhyNot(t *testing.T) {
	k := openKeys(t, keyFile(t, 1, 1))
	e := mustSeal(t, sealer(t, k, all), place(), text)
	open := all
	open.AcceptClear = true
	intent := place()
	intent.Surface = seal.Intents
	for _, c := range []struct {
		name    string
		policy  seal.Policy
		header  seal.Header
		payload []byte
		want    []byte
		err     error
	}{
		{"sealed where it has to be", all, place(), e, text, nil},
		{"sealed where it need not be", seal.Policy{}, place(), e, text, nil},
		{"clear where it may be", seal.Policy{}, place(), text, text, nil},
		{"clear where it has to be sealed", all, place(), text, nil, seal.ErrClear},
		{"clear from before, accepted", open, place(), text, text, nil},
		{"an intent", all, intent, text, text, nil},
		{"an intent that looks sealed", all, intent, e, e, nil},
		{"broken, accepting clear text", open, place(), []byte(`{"ct":"x","sealed":1}`), nil, seal.ErrTampered},
	} {
		got, err := sealer(t, k, c.policy).Read(c.header, c.payload)
		if !errors.Is(err, c.err) || !bytes.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
		if c.err != nil && seal.Temporary(err) {
			t.Errorf("%s: temporary: %v", c.name, err)
		}
	}
	if _, err := sealer(t, k, all).Open(intent, e); !errors.Is(err, seal.ErrNotSealed) {
		t.Error(err)
	}
	if _, err := sealer(t, k, all).Open(place(), text); !errors.Is(err, seal.ErrNotSealed) {
		t.Error(err)
	}
}

func TestADraftIsSealedWhenItsPlaceIsKnown(t *testing.T) {
	path := keyFile(t, 1, 1)
	k := openKeys(t, path)
	s := sealer(t, k, seal.Policy{Scopes: []string{"shared:acme"}})
	d, err := s.Draft("shared:acme", "knowledge", text)
	if err != nil || !d.Sealed() {
		t.Fatal(err)
	}
	e, err := d.Payload(place())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(place(), e); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
	again, err := d.Payload(place())
	if err != nil || bytes.Equal(again, e) {
		t.Errorf("a second try repeats the nonce: %v", err)
	}
	other := place()
	other.Surface = "skill"
	if _, err := d.Payload(other); !errors.Is(err, seal.ErrHeader) {
		t.Error(err)
	}
}

func TestADraftThatStaysClearIsItsPlaintext(t *testing.T) {
	s := sealer(t, nil, seal.Policy{Scopes: []string{"shared:acme"}})
	d, err := s.Draft("personal", "knowledge", text)
	if err != nil || d.Sealed() {
		t.Fatal(err)
	}
	h := place()
	h.Scope = "personal"
	if got, err := d.Payload(h); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.Draft("shared:acme", seal.Intents, text); err != nil {
		t.Errorf("an intent needs no key: %v", err)
	}
	if _, err := s.Draft("personal", "knowledge", []byte(`{"ct":"","sealed":1}`)); !errors.Is(err, seal.ErrLooksSealed) {
		t.Error(err)
	}
}

func TestOnlyTheShapeOfAnEnvelopeLooksSealed(t *testing.T) {
	for payload, want := range map[string]bool{
		`{"ct":"","sealed":1}`: true, `{"ct":"","sealed":77}`: true, `{"ct":"x","key":"","nonce":"","sealed":1}`: true,
		``: false, `{}`: false, `{"ct":"`: false, `{"ct":","sealed":1}`: false, `","sealed":1}`: false, `{"ct":1,"sealed":1}`: false,
		`{"ct":"","sealed":true}`: false, `{"ct":"","sealed":}`: false, `{"a":"","sealed":1}`: false, `{"ct":"","sealed":1}x`: false,
		`{"ct":"","x":["y"],"sealed":1}`: false,
	} {
		if got := seal.LooksSealed([]byte(payload)); got != want {
			t.Errorf("%s: %v", payload, got)
		}
	}
}
