package limiter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/quota"
)

const (
	// totalsPage is how many keys one step of reading totals looks at, and
	// totalsPause what Redis has for others in between: a hundred thousand keys
	// take a second and a hundredth of its time.
	totalsPage  = 1000
	totalsPause = 10 * time.Millisecond
)

// TotalKey is what the key of a usage total says.
type TotalKey struct {
	Policy, Limit string
	BucketUS      int64
}

// ParseTotalKey reads a key that Shape.Totals made. It is false for any other.
func ParseTotalKey(key string) (TotalKey, bool) {
	_, rest, ok := strings.Cut(key, "}")
	if !ok {
		return TotalKey{}, false
	}
	_, rest, ok = strings.Cut(rest, ":")
	if !ok || !strings.HasPrefix(rest, totalMark) {
		return TotalKey{}, false
	}
	name, rest, _ := strings.Cut(rest[len(totalMark):], ":")
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return TotalKey{}, false
	}
	bucketUS, err := strconv.ParseInt(name[dot+1:], 10, 64)
	policy, _, ok := strings.Cut(rest, ":")
	if err != nil || bucketUS <= 0 || !ok {
		return TotalKey{}, false
	}
	return TotalKey{Policy: policy, Limit: name[:dot], BucketUS: bucketUS}, true
}

// Totals reads all live usage totals back and hands them to yield, the buckets of
// a key oldest first, with the store's TIME. It is how a process that has just started
// knows what was admitted before, and it is in no hurry: others are served meanwhile. What is
// charged while it reads may or may not be in it.
func (s *RedisStore) Totals(ctx context.Context, yield func(key string, totals []quota.Counter, storeUS int64)) error {
	nodes := s.fleet.current()
	if len(nodes) == 0 {
		return fmt.Errorf("read usage totals: %w", errNoMap)
	}
	for _, n := range nodes {
		if err := n.totals(ctx, yield); err != nil {
			return fmt.Errorf("read usage totals: %w", err)
		}
	}
	return nil
}

func (n *node) totals(ctx context.Context, yield func(string, []quota.Counter, int64)) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := n.client.Scan(ctx, cursor, "rl:*:"+totalMark+"*", totalsPage).Result()
		if err == nil {
			err = n.readTotals(ctx, keys, yield)
		}
		if err != nil {
			return classify(err)
		}
		cursor = next
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(totalsPause):
		}
	}
	return nil
}

func (n *node) readTotals(ctx context.Context, keys []string, yield func(string, []quota.Counter, int64)) error {
	now, err := n.timeUS(ctx)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, ok := ParseTotalKey(key)
		return !ok
	})
	if len(keys) == 0 {
		return nil
	}
	// Not MGET: a key of another type would fail them all.
	pipe := n.client.Pipeline()
	values := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		values[i] = pipe.Get(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil && classify(err).Reason != quota.ReasonRedisRefused {
		return err // a refusal is about one key, which has gone meanwhile or is not ours
	}
	for i, key := range keys {
		if totals := parseTotals(values[i].Val()); totals != nil {
			yield(key, totals, now)
		}
	}
	return nil
}

// parseTotals reads 'epoch:bucket:units:earlier:…', see lua/totals.lua; nil for
// what we cannot have written. Buckets without units are left out, but the newest.
func parseTotals(text string) []quota.Counter {
	var epoch, bucket int64
	var totals []quota.Counter
	for i, field := range strings.Split(text, ":") {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 || i > 2+quota.MaxGlobalBuckets {
			return nil
		}
		switch {
		case i == 0:
			epoch = n
		case i == 1:
			bucket = n
		case i == 2 || n > 0:
			totals = append(totals, quota.Counter{Generation: epoch, Bucket: bucket - int64(i-2), Units: min(n, quota.MaxCounter)})
		}
	}
	slices.Reverse(totals)
	return totals
}
