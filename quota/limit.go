package quota

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the numbers that a limit and a request may carry.
const (
	// MaxUnits bounds L, burst and cost. Products of two such numbers overflow
	// 2⁵³, which is why the arithmetic of this package divides before it adds.
	MaxUnits = int64(1) << 40
	// MinWindow and MaxWindow bound W.
	MinWindow = time.Millisecond
	MaxWindow = 31 * 24 * time.Hour
	// MaxLogUnits is the largest L of a sliding_log limit: its log keeps about
	// ten bytes per unit, so a million units would be ten megabytes a partition.
	MaxLogUnits = int64(100_000)
)

// Algorithm says how a limit counts. The zero value is SlidingLog.
type Algorithm uint8

const (
	// SlidingLog is exact: about 10 bytes per unit, at most 100000 units.
	//
	// It is exact over every half-open window (t−W, t]; it keeps one entry per admission.
	SlidingLog Algorithm = iota
	// SlidingWindow keeps two counters, however many units; a badly placed window can hold almost twice the limit.
	//
	// It is previous bucket × what is left of it, rounded up, plus current bucket: at most 2L−1.
	SlidingWindow
	// GCRA is a steady rate of units per window; `burst` is how many may come at once. Only with `scope: region`.
	//
	// It drains L units per W from a level that may rise to Burst: shaping rather than counting, two integers.
	GCRA
	// Concurrent counts open reservations, one unit each, and nothing else; W is how long
	// one lasts that does not say. It is `kind: concurrent` in topology.yaml.
	Concurrent
	// CalendarPeriods counts by the periods of a Calendar, from nothing in each. It is `calendar: month` in topology.yaml.
	CalendarPeriods
)

// Counts says what a limit counts of a reservation. The zero value is CountsRequests.
type Counts uint8

const (
	// CountsRequests charges 1 for each reservation, at once and for good.
	CountsRequests Counts = iota
	// CountsTokens holds the amount of a reservation until it is settled, and charges then what was used.
	CountsTokens
)

// Bounds of reservations.
const (
	// MinTTL is how long a reservation lasts at least that is not renewed.
	MinTTL = time.Second
	// MaxTTL is how long it lasts at most.
	MaxTTL = time.Hour
	// DefaultTTL is how long one lasts under a Concurrent limit without a ttl.
	DefaultTTL = time.Minute
	// DefaultMaxTTL is the max_ttl of a policy that takes reservations.
	DefaultMaxTTL = 2 * time.Minute
	// MaxHolds bounds the open reservations of one partition.
	MaxHolds = 10_000
)

// Scope says over what a limit holds. The zero value is ScopeRegion.
type Scope uint8

const (
	// ScopeRegion counts in this region only and is exact.
	ScopeRegion Scope = iota
	// ScopeGlobal is one limit for all regions together: the known usage of the others is subtracted.
	ScopeGlobal
)

// Match is one equality of a `when` condition: the limit applies only to
// requests whose dimension Dimension has exactly the value Value.
type Match struct {
	Dimension string
	Value     string
}

