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

// recordTTL is IDEMPOTENCY_TTL of lua/general.lua.
const recordTTL = 2 * time.Minute

// Remember implements store.Rememberer: it writes records as lua/general.lua does. One that is too old
// to be replayed is left out.
func (s *Store) Remember(ctx context.Context, all []*store.Admission, ago func(*store.Admission) int64) ([]bool, error) {
	kept := make([]bool, len(all))
	by := map[*node][]int{}
	for i, a := range all {
		n, err := s.nodeSet.of(ctx, a.Record)
		if err != nil {
			return nil, err
		}
		by[n] = append(by[n], i)
	}
	for n, places := range by {
		now, err := n.client.Time(ctx).Result()
		if err != nil {
			return nil, classify(err)
		}
		pipe := n.client.Pipeline()
		replies := make([]*redis.BoolCmd, len(places))
		for at, i := range places {
			age := ago(all[i])
			if left := recordTTL - time.Duration(age)*time.Microsecond; left > recordTTL/2 {
				replies[at] = pipe.SetNX(ctx, all[i].Record, recordText(all[i], now.UnixMicro()-age), left)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, classify(err)
		}
		for at, i := range places {
			kept[i] = replies[at] != nil && replies[at].Val()
		}
	}
	return kept, nil
}

// recordText is an admission at us as decide in lua/general.lua writes it. Usage counters are 0: those in
// a replay are not read.
func recordText(a *store.Admission, us int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", us, a.Print)
	for i, l := range a.Limits {
		fmt.Fprintf(&b, " %d 0 %d", l.Remaining, l.ResetUS)
		if limit := a.Plan.Limits[i]; limit.Scope == quota.ScopeGlobal {
			b.WriteString(" 0 0 0 0")
			if limit.MaxOvershoot > 0 {
				fmt.Fprintf(&b, " %d", a.Ceilings[i])
			}
		}
	}
	return b.String()
}
