//go:build linux

package daemon

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// floodMost is how many tenants that nobody has listed are invented, unless the
	// time runs out: floodRounds turns of floodTurn each, and as many of knownTurn in
	// which those are asked for that are known.
	floodMost   = 10_000_000
	floodRounds = 5
	floodTurn   = 9 * time.Second
	knownTurn   = 3 * time.Second
	// floodConns ask for floodBatch at a time, which is as fast as it goes. Meanwhile
	// floodProbes a second ask for one of floodKnown tenants.
	floodConns  = 8
	floodBatch  = 20
	floodProbes = 200
	floodKnown  = 1_000
)

// BenchmarkFlood is what millions of invented tenants do to a regiond that counts a
// hundred thousand apart: how large it becomes, and how much longer a known tenant
// waits than under the same load from tenants that are known, too. Run it with -benchtime 1x.
func BenchmarkFlood(b *testing.B) {
	s := newBenchStage(b, benchCrowd{}, 1)
	s.policies = "policies:\n  - {name: wide, limits: [{name: sustained, units: 100000, per: 1m}]}\n" +
		"tenants: {default: {policy: wide}}\nmax_unknown: 100000\n"
	sc := s.open(b, false)
	defer sc.close()
	probe := newRawClient(b, sc.one.addrs[0], rawConns, rawChecks("k", "wide", floodKnown), wantExact)
	defer probe.close()
	known := newRawClient(b, sc.one.addrs[0], floodConns, rawBatches(doorTenants, floodBatch), `"results"`)
	defer known.close()
	flood := newRawClient(b, sc.one.addrs[0], floodConns, rawBatches(floodBatch, floodBatch), `"results"`)
	defer flood.close()
	var invented atomic.Int64
	flood.change = func(request []byte) { invent(request, invented.Add(floodBatch)-floodBatch) }
	probe.saturate(b, benchLead) // they are counted apart, as those who come first are
	for b.Loop() {
		var added, alone, beside []float64
		var rss, answers, took float64
		for range floodRounds {
			a := beneath(b, known, probe, knownTurn)
			before := invented.Load()
			f := beneath(b, flood, probe, floodTurn)
			answers, took = answers+float64(invented.Load()-before), took+f.took.Seconds()
			p, q := ms(quantile(a.waits, 0.99)), ms(quantile(f.waits, 0.99))
			added, alone, beside = append(added, q-p), append(alone, p), append(beside, q)
			rss = max(rss, sc.metric(b, "process_resident_memory_bytes", "")/(1<<20))
			if invented.Load() >= floodMost {
				break
			}
		}
		b.ReportMetric(float64(invented.Load()), "tenants")
		b.ReportMetric(answers/took, "tenants/s")
		b.ReportMetric(rss, "rss-MiB")
		b.ReportMetric(median(added), "p99-added-ms")
		b.ReportMetric(median(alone), "p99-known-ms")
		b.ReportMetric(median(beside), "p99-flood-ms")
	}
}

// beneath is what a probe came to beneath a load.
func beneath(b *testing.B, load, probe *rawClient, long time.Duration) rawCame {
	b.Helper()
	var loading sync.WaitGroup
	var err error
	loading.Go(func() { _, err = load.ask(long) })
	came := probe.keep(b, floodProbes, long)
	loading.Wait()
	if err != nil {
		b.Fatal(err)
	}
	return came
}

// invent replaces the tenants of a batch by others that were never asked for: the
// seven digits behind each t.
func invent(request []byte, first int64) {
	const mark = `{"tenant":"t`
	for n := first; ; n++ {
		at := bytes.Index(request, []byte(mark))
		if at < 0 {
			return
		}
		request = request[at+len(mark):]
		// Coprime with ten million, so that all are asked for once before any is again.
		copy(request, fmt.Sprintf("%07d", n*7_654_321%floodMost))
	}
}

// TestBenchInvent: no tenant is invented twice.
func TestBenchInvent(t *testing.T) {
	seen := map[string]bool{}
	for first := int64(0); first < 1_000; first += floodBatch {
		request := rawBatches(floodBatch, floodBatch)[0]
		size := len(request)
		invent(request, first)
		for i, part := range bytes.Split(request, []byte(`{"tenant":"`)) {
			if i > 0 {
				seen[string(part[:8])] = true
			}
		}
		if len(request) != size || !bytes.HasSuffix(request, []byte("}]}")) {
			t.Fatalf("it became %s", request)
		}
	}
	if len(seen) != 1_000 {
		t.Errorf("%d tenants, want 1000", len(seen))
	}
}
