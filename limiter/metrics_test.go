package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/quota"
)

// series are the label sets that a counter has, sorted.
func series(m metricdata.Metrics) (all []string) {
	data, _ := m.Data.(metricdata.Sum[int64])
	for _, p := range data.DataPoints {
		var text []string
		for _, kv := range p.Attributes.ToSlice() {
			text = append(text, string(kv.Key)+"="+kv.Value.AsString())
		}
		all = append(all, strings.Join(text, " "))
	}
	slices.Sort(all)
	return all
}

// TestMetricsOfDecisions: each is counted by what became of it, and a peek is none. That the metrics are those of docs/observe.md
// shows internal/daemon.
func TestMetricsOfDecisions(t *testing.T) {
	w := newWeather(t, manyPolicies(2))
	for _, policy := range []string{"share-observe", "share-enforce"} {
		w.check(t, "acme/"+policy, 2)
		w.check(t, "acme/"+policy, 1)
	}
	w.check(t, "acme/share-enforce", 1) // from memory
	must(w.Report(t.Context(), quota.Request{Tenant: "acme", Policy: "open-enforce", Cost: 1}))(t)
	must(w.Peek(t.Context(), quota.Request{Tenant: "acme", Policy: "closed-observe", Cost: 1}))(t)
	w.store.garbled.Store(true)
	w.check(t, "acme/closed-enforce", 1)
	w.fails(quota.ReasonRedisDown, true)
	w.check(t, "acme/open-observe", 1)
	for name, want := range map[string][]string{
		"regiond.decisions": {
			"basis=cached decision=denied mode=global policy=share-enforce",
			"basis=closed decision=denied mode=local policy=closed-enforce reason=redis_refused",
			"basis=exact decision=allowed mode=global policy=share-enforce",
			"basis=exact decision=allowed mode=global policy=share-observe",
			"basis=exact decision=denied mode=global policy=share-enforce",
			"basis=exact decision=reported mode=global policy=open-enforce",
			"basis=exact decision=would_deny mode=global policy=share-observe",
			"basis=open decision=allowed mode=local policy=open-observe reason=redis_down",
		},
		"regiond.near_misses": {"limit=minute policy=share-enforce", "limit=minute policy=share-observe"},
	} {
		if got := series(w.collected(t)[name]); !slices.Equal(got, want) {
			t.Errorf("%s has the series\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// No id of a request ever becomes a label or any other text of a scrape: ids are
// personal, and series of them would be without bound.
func TestMetricsNameNobody(t *testing.T) {
	t.Parallel() // it measures no time
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		p := loginPolicy()
		r := memoryRig(outer, onePolicy(p), nil)
		if rapid.Bool().Draw(t, "away") {
			w := newWeather(outer, onePolicy(p))
			w.fails(quota.ReasonRedisTimeout, true)
			r = w.rig
		}
		// Ids of this alphabet and length are no part of any word in a scrape.
		id := rapid.StringMatching(`[QXZ|@+]{12}`)
		var ids []string
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			tenant, user, key := id.Draw(t, "tenant"), id.Draw(t, "user"), id.Draw(t, "key")
			ids = append(ids, tenant, user, key)
			q := quota.Request{Tenant: tenant, Cost: 1, Dimensions: quota.Dimensions{{Name: "user", Value: user}}}
			if rapid.Bool().Draw(t, "idempotent") {
				q.IdempotencyKey = key
			}
			for range 7 { // beyond the user's limit
				must(r.Check(context.Background(), q))(t)
			}
		}
		var text strings.Builder
		for _, m := range r.collected(outer) {
			fmt.Fprintln(&text, m.Name, m.Unit, m.Description, series(m))
			ok(t, json.NewEncoder(&text).Encode(m.Data))
		}
		if !strings.Contains(text.String(), "policy=standard") {
			t.Fatal("the scrape is empty")
		}
		for _, id := range ids {
			if strings.Contains(text.String(), id) {
				t.Fatalf("the id %s stands in a scrape:\n%s", id, text.String())
			}
		}
	})
}

func TestMetricsUnknownPartitions(t *testing.T) {
	c := onePolicy(quota.Policy{Limits: perMinute(5)})
	c.MaxUnknown = 3
	r := memoryRig(t, c, nil)
	for i, row := range []struct{ live, overflowed int64 }{{1, 0}, {2, 0}, {3, 0}, {3, 1}, {3, 2}} {
		r.check(t, fmt.Sprint("tenant", i), 1)
		live, overflowed := r.count(t, "regiond.unknown_partitions"), r.count(t, "regiond.unknown_overflow")
		if live != row.live || overflowed != row.overflowed {
			t.Errorf("after %d tenants: %d live, %d in overflow, want %d, %d", i+1, live, overflowed, row.live, row.overflowed)
		}
	}
}

// A near miss is an allowed decision that left at most a twentieth of a limit.
func TestMetricsNearMisses(t *testing.T) {
	r := memoryRig(t, onePolicy(quota.Policy{Limits: []quota.Limit{
		{Name: "minute", Units: 40, Window: time.Minute},
		{Name: "hour", Units: 1000, Window: time.Hour},
	}}), nil)
	for _, row := range []struct {
		cost int64
		near int64
	}{
		{37, 0}, // 3 left of 40
		{1, 1},  // 2 left: a twentieth
		{1, 2},
		{5, 2}, // denied: no near miss but a miss
		{1, 3},
	} {
		r.check(t, "acme", row.cost)
		if n := r.count(t, "regiond.near_misses", "limit=minute"); n != row.near {
			t.Errorf("after %d more: %d near misses, want %d", row.cost, n, row.near)
		}
	}
	if n := r.count(t, "regiond.near_misses", "limit=hour"); n != 0 {
		t.Errorf("%d near misses of a limit that is hardly touched", n)
	}
}

// TestScrapeWhileALimiterBegins: a reader may be there before the limiter. The race detector judges.
func TestScrapeWhileALimiterBegins(t *testing.T) {
	for range 200 {
		meter, reader := readMeter(t)
		ctx, cancel := context.WithCancel(t.Context())
		var scraper sync.WaitGroup
		scraper.Go(func() {
			for ctx.Err() == nil {
				_ = reader.Collect(ctx, &metricdata.ResourceMetrics{})
			}
		})
		o := limiter.Options{Store: memstore.New(memstore.Options{}), Config: onePolicy(completions()), Logger: slog.New(slog.DiscardHandler), Meter: meter}
		must(limiter.New(o))(t)
		cancel()
		scraper.Wait()
	}
}
