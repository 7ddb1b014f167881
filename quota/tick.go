package quota

// Tick is a partition's clock at one decision.
//
// A partition's clock is Redis TIME as long as TIME goes forward. When TIME
// falls behind the newest stamp of the partition, the clock goes on from that
// stamp at TIME's pace, so it neither goes back nor stands still: an hour lost
// by an administrator is not an hour in which nothing ages out. The distance is
// kept as Offset, beside the stamp, and dropped once TIME has caught up with
// the newest stamp. It is dropped then, and not later, because a clock that
// swings back and forth would otherwise make the partition's run ever faster.
type Tick struct {
	Time   int64 // Redis TIME, microseconds since the epoch
	Now    int64 // the partition's clock, at least the newest stamp
	Newest int64 // the newest stamp, 0 for none
	Offset int64 // Now − Time, 0 unless TIME is behind Newest
}

// TickAt reads the partition's clock at TIME, given its newest stamp (0 for
// none) and the offset that was kept with it (0 for none).
func TickAt(time, newest, offset int64) Tick {
	if time >= newest {
		return Tick{Time: time, Now: time, Newest: newest}
	}
	if offset == 0 || time+offset < newest {
		offset = newest - time
	}
	return Tick{Time: time, Now: time + offset, Newest: newest, Offset: offset}
}

// Until returns how many microseconds of TIME pass until the partition's clock
// reaches due, if nothing else happens. An offset is gone by the time that TIME
// reaches the newest stamp, which makes the wait longer by that offset.
func (t Tick) Until(due int64) int64 {
	if t.Offset > 0 && due-t.Offset < t.Newest {
		return due - t.Offset - t.Time
	}
	return due - t.Time
}
