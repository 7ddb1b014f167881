package oracle

// clock is a partition's clock, by its rule: it is the store's time, and never behind the
// newest stamp. When it falls behind that by a second or more, it goes on from the
// newest stamp at the time's own pace, until nothing is used by the store's time
// either.
type clock struct {
	newest int64 // stamp of the newest admission, 0 for none
	ahead  int64 // by how much the clock was ahead of time when it was last noted
}

// read returns the partition's clock at time, and by how much it is set ahead;
// unused is whether nothing is used by the store's time.
func (c clock) read(time int64, unused bool) (now, ahead int64) {
	switch {
	case time >= c.newest && (c.ahead == 0 || unused):
		return time, 0
	case time+c.ahead <= c.newest-1_000_000:
		return c.newest, c.newest - time
	case time+c.ahead < c.newest:
		return c.newest, c.ahead
	}
	return time + c.ahead, c.ahead
}
