package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
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
		hash := values[i].Val()
		if values[i].Err() != nil {
			hash = n.formerCounter(ctx, values[i].Args()[1].(string))
		}
		gauge, known := parseGauge(hash)
		if buckets := parseBuckets(hash); buckets != nil && known {
			yield(key, buckets, gauge, now.Val().UnixMicro())
		}
	}
	return nil
}

// formerCounter reads a counter that is still a string, as lua/usage_counters.lua describes it; nil for none.
func (n *node) formerCounter(ctx context.Context, name string) map[string]string {
	fields := strings.Split(n.client.Get(ctx, name).Val(), ":")
	if len(fields) < 3 {
		return nil
	}
	return map[string]string{fields[0] + ":" + fields[1]: fields[2], "e": cmp.Or(strings.Join(fields[3:], ":"), "0")}
}

// parseGauge takes the gauge out of a hash that lua/usage_counters.lua describes; false for what we cannot have written.
func parseGauge(hash map[string]string) (g quota.Gauge, ok bool) {
	text, there := hash["h"]
	if !there {
		return g, true
	}
	delete(hash, "h")
	r := readText(text)
	g = quota.Gauge{Sequence: r.number(), Units: r.number(), UntilUS: r.number()}
	return g, !r.bad && len(r.parts) == 0
}

// parseBuckets reads a hash that lua/usage_counters.lua describes; nil for what we cannot have written. An earlier bucket
// without units is left out.
func parseBuckets(hash map[string]string) []quota.Counter {
	var newest, earlier, past quota.Counter
	if text, calendar := hash["p"]; calendar {
		delete(hash, "p")
		r := readText(text)
		newest.EndsUS = r.number()
		if past = (quota.Counter{Bucket: r.number(), EndsUS: r.number(), Units: min(r.number(), quota.MaxCounter)}); r.bad || len(r.parts) > 0 || newest.EndsUS == 0 {
			return nil
		}
	}
	for field, value := range hash {
		units, err := strconv.ParseInt(value, 10, 64)
		if err != nil || units < 0 {
			return nil
		}
		units = min(units, quota.MaxCounter)
		generation, bucket, found := strings.Cut(field, ":")
		switch {
		case found && newest.Generation == 0:
			newest.Units = units
			if newest.Generation, err = strconv.ParseInt(generation, 10, 64); err == nil {
				newest.Bucket, err = strconv.ParseInt(bucket, 10, 64)
			}
		case field == "e":
			earlier.Units = units
		default:
			return nil
		}
		if err != nil || min(newest.Generation, newest.Bucket) < 0 {
			return nil
		}
	}
	earlier.Generation, earlier.Bucket = newest.Generation, newest.Bucket-1
	switch {
	case newest.Generation == 0:
		return nil
	case past.Units > 0:
		past.Generation = newest.Generation
		return []quota.Counter{past, newest}
	case earlier.Units == 0:
		return []quota.Counter{newest}
	}
	return []quota.Counter{earlier, newest}
}
