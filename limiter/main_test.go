package limiter_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

func TestMain(m *testing.M) { limitertest.Main(m) }

// rig is a Limiter with all that it needs to run, and its metrics.
type rig struct {
	*limiter.Limiter
	reader *metric.ManualReader
	store  store.Store
}

// redisRig is a rig on the Redis at addr, probed as in production.
func redisRig(t testing.TB, addr string, c limiter.Config, budget time.Duration) *rig {
	t.Helper()
	return optionsRig(t, redisstore.Options{Addrs: []string{addr}, Budget: budget}, limiter.Options{Config: c})
}

// optionsRig is a rig on a redisstore.Store.
func optionsRig(t testing.TB, r redisstore.Options, o limiter.Options) *rig {
	t.Helper()
	meter, reader := readMeter(t)
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	r.Meter, o.Meter = meter, meter
	s, err := redisstore.New(r)
	if err != nil {
		t.Fatal(err)
	}
	limitertest.KeepRunning(t, s)
	o.Store = s
	made := newRig(t, o)
	made.reader = reader
	return made
}

// memoryRig is a rig on a Store; now moves both, nil for the true time.
func memoryRig(t testing.TB, c limiter.Config, now func() time.Time) *rig {
	t.Helper()
	return newRig(t, limiter.Options{Config: c, Now: now})
}

// newRig is a rig of options, and of what they lack: a memory store under their clock, a meter, and a logger of nothing.
func newRig(t testing.TB, o limiter.Options) *rig {
	t.Helper()
	r := &rig{}
	if o.Meter == nil {
		o.Meter, r.reader = readMeter(t)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Store == nil {
		m := memstore.Options{}
		if o.Now != nil {
			m.Now = func() int64 { return o.Now().UnixMicro() }
		}
		o.Store = memstore.New(m)
	}
	var err error
	if r.Limiter, err = limiter.New(o); err != nil {
		t.Fatal(err)
	}
	r.store = o.Store
	return r
}

// Close has nothing to close.
func (r *rig) Close() error { return nil }

// atRest is a clock that stands.
func atRest() time.Time { return time.Unix(1_795_198_405, 0) }

func readMeter(t testing.TB) (api.Meter, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	return metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"), reader
}

// ok is of a call that may not fail.
func ok(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is what a call returns that may not fail.
func must[T any](v T, err error) func(t rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%+v: %v", v, err)
		}
		return v
	}
}

// check asks for cost on behalf of a tenant under its own policy, or under
// another as in "acme/strict".
func (r *rig) check(t rapid.TB, tenant string, cost int64) quota.Decision {
	t.Helper()
	tenant, policy, _ := strings.Cut(tenant, "/")
	return must(r.Check(context.Background(), quota.Request{Tenant: tenant, Policy: policy, Cost: cost}))(t)
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
	total := int64(0)
	switch data := r.collected(t)[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			if hasLabels(p.Attributes, labels) {
				total += p.Value
			}
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			if hasLabels(p.Attributes, labels) {
				total += int64(p.Value)
			}
		}
	}
	return total
}

func hasLabels(set attribute.Set, labels []string) bool {
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		found := false
		for _, kv := range set.ToSlice() {
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