// Limit is L units per window W. Values of it are immutable once a policy is in
// force; they are shared between goroutines. The tags are for package region.
type Limit struct {
	// Name is what answers and metrics call the limit, unique in its policy.
	Name string `yaml:"name,required"`
	// Units is how many units any window admits, wherever it begins, `1` to `1099511627776`. A request costs one unit unless
	// it specifies another cost.
	//
	// It is L, 1…MaxUnits.
	Units int64 `yaml:"units,required"`
	// Window is the length of the window, 1ms to 744h (31 days). A global window below 2s makes little sense, because what a
	// region knows of the others is a fraction of a second old.
	//
	// It is W, MinWindow…MaxWindow, in whole microseconds.
	Window time.Duration `yaml:"per,required"`
	// Algorithm is how the limit counts. Default: `sliding_log`.
	Algorithm Algorithm `yaml:"algorithm"`
	// Scope is over what the limit holds. Default: `region`.
	Scope Scope `yaml:"scope"`
	// Burst is how many units may come at once, `1` to `1099511627776`, with `algorithm: gcra` alone. Without it: `units`.
	//
	// 0 means Units.
	Burst int64 `yaml:"burst"`
	// MaxOvershoot is none, or 0% to 1000% with at most two decimals: how far all regions together may exceed a global
	// `sliding_log` limit, in every window, whatever fails. Default: `none`. `on_store_loss` is then closed unless it is set.
	//
	// See Bound.
	MaxOvershoot Overshoot `yaml:"max_overshoot"`
	// Counts is what the limit counts of a reservation (docs/tokens.md). Default: `requests`.
	Counts Counts `yaml:"counts"`
	// Near is the part of the units from which on a tenant is logged as near the limit, once a window: above 0% to 100%. Default: no
	// line.
	//
	// It is a percentage; 0 is for none.
	Near float64 `yaml:"near"`
	// Calendar divides time into periods, of CalendarPeriods, whose Window is Calendar.Unit.Window; nil of others.
	Calendar *Calendar
	// HeldFor is the max_ttl of the policy of a limit with CountsTokens: how long a reservation holds units of it at most
	// that is not extended, under a bound at all. 0 for other limits.
	HeldFor time.Duration
	// Refundable is whether AskRefund may take back what was charged. Other regions keep the most that they received of a
	// global limit's usage, so none of these is.
	Refundable bool
	// By counts each value of these dimensions separately. All requests without a value share one count, so a client gains
	// nothing by omitting it.
	//
	// Sorted and unique.
	By []string `yaml:"by"`
	// When limits only requests whose dimensions have exactly these values, such as `{route: login}`.
	//
	// Sorted by dimension, and unique.
	When []Match `yaml:"when"`
}

// Holds reports whether reservations hold units of the limit until they are settled.
func (l *Limit) Holds() bool { return l.Counts == CountsTokens || l.Algorithm == Concurrent }

// Capacity is the largest cost that one check may ask of the limit: Units, or
// for GCRA the burst. A check that asks for more can never succeed.
func (l *Limit) Capacity() int64 {
	if l.Algorithm == GCRA && l.Burst > 0 {
		return l.Burst
	}
	return l.Units
}

// WindowUS is W in microseconds.
func (l *Limit) WindowUS() int64 { return l.Window.Microseconds() }

// Per is what the units are per, in words.
func (l *Limit) Per() string {
	if l.Calendar != nil {
		return l.Calendar.String()
	}
	return WindowText(l.Window)
}

// Applies reports whether the limit's condition holds for a request.
func (l *Limit) Applies(dims Dimensions) bool {
	for _, m := range l.When {
		if v, ok := dims.Value(m.Dimension); !ok || v != m.Value {
			return false
		}
	}
	return true
}

