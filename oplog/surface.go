package oplog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/syncnode/syncnode/internal/ident"
)

// ErrSurface means that a surface is not registered in this version.
var ErrSurface = errors.New("unknown surface")

// ErrScope means that a scope is neither personal nor shared with a legal organisation id.
var ErrScope = errors.New("unknown scope")

// A Scope says who may read an op: [Personal] or [Shared].
type Scope string

// Personal is the scope of one person's devices.
const Personal Scope = "personal"

const sharedPrefix = "shared:"

// Shared is the scope of an organisation. The id has to pass [Scope.Check].
func Shared(org string) Scope { return Scope(sharedPrefix + org) }

// Check returns nil if s is "personal" or "shared:" and a legal id.
func (s Scope) Check() error {
	if s == Personal {
		return nil
	}
	org, ok := strings.CutPrefix(string(s), sharedPrefix)
	if !ok {
		return fmt.Errorf("%w %.80q", ErrScope, string(s))
	}
	if err := ident.Check("organisation", org); err != nil {
		return fmt.Errorf("%w: %w", ErrScope, err)
	}
	return nil
}

// A Surface is a kind of record. Its text enters the op id and is frozen.
type Surface string

// The surfaces. [Registry] makes those of the registry.
const (
	Knowledge    Surface = "knowledge"
	Skill        Surface = "skill"
	Trajectory   Surface = "trajectory"
	Run          Surface = "run"
	Routing      Surface = "routing"
	Conversation Surface = "conversation"
	DeclAgent    Surface = "declagent"
	Intents      Surface = "intent"
)

const registryPrefix = "registry:"

// Registry is the surface of the registry of that kind. The kind has to be a legal id.
func Registry(kind string) Surface { return Surface(registryPrefix + kind) }

// A Tier is the rule by which ops of a surface are folded. Each is a join: any order gives one state.
type Tier int

const (
	TierSet      Tier = iota + 1 // by stable key, the earliest op wins
	TierEvents                   // every op survives
	TierRegister                 // by stable key, the latest op wins
	TierIntents                  // per agent, run and attempt
)

func (t Tier) String() string {
	switch t {
	case TierSet:
		return "set"
	case TierEvents:
		return "events"
	case TierRegister:
		return "register"
	case TierIntents:
		return "intents"
	}
	return fmt.Sprintf("Tier(%d)", int(t))
}

// Tier is the tier of s. It fails with ErrSurface.
func (s Surface) Tier() (Tier, error) {
	switch s {
	case Knowledge, Skill, Trajectory, Run:
		return TierSet, nil
	case Routing, Conversation:
		return TierEvents, nil
	case DeclAgent:
		return TierRegister, nil
	case Intents:
		return TierIntents, nil
	}
	if kind, ok := strings.CutPrefix(string(s), registryPrefix); ok {
		if err := ident.Check("registry kind", kind); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrSurface, err)
		}
		return TierRegister, nil
	}
	return 0, fmt.Errorf("%w %.80q", ErrSurface, string(s))
}
