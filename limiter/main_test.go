package limiter_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it logs each refused connection, of which there are many here on purpose
	// go-redis goes on dialling a refusing server for up to a second after Close.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// mute is a go-redis logger that drops everything.
type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// rig is a Limiter with all that it needs to run, and its metrics.
type rig struct {
	*limiter.Limiter
	reader *metric.ManualReader
	store  limiter.Store
}

// redisRig is a rig on the Redis at addr, probed as in production.
func redisRig(t testing.TB, addr string, c limiter.Config, budget time.Duration) *rig {
	t.Helper()
	metrics, reader := readMetrics(t)
	store, err := limiter.NewRedisStore(limiter.RedisOptions{Addrs: []string{addr}, Budget: budget, Logger: slog.New(slog.DiscardHandler)}, metrics)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := store.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		store.Close()
	})
	return storeRig(t, store, c, metrics, reader, nil)
}

// memoryRig is a rig on a MemoryStore; now moves both, nil for the true time.
func memoryRig(t testing.TB, c limiter.Config, now func() time.Time) *rig {
	t.Helper()
	metrics, reader := readMetrics(t)
	o := limiter.MemoryOptions{}
	if now != nil {
		o.Now = func() int64 { return now().UnixMicro() }
	}
	return storeRig(t, limiter.NewMemoryStore(o), c, metrics, reader, now)
}

func storeRig(t testing.TB, store limiter.Store, c limiter.Config, metrics *limiter.Metrics, reader *metric.ManualReader, now func() time.Time) *rig {
	t.Helper()
	l, err := limiter.New(limiter.Options{Store: store, Config: c, Logger: slog.New(slog.DiscardHandler), Metrics: metrics, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Limiter: l, reader: reader, store: store}
}

func readMetrics(t testing.TB) (*limiter.Metrics, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	metrics, err := limiter.NewMetrics(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	return metrics, reader
}

// check asks for cost on behalf of a tenant under its own policy, or under
// another as in "acme/strict".
func (r *rig) check(t rapid.TB, tenant string, cost int64) quota.Decision {
	t.Helper()
	tenant, policy, _ := strings.Cut(tenant, "/")
	d, err := r.Check(context.Background(), quota.Request{Tenant: tenant, Policy: policy, Cost: cost})
	if err != nil {
		t.Fatalf("check %s: %v", tenant, err)
	}
	return d
}

// admits asks for cost 1 until the first denial and returns how often it was
// allowed; more than most would be a limit that does not limit.
func (r *rig) admits(t testing.TB, tenant string, most int) int {
	t.Helper()
	for n := range most + 1 {
		if !r.check(t, tenant, 1).Allowed {
			return n
		}
	}
	t.Fatalf("%s was allowed more than %d times", tenant, most)
	return 0
}

// collected returns what a scrape would see now, by name.
func (r *rig) collected(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// count is the sum over the series of a counter or gauge that have all the
// labels, given as "key=value".
func (r *rig) count(t testing.TB, name string, labels ...string) int64 {
	t.Helper()
	var points []metricdata.DataPoint[int64]
	switch data := r.collected(t)[name].Data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	}
	total := int64(0)
	for _, p := range points {
		if hasLabels(p, labels) {
			total += p.Value
		}
	}
	return total
}

func hasLabels(p metricdata.DataPoint[int64], labels []string) bool {
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		found := false
		for _, kv := range p.Attributes.ToSlice() {
			found = found || string(kv.Key) == key && kv.Value.AsString() == value
		}
		if !found {
			return false
		}
	}
	return true
}

// onePolicy is a configuration in which every tenant has one policy.
func onePolicy(p quota.Policy) limiter.Config {
	if p.Name == "" {
		p.Name = "standard"
	}
	if p.EnforcePercent == 0 {
		p.EnforcePercent = -1
	}
	return limiter.Config{
		Hash: "h", Region: "local", Policies: []quota.Policy{p},
		Default: &quota.Tenant{Policy: p.Name}, MaxUnknown: 1 << 20,
	}
}

func perMinute(units int64) []quota.Limit {
	return []quota.Limit{{Name: "minute", Units: units, Window: time.Minute}}
}
