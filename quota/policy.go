package quota

import (
	"slices"
	"time"
)

// FailMode says what a policy wants when something cannot be seen: peers
// (OnPartition) or the region's Redis (OnStoreLoss). The zero value is FailShare.
type FailMode uint8

const (
	// FailShare keeps limiting with what this process or region may rightly
	// claim: its part. It errs towards denying.
	FailShare FailMode = iota
	// FailOpen allows: availability is worth more than the limit.
	FailOpen
	// FailClosed denies: the limit is worth more than availability.
	FailClosed
)

// OverloadMode says what a policy wants of a check that Redis is too busy to decide
// (OnOverload). The zero value is OverloadShed.
type OverloadMode uint8

const (
	// OverloadShed turns the check away, uncharged: the caller retries.
	OverloadShed OverloadMode = iota
	// OverloadOpen allows it, uncharged: who sends enough load is not limited any more.
	OverloadOpen
)

// Enforcement says whether a denial is carried out. The zero value is Enforce.
type Enforcement uint8

const (
	// Enforce denies what is over the limit.
	Enforce Enforcement = iota
	// Observe allows everything and reports what would have been denied. It
	// charges what it would have admitted, so the figures are those of a canary.
	Observe
)

// Policy is a named set of limits that are decided together, all or nothing.
// Values are immutable once in force.
type Policy struct {
	Name        string       `yaml:"name,required"`
	Limits      []Limit      `yaml:"limits,required"`
	OnPartition FailMode     `yaml:"on_partition"`
	OnStoreLoss FailMode     `yaml:"on_store_loss"`
	OnOverload  OverloadMode `yaml:"on_overload"`
	Enforcement Enforcement  `yaml:"enforcement"`
	// EnforcePercent is the share of tenants, 0…100 by hash, for which Enforce
	// is carried out; the others are observed. Negative means all of them.
	EnforcePercent float64 `yaml:"enforce_share"`
	// MaxTTL is how long a reservation lasts at most that is not renewed, MinTTL…MaxTTL; 0 for a
	// policy that takes none.
	MaxTTL time.Duration `yaml:"max_ttl"`
	// MaxHold is the percentage of a limit that one reservation may hold, above 0 to 100; 0 for a
	// policy that takes none.
	MaxHold float64 `yaml:"max_hold"`
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
	var ms fieldErrors
	if err := ValidName(p.Name); err != nil {
		ms.add("/name", "%v", err)
	}
	if n := len(p.Limits); n == 0 || n > MaxLimits {
		ms.add("/limits", "a policy has between 1 and %d limits, this one %d", MaxLimits, n)
	}
	if p.EnforcePercent > 100 {
		ms.add("/enforce_share", "is at most 100%%")
	}
	p.validateReservations(&ms)
	return append(ms, p.ValidateLimits()...)
}

func (p *Policy) validateReservations(ms *fieldErrors) {
	if !p.Reserves() {
		const needs = "needs a limit with counts: tokens or kind: concurrent; without one the policy takes no reservations"
		if p.MaxTTL != 0 {
			ms.add("/max_ttl", needs)
		}
		if p.MaxHold != 0 {
			ms.add("/max_hold", needs)
		}
		return
	}
	if p.MaxTTL < MinTTL || p.MaxTTL > MaxTTL {
		ms.add("/max_ttl", "must be between 1s and 1h, is %v", p.MaxTTL)
	}
	if p.MaxHold <= 0 || p.MaxHold > 100 {
		ms.add("/max_hold", "must be above 0%% and at most 100%%")
	}
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Algorithm == Concurrent && l.Window > p.MaxTTL && l.Window <= MaxTTL {
			ms.add(indexed("/limits", i)+"/ttl", "must be at most max_ttl, which is %v", p.MaxTTL)
		}
	}
}

// ValidateLimits is the part of Validate that holds for the policy of a Domain too.
func (p *Policy) ValidateLimits() []FieldError {
	var ms fieldErrors
	names := make(map[string]bool, len(p.Limits))
	for i := range p.Limits {
		ms.addAll(indexed("/limits", i), p.Limits[i].Validate())
		if names[p.Limits[i].Name] {
			ms.add(indexed("/limits", i)+"/name", "limit %q is duplicated", p.Limits[i].Name)
		}
		names[p.Limits[i].Name] = true
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
