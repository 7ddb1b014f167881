package daemon

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/redisserver"
)

// lossy is a region on a Redis of its own that loses data, between two checks.
type lossy struct {
	*testing.T
	redis    *redisserver.Server
	limiter  *limiter.Limiter
	ceilings *view.Ceilings
}

const lossyPolicy = `regions:
  - {name: eu-west, http: "127.0.0.1:0", redis: {embedded: true}, nats: {embedded: true}}
  - {name: us-east, http: "127.0.0.1:0", redis: {embedded: true}, nats: {embedded: true}}
policies:
  - name: standard
    limits: [{name: hour, units: 600, per: 1h, scope: global}]
tenants: {default: {policy: standard}}
`

func newLossy(t *testing.T, redis *redisserver.Server) *lossy {
	top, _, err := region.Parse("lossy.yaml", []byte(lossyPolicy))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := view.NewCeilings(view.CeilingOptions{
		Self: quota.Process{Region: "eu-west", Instance: "one", Boot: began.UnixMicro()}, Key: wire.NewKey(nil, "test"), Topology: top,
		Now: func() time.Duration { return time.Since(began) }, TimeUS: func() int64 { return time.Now().UnixMicro() },
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := redisstore.New(redisstore.Options{Addrs: []string{redis.Addr()}, Budget: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	limitertest.KeepRunning(t, s)
	limitertest.Eventually(t, 10*time.Second, "redis is there", s.Probed)
	l, err := limiter.New(limiter.Options{
		Store: s, Logger: slog.New(slog.DiscardHandler), Config: LimiterConfig(top, "eu-west", c, func() int64 { return 1 }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &lossy{T: t, redis: redis, limiter: l, ceilings: c}
}

func (y *lossy) ask(cost int64) quota.Decision {
	y.Helper()
	d, err := y.limiter.Check(y.Context(), quota.Request{Tenant: "acme", Cost: cost})
	if err != nil {
		y.Fatal(err)
	}
	return d
}

// What a Redis loses is not admitted once more, not even by the check that finds it out.
func TestRedisLosesUsage(t *testing.T) {
	redis := redisserver.Start(t, redisserver.Options{})
	ctx, client := context.Background(), redis.Client()
	dump := func() map[string]string {
		dumped := map[string]string{}
		for _, key := range client.Keys(ctx, "rl:{*").Val() {
			dumped[key] = client.Dump(ctx, key).Val()
		}
		return dumped
	}
	for _, row := range []struct {
		name string
		lose func(early map[string]string)
		left int64 // of the region's share of 300, of which 120 and then 100 are used
	}{
		{"all", func(map[string]string) { client.FlushAll(ctx) }, 80},
		{"the usage counter", func(map[string]string) { client.Del(ctx, client.Keys(ctx, "rl:{*t.*").Val()...) }, 0},
		// All of the counter counts as lost, the 120 that the log still has among it.
		{"its last writes", func(early map[string]string) {
			client.FlushAll(ctx)
			for key, value := range early {
				client.Restore(ctx, key, time.Hour, value)
			}
		}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			client.FlushAll(ctx)
			y := newLossy(t, redis)
			if !y.ask(120).Allowed {
				t.Fatal("a check within the share is denied")
			}
			early := dump()
			if !y.ask(100).Allowed {
				t.Fatal("a check within the share is denied")
			}
			row.lose(early)
			request := quota.Request{Tenant: "acme", Cost: 81}
			for _, o := range y.limiter.CheckBatch(ctx, []quota.Request{request, request}) {
				if o.Err != nil || o.Decision.Allowed || o.Decision.Mode == quota.ModeLocal {
					t.Errorf("81 beyond 220 of 300: %+v", o)
				}
			}
			if d := y.ask(max(1, row.left)); d.Allowed != (row.left > 0) {
				t.Errorf("%d of 300 are left: %+v", row.left, d)
			}
		})
	}
}
