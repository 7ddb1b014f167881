package oracle

// clock is a partition's, as the rule is told: it is the store's time, unless
// that is behind the newest stamp; then it goes on from the newest stamp at the
// time's own pace, and on from where it was when time falls back by a second or
// more, until time has come on by as much as the clock is ahead since somebody
// looked. It is never behind the newest stamp.
type clock struct {
	newest int64 // stamp of the newest admission, 0 for none
	ahead  int64 // by how much the clock was ahead of time when it was last noted
	noted  int64 // the time then
}

// read returns the partition's clock at time, and by how much it is ahead.
func (c clock) read(time int64) (now, ahead int64) {
	if c.ahead == 0 {
		now = max(time, c.newest)
		return now, now - time
	}
	if time >= c.noted+c.ahead {
		return time, 0
	}
	ahead = c.ahead
	if back := c.noted - time; back >= 1_000_000 {
		ahead += back
	}
	return max(c.newest, time+ahead), ahead
}

// note returns the clock after somebody looked at time.
func (c clock) note(time int64) clock {
	_, ahead := c.read(time)
	switch ahead {
	case 0:
		c.noted = 0
	case c.ahead: // time may have shaken; what was seen stays seen
		c.noted = max(c.noted, time)
	default:
		c.noted = time
	}
	c.ahead = ahead
	return c
}

// until returns how long after time the clock first shows due or later, when
// nothing happens in between.
func (c clock) until(time, due int64) int64 {
	c = c.note(time)
	if d := max(0, due-c.ahead-time); time+d < c.noted+c.ahead { // while it is still ahead
		return d
	}
	return max(0, due-time) // when time has caught up
}
