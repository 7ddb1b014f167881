package quota

import (
	"encoding/hex"
	"time"
)

// Basis says what a decision rests on. The zero value is BasisExact.
type Basis uint8

const (
	// BasisExact: the region's Redis decided, against the whole limit.
	BasisExact Basis = iota
	// BasisEstimate: the region's Redis decided, against a ceiling below L.
	BasisEstimate
	// BasisCached: an earlier denial still holds; Redis was not asked.
	BasisCached
	// BasisLocal: Redis is away and the in-memory store decided.
	BasisLocal
	// BasisOpen: Redis is away and the policy allows.
	BasisOpen
	// BasisClosed: Redis is away and the policy denies.
	BasisClosed
	// BasisShed: Redis is busy, the check was turned away and charged nothing. No limit
	// was read, so nothing is known of what is left.
	BasisShed
)

// Mode says how much the region can see. The zero value is ModeGlobal.
type Mode uint8

const (
	// ModeGlobal: the data of every region is fresh and ours reaches them; a single region is global.
	ModeGlobal Mode = iota
	// ModeStale: some regions cannot be counted on, and the policy is open or closed.
	ModeStale
	// ModePartitioned: some regions cannot be counted on; this one keeps to its share.
	ModePartitioned
	// ModeJoining: snapshots of peers are still missing; the ceiling is as in partitioned.
	ModeJoining
	// ModeLocal: Redis is away; wins over all others.
	ModeLocal
)

// Reason says why an answer is degraded; ReasonNone when it is not.
type Reason uint8

const (
	// ReasonNone: the answer is not degraded.
	ReasonNone Reason = iota
	// ReasonRedisTimeout: Redis did not answer within the budget. When the
	// script had been sent, whether it charged is not known; it did not where
	// a slot of a cluster was half moved for so long.
	ReasonRedisTimeout
	// ReasonRedisDown: the connection was refused, reset or closed.
	ReasonRedisDown
	// ReasonRedisRefused: Redis answered that it will not: read-only, out of
	// memory, loading, busy, or a key of another type.
	ReasonRedisRefused
	// ReasonBreakerOpen: Redis failed a moment ago; it was not asked.
	ReasonBreakerOpen
	// ReasonOverloaded: Redis is busy; the check could not be decided within its budget
	// and was not sent.
	ReasonOverloaded
	// ReasonPeerSilent: nothing was received from a peer region for too long.
	ReasonPeerSilent
	// ReasonOneWay: a peer region does not receive our messages.
	ReasonOneWay
	// ReasonViewsDiffer: peers do not agree on who is there.
	ReasonViewsDiffer
	// ReasonJoining: snapshots of peers are still missing.
	ReasonJoining
	// ReasonProcessPaused: this process was paused; what it knows is out of date.
	ReasonProcessPaused
	// ReasonBoundClosed: the bound of a limit admits nothing now, whatever is used; see Bound.Closed.
	ReasonBoundClosed
	// ReasonBoundBurnt: the region's own share under a bound counts as used, since its store has lost data. It admits what
	// other regions lend it.
	ReasonBoundBurnt
	// ReasonTooManyHolds: a partition has as many open reservations as it may, MaxHolds.
	ReasonTooManyHolds
	// ReasonSuspended: an override gives a limit no units, so it admits nothing until that is changed.
	ReasonSuspended
)

var (
	basisNames  = []string{"exact", "estimate", "cached", "local", "open", "closed", "shed"}
	modeNames   = []string{"global", "stale", "partitioned", "joining", "local"}
	reasonNames = []string{
		"", "redis_timeout", "redis_down", "redis_refused", "breaker_open", "overloaded",
		"peer_silent", "one_way", "views_differ", "joining", "process_paused",
		"bound_closed", "bound_burnt", "too_many_holds", "suspended",
	}
)

// String returns the name used in answers and metrics.
func (b Basis) String() string { return EnumName(basisNames, uint8(b)) }

// String returns the name used in answers and metrics.
func (m Mode) String() string { return EnumName(modeNames, uint8(m)) }

