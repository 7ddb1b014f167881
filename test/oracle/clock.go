package oracle

// clock is a partition's, as the rule is told: it is the store's time, unless
// that is behind the newest stamp; then it goes on from the newest stamp at the
// time's own pace, and again from there whenever time falls back further.
type clock struct {
	newest int64 // stamp of the newest admission, 0 for none
	ahead  int64 // by how much the clock was ahead of time when it was last noted
}

// read returns the partition's clock at time, and by how much it is ahead.
func (c clock) read(time int64) (now, ahead int64) {
	if time >= c.newest {
		return time, 0
	}
	if now := time + c.ahead; c.ahead > 0 && now >= c.newest {
		return now, c.ahead
	}
	return c.newest, c.newest - time
}

// until returns how long after time the clock first shows due or later, when
// nothing happens in between.
func (c clock) until(time, due int64) int64 {
	_, ahead := c.read(time)
	if d := max(0, due-ahead-time); time+d < c.newest { // while it is still ahead
		return d
	}
	return max(0, c.newest-time, due-time) // when time has caught up
}