// Validate returns every error of the limit. Pointers are those of
// topology.yaml below the limit: "/units", "/per", "/burst".
func (l *Limit) Validate() []FieldError {
	var ms FieldErrors
	ms.Check("/name", ValidName(l.Name))
	most := MaxUnits
	if l.Algorithm == Concurrent {
		most = MaxHolds
	}
	ms.Between("/units", l.Units, 1, most)
	bound := l.MaxOvershoot != 0
	switch l.Algorithm {
	case Concurrent:
		ms.When(l.Window < MinTTL || l.Window > MaxTTL, "/ttl", "must be between 1s and 1h, is %v", l.Window)
		ms.When(l.Scope != ScopeRegion, "/scope", ConcurrentHas)
		ms.When(l.Burst != 0, "/burst", ConcurrentHas)
		ms.When(bound, "/max_overshoot", ConcurrentHas)
		ms.When(l.Counts != CountsRequests, "/counts", ConcurrentHas)
		bound = false
	case CalendarPeriods:
		if ms.When(l.Calendar == nil, "/calendar", "is missing"); l.Calendar != nil {
			l.Calendar.validate(&ms)
		}
	default:
		l.validateWindow(&ms)
	}
	switch {
	case !bound:
	case l.Algorithm == SlidingWindow:
		ms.Add("/max_overshoot", "needs algorithm: sliding_log; a window of a sliding_window limit may hold up to 2·units-1 in one region already")
	case l.Algorithm == GCRA:
		ms.Add("/max_overshoot", "needs algorithm: sliding_log; a gcra limit has a rate and no window")
	case l.Scope != ScopeGlobal:
		ms.Add("/max_overshoot", "needs scope: global; a limit of one region is exact")
	case l.MaxOvershoot > MaxOvershoot:
		ms.Check("/max_overshoot", errOvershoot)
	}
	for i, by := range l.By {
		ms.Check(Item("/by", i), ValidName(by))
		ms.When(i > 0 && l.By[i-1] >= by, Item("/by", i), "dimension %q is duplicated", by)
	}
	for _, m := range l.When {
		ms.Check("/when/"+m.Dimension, ValidName(m.Dimension))
		ms.Check("/when/"+m.Dimension, ValidID(m.Value))
	}
	return ms
}

// validateWindow is Validate of what a limit with a window has alone.
func (l *Limit) validateWindow(ms *FieldErrors) {
	inRange := l.Window >= MinWindow && l.Window <= MaxWindow
	ms.When(!inRange, "/per", "must be between 1ms and 744h (31 days), is %v", l.Window)
	ms.When(inRange && l.Window%time.Microsecond != 0, "/per", "must be a whole number of microseconds, is %v", l.Window)
	ms.When(l.Algorithm == SlidingLog && l.Units > MaxLogUnits && l.Units <= MaxUnits, "/units", "sliding_log keeps about 10 bytes for each unit and takes at most %d; "+
		"use algorithm: sliding_window (two counters) or gcra (rate with burst)", MaxLogUnits)
	ms.When(l.Algorithm == GCRA && l.Scope == ScopeGlobal, "/scope", "gcra limits are regional; use sliding_log or sliding_window with scope: global")
	switch {
	case l.Burst == 0:
	case l.Algorithm != GCRA:
		ms.Add("/burst", "needs algorithm: gcra")
	case l.Burst < 0 || l.Burst > MaxUnits:
		ms.Between("/burst", l.Burst, 1, MaxUnits)
	case l.Units > 0 && productAbove(l.Burst, l.WindowUS(), l.Units, MaxWindow.Microseconds()):
		ms.Add("/burst", "a full burst of %d would take longer than 31 days to drain at %d per %v", l.Burst, l.Units, l.Window)
	}
}

// MostUnder is the most units that an override gives the limit, where it may give it so many times its own; 0 times is no bound.
func (l *Limit) MostUnder(times int64) int64 {
	most := MaxUnits
	switch l.Algorithm {
	case SlidingLog:
		most = MaxLogUnits
	case Concurrent:
		most = MaxHolds
	}
	if times > 0 {
		most = min(most, l.Units*times)
	}
	return most
}

// CalendarHas is why a CalendarPeriods limit has no other fields.
const CalendarHas = "is not for a limit with calendar, which counts from nothing in each period: " +
	"it has units, calendar, timezone, anchor, scope, max_overshoot, counts, near, by and when"

// ConcurrentHas is why a Concurrent limit has no other fields.
const ConcurrentHas = "is not for kind: concurrent, which counts open reservations of this region: it has units, ttl, by and when"

// Overshoot is by how much all regions together may exceed a global limit in any window: 1 more than hundredths
// of a percent of its units. The zero value is none: nothing bounds what they admit before they know of each other.
type Overshoot uint32

const (
	// Strict is max_overshoot: 0%.
	Strict Overshoot = 1
	// MaxOvershoot is max_overshoot: 1000%, the largest.
	MaxOvershoot = Strict + 1000*hundredths
	// hundredths is how many steps of an Overshoot are a percent.
	hundredths = 100
)

