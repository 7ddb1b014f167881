package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// countersPause is what Redis has for others between two pages of counters: a hundred
// thousand keys take a second and a hundredth of its time.
const countersPause = 10 * time.Millisecond

// yieldCounters receives the one or two buckets of a key, oldest first, its gauge, and the store's TIME.
type yieldCounters = func(key quota.CounterKey, buckets []quota.Counter, gauge quota.Gauge, storeUS int64)

// Counters reads all live usage counters and hands them to yield. A process reads
// them when it starts, to know what was admitted before. It reads slowly, so that
// requests are served meanwhile; what is charged while it reads may be missing.
func (s *Store) Counters(ctx context.Context, yield yieldCounters) error {
	nodes := s.nodeSet.current()
	if len(nodes) == 0 {
		return fmt.Errorf("read usage counters: %w", errNoMap)
	}
	for _, n := range nodes {
		if err := n.counters(ctx, yield); err != nil {
			return fmt.Errorf("read usage counters: %w", classify(err))
		}
	}
	return nil
}

func (n *node) counters(ctx context.Context, yield yieldCounters) error {
	return scan(ctx, n.client, "rl:*:"+store.CounterMark+"*", func(keys []string) error {
		if err := n.readCounters(ctx, keys, yield); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(countersPause):
			return nil
		}
	})
}

func (n *node) readCounters(ctx context.Context, names []string, yield yieldCounters) error {
	// Not MGET: a key of another type would fail them all.
	pipe := n.client.Pipeline()
	now := pipe.Time(ctx)
	var keys []quota.CounterKey
	var values []*redis.MapStringStringCmd
	for _, name := range names {
		if key, ok := store.ParseCounterKey(name); ok {
			keys, values = append(keys, key), append(values, pipe.HGetAll(ctx, name))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && (now.Err() != nil || classify(err).Reason != quota.ReasonRedisRefused) {
		return err // a refusal is about one key, which has gone meanwhile or is not ours
	}
	for i, key := range keys {
		if buckets, gauge := parseCounter(values[i].Val()); buckets != nil {
			yield(key, buckets, gauge, now.Val().UnixMicro())
		}
	}
	return nil
}

// parseCounter reads a hash that lua/usage_counters.lua describes; no buckets for what we cannot have written. An earlier
// bucket without units is left out.
func parseCounter(hash map[string]string) (buckets []quota.Counter, gauge quota.Gauge) {
	var newest, before quota.Counter
	for field, text := range hash {
		r, name := readText(text), readText(strings.Replace(field, ":", " ", 1))
		switch {
		case field == "h":
			gauge = quota.Gauge{Sequence: r.number(), Units: r.number(), UntilUS: r.number()}
		case field == "p":
			newest.EndsUS = r.atLeast(1)
			before.Bucket, before.EndsUS, before.Units = r.number(), r.number(), r.number()
		case field == "e":
			before.Units = r.number()
		case newest.Generation == 0:
			newest.Generation, newest.Bucket, newest.Units = name.atLeast(1), name.number(), r.number()
			r.bad = r.bad || !name.done()
		default:
			return nil, gauge
		}
		if !r.done() {
			return nil, gauge
		}
	}
	if newest.Generation == 0 {
		return nil, gauge
	}
	if before.Generation = newest.Generation; newest.EndsUS == 0 {
		before.Bucket = newest.Bucket - 1
	}
	if buckets = []quota.Counter{before, newest}; before.Units == 0 {
		buckets = buckets[1:]
	}
	for i := range buckets {
		buckets[i].Units = min(buckets[i].Units, quota.MaxCounter)
	}
	return buckets, gauge
}
