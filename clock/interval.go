package clock

import "time"

// interval is a range of offsets, lo < hi. It is open: a TIME is cut off to whole
// µs, so an offset can come as near to an end as it likes and never be it.
type interval struct{ lo, hi time.Duration }

func (i interval) widened(by time.Duration) interval { return interval{i.lo - by, i.hi + by} }

func (i interval) meets(o interval) bool { return i.lo < o.hi && o.lo < i.hi }

// and is what two intervals that meet have in common.
func (i interval) and(o interval) interval { return interval{max(i.lo, o.lo), min(i.hi, o.hi)} }

// distance is the gap between two intervals that do not meet.
func (i interval) distance(o interval) time.Duration { return max(i.lo-o.hi, o.lo-i.hi) }

func (i interval) middle() time.Duration { return i.lo + (i.hi-i.lo)/2 }

// halfWidth is rounded up, so that middle ± halfWidth covers the interval.
func (i interval) halfWidth() time.Duration { return (i.hi - i.lo + 1) / 2 }
