package quota

import "math/bits"

// MulDiv returns the quotient and the remainder of a·b ÷ d without overflow.
// a and b are not negative, d is positive, and the quotient must fit an int64:
// MulDiv panics otherwise, as an integer division by zero does.
func MulDiv(a, b, d int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(d))
	return int64(q), int64(r)
}

// MulDivUp is MulDiv rounded up.
func MulDivUp(a, b, d int64) int64 {
	q, r := MulDiv(a, b, d)
	if r > 0 {
		q++
	}
	return q
}

// productAbove reports whether a·b > c·d, none of them negative.
func productAbove(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}

// Buckets is the state of a sliding_window limit: two counters on buckets of
// length W that are aligned on the store's clock.
//
//	        prev             cur
//	|-------------------|----------x--------|
//	start−W           start       now    start+W
//
// What is used is prev × what is left of its share of (now−W, now], rounded up,
// plus cur. Rounding up errs towards denying by less than one unit. Each aligned
// bucket holds at most L, a trailing window at most 2L−1.
type Buckets struct {
	Start int64 // µs, a multiple of W
	Prev  int64 // units of the bucket before
	Cur   int64 // units of this bucket
}

// At returns the buckets as they stand at now ≥ Start.
func (b Buckets) At(now, window int64) Buckets {
	start := now - now%window
	switch start {
	case b.Start:
		return b
	case b.Start + window:
		return Buckets{Start: start, Prev: b.Cur}
	default:
		return Buckets{Start: start}
	}
}

// Used returns the units used at now, which lies in the current bucket.
func (b Buckets) Used(now, window int64) int64 {
	return MulDivUp(b.Prev, window-(now-b.Start), window) + b.Cur
}

// Add charges units to the current bucket.
func (b Buckets) Add(units int64) Buckets {
	b.Cur = min(b.Cur+units, MaxCounter)
	return b
}

// Sub takes back units, the newest first.
func (b Buckets) Sub(units int64) Buckets {
	newest := min(units, b.Cur)
	b.Cur -= newest
	b.Prev -= min(units-newest, b.Prev)
	return b
}

// Fits returns the first time from now on at which cost fits under ceiling, if
// nothing else is charged; cost must be at most ceiling.
func (b Buckets) Fits(now, window, ceiling, cost int64) int64 {
	room := ceiling - cost
	if b.Used(now, window) <= room {
		return now
	}
	if spare := room - b.Cur; spare >= 0 {
		return b.Start + fades(b.Prev, spare, window)
	}
	return b.Start + window + fades(b.Cur, room, window)
}

// fades returns how far into the following bucket a bucket of so many units has
// faded to at most left: the least e with ⌈units·(W−e)/W⌉ ≤ left.
func fades(units, left, window int64) int64 {
	if units <= left {
		return 0
	}
	q, _ := MulDiv(left, window, units)
	return window - q
}

// Empties returns the first time from now on at which nothing is used.
func (b Buckets) Empties(now, window int64) int64 {
	switch {
	case b.Cur > 0:
		return b.Start + 2*window
	case b.Prev > 0:
		return b.Start + window
	default:
		return now
	}
}

// Reshape carries buckets of one length over to another. What is used at newest, the time
// of the last charge, counts as spent then, whenever it is read: that errs towards denying,
// for at most two of the new windows from newest on.
func (b Buckets) Reshape(newest, from, to int64) Buckets {
	if from == to {
		return b
	}
	return Buckets{Start: newest - newest%to, Cur: b.Used(newest, from)}
}

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

// Sub takes back units.
func (v Level) Sub(units int64) Level {
	if units > v.Units {
		return Level{}
	}
	v.Units -= units
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
