package quota

// Level is the state of a gcra limit: how full its bucket is, in exact
// fractions. It drains L units per W; a cost fits while it does not rise above
// the burst. (GCRA is usually described by a theoretical arrival time; that is this
// level × W ÷ L, which does not come out even in microseconds.)
type Level struct {
	Units int64 // whole units
	Frac  int64 // and Frac/W of one, 0…W−1
}

// Drain returns the level after elapsed microseconds ≥ 0.
func (v Level) Drain(elapsed, units, window int64) Level {
	whole := elapsed / window
	if whole > v.Units/units {
		return Level{}
	}
	v.Units -= whole * units
	q, r := MulDiv(elapsed%window, units, window)
	v.Units -= q
	v.Frac -= r
	if v.Frac < 0 {
		v.Frac += window
		v.Units--
	}
	if v.Units < 0 {
		return Level{}
	}
	return v
}

// Used is the level in whole units, rounded up.
func (v Level) Used() int64 {
	if v.Frac > 0 {
		return v.Units + 1
	}
	return v.Units
}

// Add charges units. Reports may go past the capacity, up to four times: what is
// beyond is forgiven, so that the wait stays below four times the longest drain.
func (v Level) Add(units, capacity int64) Level {
	v.Units = min(v.Units+units, 4*capacity)
	return v
}

// Falls returns after how many microseconds the level has fallen to at most
// left ≥ 0 units.
func (v Level) Falls(left, units, window int64) int64 {
	if v.Used() <= left {
		return 0
	}
	q, r := MulDiv(v.Units-left, window, units)
	return q + (r+v.Frac+units-1)/units
}

// Reshape carries the level over to another window and capacity: the same units
// as far as Add would hold them, the fraction rounded up.
func (v Level) Reshape(from, to, capacity int64) Level {
	f := MulDivUp(v.Frac, to, from)
	return Level{Units: min(v.Units+f/to, 4*capacity), Frac: f % to}
}
