package seal

import (
	"fmt"
	"slices"
	"strings"
)

// Intents is the surface that is never sealed.
const Intents = "intent"

// Every is the scope, in a policy, that stands for all.
const Every = "*"

// A Policy says what has to be sealed. The zero value: nothing.
type Policy struct {
	// Scopes that are sealed; Every stands for all. All surfaces of them are, except Intents and those in Clear.
	Scopes []string
	// Clear are surfaces that stay clear in every scope.
	Clear []string
	// AcceptClear also reads clear payloads where they have to be sealed, for a history that began before sealing did.
	// It lets whoever can write to a relay add clear payloads. Nothing is written clear because of it.
	AcceptClear bool
}

// Check returns nil if the policy is legal, and else an error that matches ErrPolicy.
func (p Policy) Check() error {
	for _, scope := range p.Scopes {
		if scope != Every && scope != "personal" && (!strings.HasPrefix(scope, "shared:") || scope == "shared:") {
			return fmt.Errorf("%w: unknown scope %.140q: want personal, shared:ORG or *", ErrPolicy, scope)
		}
	}
	if slices.Contains(p.Clear, "") {
		return fmt.Errorf("%w: a surface is empty", ErrPolicy)
	}
	return nil
}

// Seals reports whether ops of that scope and surface have to be sealed.
func (p Policy) Seals(scope, surface string) bool {
	if surface == Intents || slices.Contains(p.Clear, surface) {
		return false
	}
	return slices.Contains(p.Scopes, Every) || slices.Contains(p.Scopes, scope)
}

func (p Policy) clone() Policy {
	p.Scopes, p.Clear = slices.Clone(p.Scopes), slices.Clone(p.Clear)
	return p
}
