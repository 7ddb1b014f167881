package quota

// PartitionClock is a partition's clock at one decision.
//
// A partition's clock is Redis TIME, and stands at the newest stamp of the partition while
// TIME is behind that. When TIME steps back by a second or more, the clock goes on from the
// newest stamp at TIME's pace instead: an hour taken away by an administrator is not an
// hour in which nothing ages out. The distance is kept beside the newest stamp, and dropped
// when nothing would be used at TIME either.
//
// A Retry-After is true as long as TIME does not step. A step back before the wait is over
// prolongs it, by the step at most: the clock goes on from when a check first sees the
// step, and what has passed since the newest stamp until then is lost.
type PartitionClock struct {
	Time   int64 // Redis TIME, µs since the epoch
	Now    int64 // the partition's clock, not before its newest stamp
	Offset int64 // what to keep: how far the clock is ahead of TIME, 0 while it is not
}

// stepUS is how far a clock has to fall behind the newest stamp to be set ahead.
// Less is jitter and is waited out, which stalls for less than this: followed, a clock that
// swings by 200 ms each second would make the partition's run a fifth too fast.
const stepUS = 1_000_000

// PartitionClockAt reads the partition's clock at TIME, given its newest stamp (0 for
// none), the offset that was kept with it, and the time at which nothing of the
// partition is used any more.
func PartitionClockAt(time, newest, offset, empties int64) PartitionClock {
	if time >= newest && time >= empties {
		offset = 0
	}
	if newest-(time+offset) >= stepUS {
		offset = newest - time
	}
	return PartitionClock{Time: time, Now: max(newest, time+offset), Offset: offset}
}

// Until returns how many microseconds of TIME pass until the partition's clock
// reaches due.
func (t PartitionClock) Until(due int64) int64 {
	if due <= t.Now {
		return 0
	}
	return due - t.Offset - t.Time
}
