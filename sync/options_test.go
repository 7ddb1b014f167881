package sync_test

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
)

var (
	_ meshsync.Counters = (*ledger.Ledger)(nil)
	_ meshsync.Counters = (*counters)(nil)
)

func TestOptions(t *testing.T) {
	now := func() time.Duration { return 0 }
	good := func() meshsync.Options {
		return meshsync.Options{
			Members: members.New(quota.Process{Region: "eu", Instance: "a", Boot: 1}), Secret: secret(t), Bus: meshtest.NewNetwork(1).Join("eu"),
			Counters: (*ledger.Ledger)(nil), Now: now, TimeUS: func() int64 { return 1 },
			Known: func(string) bool { return true }, Regions: func() []string { return nil }, View: func() meshsync.Advertised { return meshsync.Advertised{} },
			Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
		}
	}
	if _, err := meshsync.New(good()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Members", "Secret", "Bus", "Counters", "Now", "TimeUS", "Known", "Regions", "View", "Logger", "Meter"} {
		o := good()
		reflect.ValueOf(&o).Elem().FieldByName(name).SetZero()
		if _, err := meshsync.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// Metrics of a mesh that works, of a silent region, and of a bus that is down.
func TestMetrics(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		eu.counters.Admit(1, eu.cell(1))
		sleep(time.Second)
		us.kill()
		sleep(9 * time.Second)
		for name, labels := range map[string][]string{
			"regiond.sync.published":           {"kind", "usage", "kind", "snapshot", "kind", "heartbeat", "kind", "request"},
			"regiond.sync.published_bytes":     {"kind", "usage"},
			"regiond.sync.received":            {"kind", "request", "region", "us", "region", "ap"},
			"regiond.sync.received_bytes":      {"region", "ap"},
			"regiond.sync.snapshots_merged":    {"region", "us", "region", "ap"},
			"regiond.sync.snapshots_published": {"", ""},
		} {
			for i := 0; i < len(labels); i += 2 {
				if eu.counter(name, labels[i], labels[i+1]) < 1 {
					t.Errorf("%s{%s=%s} counts nothing", name, labels[i], labels[i+1])
				}
			}
		}
		if errs := eu.counter("regiond.sync.publish_errors", "", ""); errs != 0 {
			t.Errorf("%d messages were not taken", errs)
		}
		eu.bus.Down()
		eu.counters.Admit(1, eu.cell(1)) // is tried at every tick
		sleep(time.Second)
		if errs := eu.counter("regiond.sync.publish_errors", "", ""); errs < 9 {
			t.Errorf("a second without a bus, %d messages were not taken", errs)
		}
		ages := map[string]float64{}
		for _, p := range eu.metric("regiond.sync.peer_age").(metricdata.Gauge[float64]).DataPoints {
			region, _ := p.Attributes.Value("region")
			ages[region.AsString()] = p.Value
		}
		if len(ages) != 2 || ages["us"] < 9 || ages["us"] > 11 || ages["ap"] < 1 || ages["ap"] > 2 {
			t.Errorf("ages in seconds: %v", ages)
		}
	})
}
