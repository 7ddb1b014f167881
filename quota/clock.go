package quota

// PartitionClock is a partition's clock at one decision.
//
// A partition's clock is Redis TIME as long as TIME goes forward. When TIME
// falls behind the newest stamp of the partition, the clock goes on from that
// stamp at TIME's pace, so it neither goes back nor stands still: an hour taken
// away by an administrator is not an hour in which nothing ages out. The
// distance is kept beside the newest stamp, and dropped when nothing would be
// used at TIME either: then no answer can tell the difference, and none that was
// given becomes untrue.
type PartitionClock struct {
	Time   int64 // Redis TIME, µs since the epoch
	Now    int64 // the partition's clock, not before its newest stamp
	Offset int64 // what to keep: how far the clock is ahead of TIME, 0 while it is not
}

// stepUS is how far a clock that is ahead already has to fall behind the newest
// stamp to be set further ahead. Less is jitter and is waited out, which stalls
// for less than this: followed, a clock that swings by 200 ms each second would
// make the partition's run a fifth too fast.
const stepUS = 1_000_000

// PartitionClockAt reads the partition's clock at TIME, given its newest stamp (0 for
// none), the offset that was kept with it, and the time at which nothing of the
// partition is used any more.
func PartitionClockAt(time, newest, offset, empties int64) PartitionClock {
	switch {
	case offset == 0 && time >= newest, time >= newest && time >= empties:
		return PartitionClock{Time: time, Now: time}
	case offset == 0, newest-(time+offset) >= stepUS:
		return PartitionClock{Time: time, Now: newest, Offset: newest - time}
	default:
		return PartitionClock{Time: time, Now: max(newest, time+offset), Offset: offset}
	}
}

// Until returns how many microseconds of TIME pass until the partition's clock
// reaches due.
func (t PartitionClock) Until(due int64) int64 {
	if due <= t.Now {
		return 0
	}
	return due - t.Offset - t.Time
}
