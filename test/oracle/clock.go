package oracle

// clock is a partition's clock, by its rule: it is the store's time, unless
// that is behind the newest stamp; then it goes on from the newest stamp at the
// time's own pace, and again from there when time falls back by a second or more,
// until nothing is used by the store's time either. It is never behind the newest
// stamp.
type clock struct {
	newest int64 // stamp of the newest admission, 0 for none
	ahead  int64 // by how much the clock was ahead of time when it was last noted
}

// read returns the partition's clock at time, and by how much it is set ahead;
// unused is whether nothing is used by the store's time.
func (c clock) read(time int64, unused bool) (now, ahead int64) {
	if time >= c.newest && (c.ahead == 0 || unused) {
		return time, 0
	}
	if late := c.newest - (time + c.ahead); c.ahead == 0 || late >= 1_000_000 {
		return c.newest, c.newest - time
	}
	return max(c.newest, time+c.ahead), c.ahead
}
