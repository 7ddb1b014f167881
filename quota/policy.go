package quota

import (
	"slices"
	"time"
)

// FailMode says what a policy wants when something cannot be seen: peers
// (OnPartition) or the region's Redis (OnStoreLoss). The zero value is FailShare.
type FailMode uint8

const (
	// FailShare limits to what this process or region can claim for itself, so that the sum of all stays within the limit.
	FailShare FailMode = iota
	// FailOpen allows what cannot be known to be over the limit: availability is worth more than the limit.
	FailOpen
	// FailClosed denies, with 503 to callers of the API: the limit is worth more than availability.
	FailClosed
)

// OverloadMode says what a policy wants of a check that Redis is too busy to decide
// (OnOverload). The zero value is OverloadShed.
type OverloadMode uint8

const (
	// OverloadShed turns it away: 503 with Retry-After to callers of the API, 429 behind gateways.
	OverloadShed OverloadMode = iota
	// OverloadOpen allows it. A client that sends enough load is then not limited any more: only for limits that protect nothing.
	OverloadOpen
)

// Enforcement says whether a denial is carried out. The zero value is Enforce.
type Enforcement uint8

const (
	// Enforce denies what is over the limit.
	Enforce Enforcement = iota
	// Observe allows everything and reports `would_deny`. It charges what it would have admitted.
	Observe
)

// Policy is a named set of limits that are decided together, all or nothing.
// Values are immutable once in force.
type Policy struct {
	// Name is what `tenants` assigns, unique in the file.
	Name string `yaml:"name,required"`
	// Limits are 1 to 16.
	Limits []Limit `yaml:"limits,required"`
	// OnPartition is how global limits are decided while other regions cannot be seen: by the region's share, as if unseen
	// regions were idle (`open`), or not at all (`closed`). Default: `share`.
	OnPartition FailMode `yaml:"on_partition"`
	// OnStoreLoss is how all limits are decided while Redis is unavailable: in memory, from what this process knows, or allowing
	// or denying everything. Without it: share, and closed for a policy with a `max_overshoot`, whose bound the other modes
	// suspend.
	OnStoreLoss FailMode `yaml:"on_store_loss"`
	// OnOverload is what a check gets that Redis is too busy to decide within `--redis-budget`. Default: `shed`. It is charged
	// in neither case. Reports are always turned away, to be sent again.
	OnOverload OverloadMode `yaml:"on_overload"`
	// Enforcement is whether denials are carried out. Default: `enforce`.
	Enforcement Enforcement `yaml:"enforcement"`
	// EnforcePercent enforces for that share of tenants, 0% to 100%, selected by hash, and observes the others. Without it:
	// all are enforced.
	//
	// Negative means all of them.
	EnforcePercent float64 `yaml:"enforce_share"`
	// MaxTTL is the longest that a reservation lasts unless it is extended, 1s to 1h. Without it: 2m.
	//
	// 0 for a policy that takes none.
	MaxTTL time.Duration `yaml:"max_ttl"`
	// MaxHold is what one reservation may hold of a limit that counts tokens, above 0% to 100%. Without it: 100%.
	//
	// 0 for a policy that takes none.
	MaxHold float64 `yaml:"max_hold"`
}

// Limit returns the limit of a name, nil for none.
func (p *Policy) Limit(name string) *Limit {
	for i := range p.Limits {
		if p.Limits[i].Name == name {
			return &p.Limits[i]
		}
	}
	return nil
}

// Reserves reports whether the policy takes reservations: whether a limit of it can hold one.
func (p *Policy) Reserves() bool {
	return slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Holds() })
}

// MostHeld is how many units of a limit that counts tokens one reservation may hold, at least 1.
func (p *Policy) MostHeld(l *Limit) int64 {
	return max(1, int64(float64(l.Capacity())*p.MaxHold/100))
}

// MaxLimits bounds the limits of one policy, and with them the keys and the
// time of one decision in Redis.
const MaxLimits = 16

// MaxTogether bounds the charges under limits of a Domain that are decided in one step, for the same reason.
const MaxTogether = 100

// Validate returns every error of the policy and its limits, with pointers as
// in topology.yaml below the policy: "/limits/2/per".
func (p *Policy) Validate() []FieldError {
	var ms FieldErrors
	ms.Check("/name", ValidName(p.Name))
	ms.When(len(p.Limits) == 0 || len(p.Limits) > MaxLimits, "/limits", "a policy has between 1 and %d limits, this one %d", MaxLimits, len(p.Limits))
	ms.When(p.EnforcePercent > 100, "/enforce_share", "is at most 100%%")
	if p.Reserves() {
		ms.Reservations("", p.MaxTTL, p.MaxHold)
	} else {
		const needs = "needs a limit with counts: tokens or kind: concurrent; without one the policy takes no reservations"
		ms.When(p.MaxTTL != 0, "/max_ttl", needs)
		ms.When(p.MaxHold != 0, "/max_hold", needs)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		ms.When(p.Reserves() && l.Algorithm == Concurrent && l.Window > p.MaxTTL && l.Window <= MaxTTL, Item("/limits", i)+"/ttl",
			"must be at most max_ttl, which is %v", p.MaxTTL)
	}
	return append(ms, p.ValidateLimits()...)
}

// Reservations holds the settings of reservations below a pointer to their ranges.
func (ms *FieldErrors) Reservations(at string, maxTTL time.Duration, maxHold float64) {
	ms.When(maxTTL < MinTTL || maxTTL > MaxTTL, at+"/max_ttl", "must be between 1s and 1h, is %v", maxTTL)
	ms.When(maxHold <= 0 || maxHold > 100, at+"/max_hold", "must be above 0%% and at most 100%%")
}

// ValidateLimits is the part of Validate that holds for the policy of a Domain too.
func (p *Policy) ValidateLimits() []FieldError {
	var ms FieldErrors
	names := make(map[string]bool, len(p.Limits))
	for i := range p.Limits {
		l, at := &p.Limits[i], Item("/limits", i)
		ms.Below(at, l.Validate())
		ms.When(names[l.Name], at+"/name", "limit %q is duplicated", l.Name)
		names[l.Name] = true
	}
	return ms
}

// Dimensions returns the names of all dimensions that the policy counts by or
// asks about, sorted. A request that carries any other has a typo in it.
func (p *Policy) Dimensions() []string {
	var names []string
	for i := range p.Limits {
		names = append(names, p.Limits[i].By...)
		for _, m := range p.Limits[i].When {
			names = append(names, m.Dimension)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
