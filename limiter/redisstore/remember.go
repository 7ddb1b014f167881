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

// Remember implements store.Rememberer: it writes records as lua/general.lua does, and drops one that is too
// old to be replayed. A server that is away keeps back its own alone, as does a slot on its way.
func (s *Store) Remember(ctx context.Context, all []*store.Admission, ago func(*store.Admission) int64, known func(i int, kept bool)) {
	by := map[*node][]int{}
	for i, a := range all {
		if n, err := s.nodeSet.of(ctx, a.Record); err == nil && !n.breaker.open() {
			by[n] = append(by[n], i)
		}
	}
	for n, places := range by {
		now, err := n.client.Time(ctx).Result()
		if err != nil {
			continue
		}
		pipe := n.client.Pipeline()
		replies := make([]*redis.BoolCmd, len(places))
		for at, i := range places {
			age := ago(all[i])
			if left := recordTTL - time.Duration(age)*time.Microsecond; left > recordTTL/2 {
				replies[at] = pipe.SetNX(ctx, all[i].Record, recordText(all[i], now.UnixMicro()-age), left)
			}
		}
		_, _ = pipe.Exec(ctx) // each reply has its own error
		for at, i := range places {
			if r := replies[at]; r == nil || r.Err() == nil {
				known(i, r != nil && r.Val())
			}
		}
	}
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