// String returns the name used in answers and metrics, "" for ReasonNone.
func (r Reason) String() string { return EnumName(reasonNames, uint8(r)) }

// MarshalText returns String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses String.
func (r *Reason) UnmarshalText(text []byte) error { return ParseName(r, reasonNames, text) }

// DecisionID names a decision in its answer and in logs: the id of the request's trace, else a
// random one. The zero value is of none.
type DecisionID [16]byte

// String is the 32 hexadecimal digits of an id, nothing for the zero value.
func (id DecisionID) String() string {
	if id == (DecisionID{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// MarshalText returns String.
func (id DecisionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// LimitState is one limit as a decision left it.
type LimitState struct {
	Limit   *Limit
	Ceiling int64 // units this region may hold in the window, 0…Capacity
	// Remaining is what could still be admitted now, max(0, ceiling − used).
	// After two admissions of cost 1 under ceiling 5 it is 3.
	Remaining int64
	// Over is how many units of a global limit, counted up to the limit, this region has used beyond
	// Ceiling when the limit denies: peers may have used what was free before.
	Over int64
	// RetryAfter is how long until the request's cost fits this limit with no
	// other traffic; 0 when it fits now. Exact to the microsecond for regional
	// limits: at +RetryAfter it is admitted, a millisecond earlier it is not. It is a lower
	// bound when the store's clock steps back meanwhile, with more than 64 open holds, or
	// where no store decided.
	RetryAfter time.Duration
	// ResetAfter is how long until nothing of this limit is used.
	ResetAfter time.Duration
	// Denied is whether this limit would not take the cost.
	Denied bool
	// Held is how many units open reservations hold of it, whoever's they are; they are not among what Remaining says.
	Held int64
	// Reason is why nothing of the region's own share is left under the bound of the limit, whatever was used of it: ReasonBoundClosed,
	// ReasonBoundBurnt, else ReasonNone.
	Reason Reason
}

// RegionUsage is what one region has used of a limit, and what its open reservations hold.
type RegionUsage struct {
	Region string `json:"region"`
	Used   int64  `json:"used"`
	Held   int64  `json:"held"`
}

// Used is how many units this region has used of the limit, those that are held among them.
func (s *LimitState) Used() int64 { return max(0, s.Ceiling-s.Remaining) + s.Over }

// EndText is when the period of a limit with a calendar ends at a TIME of the store, as the clocks of its zone show it: RFC 3339. Where
// units are used, and none are held, it is what the store says, which after a clock was set back can be later than what the zone says.
func (s *LimitState) EndText(storeUS int64) string {
	c := s.Limit.Calendar
	end := c.At(storeUS).End
	if s.ResetAfter > 0 && s.Held == 0 {
		end = storeUS + s.ResetAfter.Microseconds()
	}
	return time.UnixMicro(end).Round(time.Second).In(c.Zone).Format(time.RFC3339)
}

// Decision is the answer to a Request. Limits has one entry for each limit of
// the policy that applied, in the policy's order; it may be empty when no limit
// applied, and then the request is allowed.
type Decision struct {
	// ID is set by the API that answers.
	ID DecisionID
	// Allowed is what the caller must do: false only under Enforce, and for a report or a
	// peek that was shed.
	Allowed bool
	// WouldDeny is set under Observe when a limit was exceeded, or a fail mode is closed;
	// not for a check that was shed, which says nothing about the limits.
	WouldDeny bool
	Tenant    string
	Policy    string
	Cost      int64
	// Reserves is whether it was asked to hold Cost; see CostOf.
	Reserves    bool
	Limits      []LimitState
	Basis       Basis
	Mode        Mode
	Reason      Reason
	Enforcement Enforcement
	// Override is that of the tenant, nil for none; By and Reason may not be set.
	Override *Override
	// Replayed is whether this is a stored admission given again for an
	// Idempotency-Key; nothing was charged this time.
	Replayed bool
	// StoreUS is the region's Redis clock at the decision, microseconds since
	// the epoch; 0 when the store was not asked.
	StoreUS int64
	// Usage has an entry for each of Limits where the request asked for usage: for a global limit what each region has used, our own
	// first, the others as far as their messages have come.
	Usage [][]RegionUsage
	// Explanation is there when the request asked for it.
	Explanation *Explanation
	// Reservation is there when one was made or extended, Settlement when one was settled.
	Reservation *Reservation
	Settlement  *Settlement
}

// Ceiling is how many units a region may hold of a global limit, and why.
type Ceiling struct {
	Units int64
	// Local is Units for the counter that replaces the store while that is away. It
	// remembers by itself what the store may have lost.
	Local int64
	// Used is how much of Local the region has used, as far as this process knows.
	Used int64
	// Known is the store's counter that Units rests on: of a store that does not hold it
	// any more, nothing may be charged under Units. Zero for none.
	Known Counter
	// Period is the number of the period that Units is for, of a limit with a calendar; else 0. In another one nothing may be
	// charged under Units.
	Period int64
	Mode   Mode
	Reason Reason // of Mode; ReasonNone in ModeGlobal
	// Bound is the region's part in the bound of a limit that is Bounded: the store admits
	// within both.
	Bound   Bound
	Bounded bool
	// Lenders: this region sees others, which may lend.
	Lenders bool
	// Closed: the policy admits nothing while the region does not see all others.
	Closed bool
	// Terms is how Units was computed, if that was requested.
	Terms *CeilingTerms
}

// Outcome is one decision of a batch, or why it could not be made.
type Outcome struct {
	Decision Decision
	Err      error
}

// TurnedAway reports whether the request was turned away without being decided, by a busy
// Redis or by a policy that is closed. Nothing was charged.
func (d *Decision) TurnedAway() bool {
	return !d.Allowed && (d.Basis == BasisShed || d.Basis == BasisClosed)
}

// Label is the decision in one word, for metrics and traces: allowed, denied, would_deny
// or shed.
func (d *Decision) Label() string {
	switch {
	case d.WouldDeny:
		return "would_deny"
	case d.Allowed:
		return "allowed"
	case d.Basis == BasisShed:
		return "shed"
	}
	return "denied"
}

// CostOf is what was asked of a limit: of a reservation those that do not count tokens take 1.
func (d *Decision) CostOf(l *Limit) int64 {
	if d.Reserves && l.Counts != CountsTokens {
		return 1
	}
	return d.Cost
}

// Headline returns the index of the limit that answers are summed up by: on a
// denial the one that takes longest to free, otherwise the one nearest to
// exhaustion (least remaining, then latest reset). It is −1 without limits, as of a
// check that was shed.
func (d *Decision) Headline() int {
	best := -1
	for i := range d.Limits {
		if best < 0 || moreTelling(&d.Limits[i], &d.Limits[best]) {
			best = i
		}
	}
	return best
}

func moreTelling(a, b *LimitState) bool {
	if a.Denied != b.Denied {
		return a.Denied
	}
	if a.Denied && a.RetryAfter != b.RetryAfter {
		return a.RetryAfter > b.RetryAfter
	}
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}

// DeniedBy returns the limit that refused, of several the headline; nil when none did: the
// request is allowed, or was turned away.
func (d *Decision) DeniedBy() *LimitState {
	if i := d.Headline(); !d.Allowed && !d.TurnedAway() && i >= 0 {
		return &d.Limits[i]
	}
	return nil
}

// Violated returns the names of the limits that the request exceeded.
func (d *Decision) Violated() []string {
	var names []string
	for i := range d.Limits {
		if d.Limits[i].Denied {
			names = append(names, d.Limits[i].Limit.Name)
		}
	}
	return names
}

// RetryAfter is how long until the whole request fits: the longest of its
// limits, 0 when it fits now. What was shed may come again after a second.
func (d *Decision) RetryAfter() time.Duration {
	if d.Basis == BasisShed {
		return time.Second
	}
	var longest time.Duration
	for i := range d.Limits {
		longest = max(longest, d.Limits[i].RetryAfter)
	}
	return longest
}
