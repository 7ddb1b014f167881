//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
)

// TestEnvoy has an Envoy in each region ask over gRPC with deadlines of 20 ms.
func TestEnvoy(t *testing.T) {
	envoy := with(func(o *chaos.Options) { o.Envoy = true })
	proxied := envoy
	proxied.Proxy = true
	run(t, []scenario{
		{"RedisKilled", chaos.Scenario{
			World: envoy, Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.Redis, us) }, Rate: 300,
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeRedis, us), Modes: away(), Forgets: []string{us},
		}},
		// Slower than Envoy waits, and not so slow that a fail mode may answer over HTTP.
		{"RedisSlow", chaos.Scenario{
			World: proxied, Fault: func(w *chaos.World) chaos.Fault { return w.SlowRedis(us, 20*time.Millisecond) }, Rate: 300,
			Lasts: 3 * time.Second, Unmoved: chaos.Names(), Busy: us,
		}},
		{"NATSKilledEverywhere", chaos.Scenario{
			World: envoy, Fault: func(w *chaos.World) chaos.Fault { return w.Kill(chaos.NATS, chaos.Names()...) }, Rate: 300,
			Lasts: 3 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
		{"PartitionWhole", chaos.Scenario{
			World: envoy, Fault: func(w *chaos.World) chaos.Fault { return w.Partition([]string{eu}, []string{us}, []string{ap}) }, Rate: 300,
			Lasts: 4 * time.Second, Notice: within(chaos.NoticeSilence, eu, us, ap), Again: chaos.AgainRedialled,
		}},
	})
}
