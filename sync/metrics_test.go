package sync_test

import (
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
)

var (
	_ meshsync.Counters = (*ledger.Ledger)(nil)
	_ meshsync.Counters = (*counters)(nil)
)

// Metrics of a mesh that works, of a silent region, and of a bus that is down.
func TestMetrics(t *testing.T) {
	meet(t, func(_ *world, eu, silent, _ *node) {
		eu.counters.Admit(1, eu.cell(1))
		sleep(time.Second)
		silent.kill()
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
		if errs := eu.counter("regiond.sync.publish_errors"); errs != 0 {
			t.Errorf("%d messages were not taken", errs)
		}
		eu.bus.Down()
		eu.counters.Admit(1, eu.cell(1)) // is tried at every tick
		sleep(time.Second)
		if errs := eu.counter("regiond.sync.publish_errors"); errs < 9 {
			t.Errorf("a second without a bus, %d messages were not taken", errs)
		}
		us, ap := eu.metrics.Of(t, "regiond.sync.peer_age", "region", "us"), eu.metrics.Of(t, "regiond.sync.peer_age", "region", "ap")
		if us < 9 || us > 11 || ap < 1 || ap > 2 {
			t.Errorf("ages in seconds: of us %v, of ap %v", us, ap)
		}
	})
}