var errOvershoot = errors.New("must be none or a percentage between 0% and 1000% with at most two decimals, such as 10%")

// UnmarshalText reads "none", or a percentage with at most two decimals such as "10%" or "0.25%".
func (o *Overshoot) UnmarshalText(text []byte) error {
	*o = 0
	if string(text) == "none" {
		return nil
	}
	number, ok := strings.CutSuffix(string(text), "%")
	whole, part, _ := strings.Cut(number, ".")
	n, err := strconv.ParseUint(whole+(part + "00")[:2], 10, 32)
	if !ok || len(part) > 2 || strings.HasSuffix(number, ".") || err != nil || whole == "" || n > uint64(MaxOvershoot-Strict) {
		return fmt.Errorf("%w, is %q", errOvershoot, Clip(string(text)))
	}
	*o = Strict + Overshoot(n)
	return nil
}

// String is what UnmarshalText reads, without needless digits.
func (o Overshoot) String() string {
	if o == 0 {
		return "none"
	}
	return strconv.FormatFloat(float64(o-Strict)/hundredths, 'f', -1, 64) + "%"
}

// Bound is B = ⌊L·(1+x)⌋, the most units that all regions together admit in any window of a limit with
// max_overshoot: x. It is false for a limit without one.
func (l *Limit) Bound() (units int64, ok bool) {
	if l.MaxOvershoot == 0 {
		return 0, false
	}
	more, _ := MulDiv(l.Units, int64(l.MaxOvershoot-Strict), 100*hundredths)
	return l.Units + more, true
}

// RatePPM is ρ: how far the rate of a region's clock may be from true, in millionths. That is 2 %; loans.lua says so too.
const RatePPM = 20_000

// Bound is this region's part of a limit's bound B. The zero value admits nothing.
type Bound struct {
	// Share is how many units of B the region may use before it lends or borrows any: the least of what it has under
	// all topologies that may be in force somewhere. 0…B.
	Share int64
	// Epoch is that of the data in the region's store, see loan.Store; 0 means that it is not known, and closes the bound.
	Epoch uint32
	// BurntUntilUS is the store's TIME until which the share is burnt: data that are lost may have used and lent it. Until
	// then the region has what the others lend it; 0 for never.
	BurntUntilUS int64
	// BurntThrough is of a limit with a calendar: the number of the last period for which the share is burnt, 0 for none. There
	// BurntUntilUS is its end, to be shown. See In.
	BurntThrough int64
	// LostIn is the epoch that began when data were lost last, 0 for never. Under a calendar what was borrowed in an earlier one is void,
	// also once an operator has reopened the region: a store that was rolled back may show it as it was.
	LostIn uint32
	// SinceUS is the store's TIME when the epoch began.
	SinceUS int64
	// FromUS and ToUS are the first and the last TIME of the store at which the epoch counts as known: a call that is
	// carried out at another one may have met a step of the store's clock. A ToUS of 0 is no end.
	FromUS, ToUS int64
	// Drifting says why the epoch is not known: the store's clock runs more than RatePPM too fast or too slow.
	Drifting bool
	// FastPPM is by how much the store's clock was measured to be fast, in millionths, up to MostFastPPM; 0 for what loans
	// allow for anyhow.
	FastPPM int64
}

// MostFastPPM bounds Bound.FastPPM: a clock that is RatePPM fast, measured to half of that either way, may look so fast.
const MostFastPPM = 2 * RatePPM

// LongestWindowUS is the longest that the window of a limit may be by the store's clock, see Bound.WindowUS.
func (l *Limit) LongestWindowUS() int64 {
	if l.MaxOvershoot == 0 {
		return l.WindowUS()
	}
	return Bound{FastPPM: MostFastPPM}.WindowUS(l)
}

// WindowUS is as long by the store's clock as a window is in true time, µs.
func (b Bound) WindowUS(l *Limit) int64 {
	w := l.WindowUS()
	return w + (w*b.FastPPM+999_999)/1_000_000
}

