package rules

import "github.com/syncnode/syncnode/coord"

// Grantable is nil if the lease may be granted to whoever asks: nobody holds it, or it expired.
func Grantable(f Facts) error {
	if f.Held && !f.Holder.Expired {
		return &coord.HeldError{Holder: f.Holder}
	}
	return nil
}

// A Claim is what Renew and Release say about a lease.
type Claim struct {
	Agent, Device string
	Epoch         coord.Epoch
}

// Keep is the verdict of Renew and Release. rebind means that the claim is right but for the process: the
// holder is an earlier process of the device, proved dead, and the lease has to be bound to this one.
// dead is asked only then; nil means that there is no proof.
func Keep(f Facts, c Claim, dead func(coord.Lease) bool) (rebind bool, err error) {
	switch {
	case !f.Held || f.Holder.Device != c.Device || f.Holder.Epoch != c.Epoch:
		return false, Lost(f, c)
	case f.Ours:
		return false, nil
	case dead != nil && dead(f.Holder):
		return true, nil
	case f.Holder.Expired:
		return false, Lost(f, c)
	}
	return false, &coord.HeldError{Holder: f.Holder}
}

// Lost is the verdict for a claim that cannot be kept.
func Lost(f Facts, c Claim) *coord.LostError {
	lost := &coord.LostError{Agent: c.Agent, Claimed: c.Epoch, Current: f.Epoch}
	if f.Held {
		lost.Current, lost.Holder = max(f.Epoch, f.Holder.Epoch), f.Holder.Device
	}
	return lost
}

// Theft is nil if the lease may be taken, or with evict taken away, by the decision of a person.
func Theft(f Facts, t coord.Theft) error {
	current := f.Epoch
	if f.Held {
		current = max(current, f.Holder.Epoch)
	}
	if t.Epoch != current {
		return Lost(f, Claim{t.Agent, t.Device, t.Epoch})
	}
	if t.Force {
		return nil
	}
	return Grantable(f)
}
