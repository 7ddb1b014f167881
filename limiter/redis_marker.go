package limiter

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// probeKey begins the keys that probes write: a Redis that is read-only or out of
	// memory answers PING all the same.
	probeKey = "rl:probe"
	// markerTTL outlives every outage that a marker is to be compared across.
	markerTTL = 10 * time.Minute
)

// marker is a number that only this process writes, one higher with each probe. A
// server that shows an older one, or none, has lost what it had confirmed: it was
// flushed, started again without its data, or a replica took over that was behind.
type marker struct {
	key  string
	told int64     // the newest number that was confirmed; 0 for none
	at   time.Time // when it was
}

// mark writes the next number and looks at the one before. The writes between two
// probes are how precise it is.
func (n *node) mark(ctx context.Context) error {
	m := n.marker
	if m == nil {
		return nil
	}
	pipe := n.client.Pipeline()
	before := pipe.Get(ctx, m.key)
	pipe.Set(ctx, m.key, m.told+1, markerTTL)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	held, _ := strconv.ParseInt(before.Val(), 10, 64)
	if held < m.told && time.Since(m.at) < markerTTL-ttlMargin {
		n.metrics.lost()
		n.log.Warn("redis has lost writes that it had confirmed; limits may admit that much again within a window",
			"confirmed_before", time.Since(m.at).Round(time.Millisecond))
	}
	m.told, m.at = m.told+1, time.Now()
	return nil
}
