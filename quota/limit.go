package quota

import (
	"fmt"
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
	// SlidingLog is exact over every half-open window (t−W, t]; it keeps one
	// entry per admission.
	SlidingLog Algorithm = iota
	// SlidingWindow keeps two counters: previous bucket × what is left of it,
	// rounded up, plus current bucket. A trailing window can hold up to 2L−1.
	SlidingWindow
	// GCRA drains L units per W from a level that may rise to Burst: shaping
	// rather than counting, two integers, regional only.
	GCRA
)

// Scope says over what a limit holds. The zero value is ScopeRegion.
type Scope uint8

const (
	// ScopeRegion limits are exact: this region's Redis alone decides.
	ScopeRegion Scope = iota
	// ScopeGlobal limits have a ceiling from which the usage of other regions is subtracted.
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
	Name      string        `yaml:"name,required"`
	Units     int64         `yaml:"units,required"` // L, 1…MaxUnits
	Window    time.Duration `yaml:"per,required"`   // W, MinWindow…MaxWindow, whole microseconds
	Algorithm Algorithm     `yaml:"algorithm"`
	Scope     Scope         `yaml:"scope"`
	// Burst is how far the level of a GCRA limit may rise, 1…MaxUnits; 0 means
	// Units. No other algorithm has one.
	Burst int64 `yaml:"burst"`
	// MaxOvershoot bounds what all regions together admit in any window, see Bound; for
	// global SlidingLog limits alone.
	MaxOvershoot Overshoot `yaml:"max_overshoot"`
	By           []string  `yaml:"by"`   // dimensions counted apart, sorted, unique
	When         []Match   `yaml:"when"` // all must hold, sorted by dimension, unique
}

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
	var ms fieldErrors
	if err := ValidName(l.Name); err != nil {
		ms.add("/name", "%v", err)
	}
	if l.Units < 1 || l.Units > MaxUnits {
		ms.add("/units", "must be between 1 and %d, is %d", MaxUnits, l.Units)
	}
	if l.Window < MinWindow || l.Window > MaxWindow {
		ms.add("/per", "must be between 1ms and 744h (31 days), is %v", l.Window)
	} else if l.Window%time.Microsecond != 0 {
		ms.add("/per", "must be a whole number of microseconds, is %v", l.Window)
	}
	l.validateAlgorithm(&ms)
	switch {
	case l.MaxOvershoot == 0:
	case l.Algorithm == SlidingWindow:
		ms.add("/max_overshoot", "needs algorithm: sliding_log; a window of a sliding_window limit may hold up to 2·units-1 in one region already")
	case l.Algorithm == GCRA:
		ms.add("/max_overshoot", "needs algorithm: sliding_log; a gcra limit has a rate and no window")
	case l.Scope != ScopeGlobal:
		ms.add("/max_overshoot", "needs scope: global; a limit of one region is exact")
	case l.MaxOvershoot > MaxOvershoot:
		ms.add("/max_overshoot", "%v", errOvershoot)
	}
	l.validateDimensions(&ms)
	return ms
}

func (l *Limit) validateAlgorithm(ms *fieldErrors) {
	switch l.Algorithm {
	case SlidingLog:
		if l.Units > MaxLogUnits && l.Units <= MaxUnits {
			ms.add("/units", "sliding_log keeps about 10 bytes for each unit and takes at most %d; "+
				"use algorithm: sliding_window (two counters) or gcra (rate with burst)", MaxLogUnits)
		}
	case GCRA:
		if l.Scope == ScopeGlobal {
			ms.add("/scope", "gcra limits are regional; use sliding_log or sliding_window with scope: global")
		}
	}
	switch {
	case l.Algorithm != GCRA && l.Burst != 0:
		ms.add("/burst", "needs algorithm: gcra")
	case l.Burst < 0 || l.Burst > MaxUnits:
		ms.add("/burst", "must be between 1 and %d, is %d", MaxUnits, l.Burst)
	case l.Burst > 0 && l.Units > 0 && productAbove(l.Burst, l.WindowUS(), l.Units, MaxWindow.Microseconds()):
		ms.add("/burst", "a full burst of %d would take longer than 31 days to drain at %d per %v", l.Burst, l.Units, l.Window)
	}
}

func (l *Limit) validateDimensions(ms *fieldErrors) {
	for i, by := range l.By {
		if err := ValidName(by); err != nil {
			ms.add(fmt.Sprintf("/by/%d", i), "%v", err)
		}
		if i > 0 && l.By[i-1] >= by {
			ms.add(fmt.Sprintf("/by/%d", i), "dimension %q is duplicated", by)
		}
	}
	for _, m := range l.When {
		if err := ValidName(m.Dimension); err != nil {
			ms.add("/when/"+m.Dimension, "%v", err)
		}
		if err := ValidID(m.Value); err != nil {
			ms.add("/when/"+m.Dimension, "%v", err)
		}
	}
}