// In is the bound of a limit with a calendar as it holds for what counts in a period with a number. The number decides and not the
// time: a clock that is set over the end of a burnt period finds the next one open, and set back finds that one burnt.
func (b Bound) In(period int64) Bound {
	burnt := period <= b.BurntThrough
	if b.BurntUntilUS, b.SinceUS = 0, 0; burnt {
		b.BurntUntilUS = math.MaxInt64
	}
	return b
}

// At is the bound as it holds at a TIME of the store. While the share is burnt, one before the epoch began is not known either:
// the clock stepped back, and what is admitted then would not count.
func (b Bound) At(us int64) Bound {
	if us != b.Nearest(us) {
		b.Epoch = 0
	}
	return b
}

// Nearest is the TIME nearest to us at which the bound may be known, and at which a report counts.
func (b Bound) Nearest(us int64) int64 {
	if us = max(us, b.FromUS, b.CountsFrom(us)); b.ToUS != 0 {
		us = min(us, b.ToUS)
	}
	return us
}

// Within is the bound for a call that has a fence, see clock.Clock.Fence.
func (b Bound) Within(fromUS, toUS int64, ok bool) Bound {
	if b.FromUS, b.ToUS = fromUS, toUS; !ok {
		b.Epoch = 0
	}
	return b
}

// Closed is why nothing of the region's own share is left at the store's TIME, whatever was used of it, and for how long:
// ReasonBoundClosed, which has no end that is known, ReasonBoundBurnt or ReasonNone.
func (b *Bound) Closed(nowUS int64) (why Reason, left time.Duration) {
	left = time.Duration(b.BurntUntilUS-nowUS) * time.Microsecond
	switch {
	case b.Epoch == 0:
		return ReasonBoundClosed, 0
	case left > 0:
		return ReasonBoundBurnt, left
	}
	return ReasonNone, 0
}

// CountsFrom is the TIME from which on usage counts: while the share is burnt, what was used before the epoch counts
// against that alone. It is 0 for all of the window.
func (b *Bound) CountsFrom(nowUS int64) int64 {
	if nowUS < b.BurntUntilUS {
		return b.SinceUS
	}
	return 0
}

// AppendPartition appends the canonical text of a partition below its tenant and
// policy. It is injective: two different partitions never have the same text,
// whatever their values contain, because each value is preceded by its length and
// a missing value is "-".
//
//	user,ip:2.42,9.192.0.2.1:            by user and ip
//	user:-:                              by user, the request has none
//	ip:9.192.0.2.1:route=5.login         only when route is login
//	#user:2.42:                          by user, counting tokens
func AppendPartition(dst []byte, l *Limit, dims Dimensions) []byte {
	if l.Counts == CountsTokens {
		dst = append(dst, '#')
	}
	for i, by := range l.By {
		dst = append(separate(dst, i), by...)
	}
	dst = append(dst, ':')
	for i, by := range l.By {
		dst = separate(dst, i)
		if v, ok := dims.Value(by); ok {
			dst = appendValue(dst, v)
		} else {
			dst = append(dst, '-')
		}
	}
	dst = append(dst, ':')
	for i, m := range l.When {
		dst = append(append(separate(dst, i), m.Dimension...), '=')
		dst = appendValue(dst, m.Value)
	}
	return dst
}

// separate comes before each item of a list.
func separate(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	return dst
}

func appendValue(dst []byte, v string) []byte {
	dst = strconv.AppendInt(dst, int64(len(v)), 10)
	dst = append(dst, '.')
	return append(dst, v...)
}

// SamePartition reports whether two limits of one policy count the same
// requests together: equal dimensions and equal condition, and both requests or both
// tokens. They then share one log, and each limit is only a question asked of it.
func SamePartition(a, b *Limit) bool {
	return a.Counts == b.Counts && slices.Equal(a.By, b.By) && slices.Equal(a.When, b.When)
}
