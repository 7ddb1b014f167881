package quota

// Stepped is what is kept beside a partition's newest stamp while its clock is
// ahead of Redis TIME; the zero value while it is not.
type Stepped struct {
	Offset int64 // partition's clock − TIME, µs, positive
	Seen   int64 // TIME when that was last seen, µs; Seen + Offset is not before the newest stamp
}

// stepUS is how far TIME has to fall back for a partition that is already ahead
// of it to move further ahead. Less is jitter: waiting it out stalls for less than
// this, where following each swing would make the partition's clock run fast.
const stepUS = 1_000_000

// Tick is a partition's clock at one decision.
//
// A partition's clock is Redis TIME as long as TIME goes forward. When TIME
// falls behind the newest stamp of the partition, the clock goes on from that
// stamp at TIME's pace, so it neither goes back nor stands still: an hour taken
// away by an administrator is not an hour in which nothing ages out. The
// distance is kept as an offset, and each decision under it keeps when it was
// seen. When TIME is suddenly later by the offset or more, it has caught up and
// the offset is dropped: TIME was set right again, or the partition was quiet
// for so long. Without that, a clock that swings by 200 ms each second would
// make the partition's run a fifth too fast.
type Tick struct {
	Time int64 // Redis TIME, µs since the epoch
	Now  int64 // the partition's clock, not before its newest stamp
	// Stepped is what to keep after a decision at this tick.
	Stepped Stepped
}

// TickAt reads the partition's clock at TIME, given its newest stamp (0 for
// none) and what was kept with it.
func TickAt(time, newest int64, kept Stepped) Tick {
	offset, seen := kept.Offset, max(kept.Seen, time)
	switch {
	case offset == 0:
		if time >= newest {
			return Tick{Time: time, Now: time}
		}
		offset, seen = newest-time, time
	case time-kept.Seen >= offset:
		return Tick{Time: time, Now: time}
	case kept.Seen-time >= stepUS: // back once more
		offset, seen = offset+kept.Seen-time, time
	}
	return Tick{Time: time, Now: max(newest, time+offset), Stepped: Stepped{Offset: offset, Seen: seen}}
}

// Until returns how many microseconds of TIME pass until the partition's clock
// reaches due, if nobody asks in between: a wait as long as the offset drops it,
// and is longer by it.
func (t Tick) Until(due int64) int64 {
	if due <= t.Now {
		return 0
	}
	at := due - t.Stepped.Offset // TIME then, if the offset is still kept
	if at-t.Stepped.Seen < t.Stepped.Offset {
		return at - t.Time
	}
	return due - t.Time
}
