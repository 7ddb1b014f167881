package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/redisserver"
)

// series returns the kind of a metric and the label sets that it has, sorted.
func series(m metricdata.Metrics) (kind string, labels []string) {
	var sets []attribute.Set
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "counter"
		if !data.IsMonotonic {
			kind = "sum"
		}
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		kind = "histogram"
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	for _, set := range sets {
		var text []string
		for _, kv := range set.ToSlice() {
			text = append(text, string(kv.Key)+"="+kv.Value.AsString())
		}
		labels = append(labels, strings.Join(text, " "))
	}
	slices.Sort(labels)
	return kind, labels
}

// TestMetricsCatalogue is what dashboards are built on: every instrument of the
// package with its unit and, after one of everything that can happen, its series.
func TestMetricsCatalogue(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	c := manyPolicies(2)
	c.MaxUnknown, c.Tenants = 0, map[string]quota.Tenant{"acme": {Policy: "standard"}}
	r := redisRig(t, proxy.Addr(), c, 150*time.Millisecond)
	limitertest.Eventually(t, 2*time.Second, "redis decides", func() bool {
		return r.check(t, "acme/share-observe", 1).WouldDeny // and has admitted two by then
	})
	admin(t, srv, "SCRIPT", "FLUSH")
	r.check(t, "acme/share-enforce", 2)
	r.check(t, "acme/share-enforce", 1)
	r.check(t, "acme/share-enforce", 1) // from memory
	r.check(t, "globex/share-enforce", 1)
	if _, err := r.Report(context.Background(), quota.Request{Tenant: "acme", Policy: "open-enforce", Cost: 1}); err != nil {
		t.Fatal(err)
	}
	admin(t, srv, "SET", "rl:{acme}:l:closed-enforce:::", "not a log")
	r.check(t, "acme/closed-enforce", 1)
	proxy.Arm(faultproxy.Fault{Kind: faultproxy.Drop, Reply: 1, Scripts: true})
	r.check(t, "acme/open-observe", 1)
	if _, err := r.Peek(context.Background(), quota.Request{Tenant: "acme", Policy: "closed-observe", Cost: 1}); err != nil {
		t.Fatal(err) // and it is no decision
	}
	limitertest.Eventually(t, 3*time.Second, "a probe has compared the budget with what calls need", func() bool {
		_, ok := r.collected(t)["regiond.redis.need"]
		return ok
	})
	got := r.collected(t)
	for _, row := range []struct {
		name, kind, unit string
		labels           []string
	}{
		{"regiond.decisions", "counter", "{decision}", []string{
			"basis=cached decision=denied mode=global policy=share-enforce",
			"basis=closed decision=denied mode=local policy=closed-enforce reason=redis_refused",
			"basis=exact decision=allowed mode=global policy=share-enforce",
			"basis=exact decision=allowed mode=global policy=share-observe",
			"basis=exact decision=denied mode=global policy=share-enforce",
			"basis=exact decision=reported mode=global policy=open-enforce",
			"basis=exact decision=would_deny mode=global policy=share-observe",
			"basis=open decision=allowed mode=local policy=open-observe reason=redis_down",
		}},
		{"regiond.decision.duration", "histogram", "s", []string{""}},
		{"regiond.near_misses", "counter", "{decision}", []string{
			"limit=minute policy=share-enforce", "limit=minute policy=share-observe",
		}},
		{"regiond.limit.units", "gauge", "{unit}", []string{
			"limit=minute policy=closed-enforce", "limit=minute policy=closed-observe", "limit=minute policy=open-enforce",
			"limit=minute policy=open-observe", "limit=minute policy=share-enforce", "limit=minute policy=share-observe", "limit=minute policy=standard",
		}},
		{"regiond.unknown_overflow", "counter", "{decision}", []string{""}},
		{"regiond.values_overflow", "counter", "{decision}", []string{""}},
		{"regiond.policy_from.unknown", "counter", "{decision}", []string{""}},
		{"regiond.unknown_partitions", "gauge", "{partition}", []string{""}},
		{"regiond.settles_pending", "gauge", "{settle}", []string{""}},
		{"regiond.denials_remembered", "gauge", "{denial}", []string{""}},
		{"regiond.partition_faults", "counter", "{decision}", []string{""}},
		{"regiond.redis.duration", "histogram", "s", []string{""}},
		{"regiond.redis.batch_checks", "histogram", "{check}", []string{""}},
		{"regiond.redis.failures", "counter", "{call}", []string{"reason=redis_down", "reason=redis_refused", "reason=redis_timeout"}},
		{"regiond.redis.ambiguous", "counter", "{check}", []string{""}},
		{"regiond.redis.script_loads", "counter", "{load}", []string{""}},
		{"regiond.redis.outages", "counter", "{outage}", []string{""}},
		{"regiond.redis.need", "gauge", "s", []string{""}},
		{"regiond.redis.losses", "counter", "{loss}", []string{""}},
		{"regiond.redis.breaker_open", "gauge", "", []string{""}},
	} {
		m, ok := got[row.name]
		kind, labels := series(m)
		if !ok || kind != row.kind || m.Unit != row.unit || m.Description == "" {
			t.Errorf("%s: a %s in %q, want a %s in %q", row.name, kind, m.Unit, row.kind, row.unit)
		}
		if !slices.Equal(labels, row.labels) {
			t.Errorf("%s has the series\n%s\nwant\n%s", row.name, strings.Join(labels, "\n"), strings.Join(row.labels, "\n"))
		}
		delete(got, row.name)
	}
	for name := range got {
		t.Errorf("%s is not in the catalogue", name)
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
				if _, err := r.Check(context.Background(), q); err != nil {
					t.Fatal(err)
				}
			}
		}
		var text strings.Builder
		for _, m := range r.collected(outer) {
			_, labels := series(m)
			fmt.Fprintln(&text, m.Name, m.Unit, m.Description, labels)
			if err := json.NewEncoder(&text).Encode(m.Data); err != nil {
				t.Fatal(err)
			}
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

func admin(t *testing.T, srv *redisserver.Server, args ...any) {
	t.Helper()
	if err := srv.Client().Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}
