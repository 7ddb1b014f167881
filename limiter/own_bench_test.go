package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// BenchmarkRecords measures what an Idempotency-Key of 36 characters costs: in Redis, and in a process
// up to its bound.
func BenchmarkRecords(b *testing.B) {
	const keys = 60_000
	for b.Loop() {
		redis := redisserver.Start(b, redisserver.Options{})
		s := limiter.NewRedis(b, redis.Addr(), "")
		limitertest.KeepRunning(b, s)
		limitertest.Eventually(b, 10*time.Second, "redis is probed", s.Probed)
		l, err := limiter.New(limiter.Options{Store: s, Config: onePolicy(quota.Policy{Limits: perMinute(100_000)}), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		heap := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		used := func() float64 {
			_, rest, _ := strings.Cut(redis.Client().Info(context.Background(), "memory").Val(), "used_memory:")
			var n float64
			if _, err := fmt.Sscan(rest, &n); err != nil {
				b.Fatal(err)
			}
			return n
		}
		before, beforeRedis := heap(), used()
		for first := 0; first < keys; first += 100 {
			all := make([]quota.Request, 100)
			for i := range all {
				all[i] = quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: fmt.Sprintf("%036d", first+i)}
			}
			for _, o := range l.CheckBatch(context.Background(), all) {
				if o.Err != nil || !o.Decision.Allowed {
					b.Fatal(o)
				}
			}
		}
		b.ReportMetric((heap()-before)/keys, "B/key")
		b.ReportMetric((used()-beforeRedis)/keys, "redis-B/key")
		runtime.KeepAlive(l)
	}
}
