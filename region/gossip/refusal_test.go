package gossip_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/region/gossip"
)

// value sums an instrument's points that have the attribute value, 0 when there are none.
func value(t *testing.T, reader *metric.ManualReader, name, attr string) float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				sum += points(m.Data, attr)
			}
		}
	}
	return sum
}

func points(data metricdata.Aggregation, attr string) float64 {
	sum := 0.0
	add := func(set attribute.Set, v float64) {
		for _, kv := range set.ToSlice() {
			if kv.Value.AsString() == attr {
				sum += v
			}
		}
		if attr == "" {
			sum += v
		}
	}
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value)
		}
	}
	return sum
}

func metered() (*metric.ManualReader, func(*gossip.Options)) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	return reader, func(o *gossip.Options) { o.Meter = provider.Meter("gossip") }
}

func withKey(b byte) func(*gossip.Options) {
	return func(o *gossip.Options) { o.Key = bytes.Repeat([]byte{b}, 32) }
}

// Processes of other deployments that know every address never appear, nor do they see anybody.
func TestOthersNeverAppear(t *testing.T) {
	for _, row := range []struct {
		reason, region string
		change         func(*gossip.Options)
		blind          bool // the other sees nobody either
	}{
		{"label", "r3", func(o *gossip.Options) { o.Cluster = "staging" }, true},
		{"label", "r3", func(o *gossip.Options) { o.Cluster = "" }, true},
		{"key", "r3", withKey(2), true},
		{"key", "r3", func(o *gossip.Options) { o.Key = nil }, true},
		{"region", "unknown", func(*gossip.Options) {}, false},
	} {
		t.Run(row.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.seeds = []string{address(1), address(2), address(3)}
				reader, meter := metered()
				ps := []*process{
					w.start("r1", "a", address(1), withKey(1), meter),
					w.start("r2", "a", address(2), withKey(1)),
				}
				other := w.start(row.region, "a", address(3), withKey(1), row.change)
				w.await(10*s, func() bool { return whole(ps, 2) })
				for range 120 {
					time.Sleep(s)
					synctest.Wait()
					if !whole(ps, 2) || len(ps[0].Members()) != 2 {
						t.Fatalf("members are %v, want the two", ps[0].Members())
					}
					if row.blind && other.count(gossip.Alive) != 1 {
						t.Fatalf("the other sees %v", other.Members())
					}
				}
				if got := value(t, reader, "regiond.gossip.refused", row.reason); got == 0 {
					t.Error("nobody counted the other")
				}
				if got := ps[0].log.count("level=WARN"); got > 2 {
					t.Errorf("%d warnings in two minutes, want one for the seed and one for the key", got)
				}
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.seeds = []string{address(1), address(2), address(3), address(4)}
		reader, meter := metered()
		p := w.start("r1", "a", address(1), meter)
		q, r := w.start("r2", "a", address(2)), w.start("r3", "a", address(3))
		w.await(10*s, func() bool { return whole([]*process{p, q, r}, 3) })
		q.crash()
		r.stop()
		time.Sleep(time.Minute)
		for _, row := range []struct {
			name, attr string
			want       float64
		}{
			{"regiond.gossip.members", "alive", 1},
			{"regiond.gossip.members", "dead", 2},
			{"regiond.config.drift", "", 0},
			{"regiond.gossip.rejoins", "unresolved", 0},
		} {
			if got := value(t, reader, row.name, row.attr); got != row.want {
				t.Errorf("%s %s is %v, want %v", row.name, row.attr, got, row.want)
			}
		}
		for _, result := range []string{"joined", "failed"} {
			if value(t, reader, "regiond.gossip.rejoins", result) == 0 {
				t.Errorf("no call has %s", result)
			}
		}
	})
}
