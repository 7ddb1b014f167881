package quota

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

// maxHeld bounds what a counter can hold: reports may go past every limit, and
// beyond 4·MaxUnits one more changes no answer.
const maxHeld = 4 * MaxUnits

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
	b.Cur = min(b.Cur+units, maxHeld)
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
