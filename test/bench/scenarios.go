//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"
)

const (
	rounds  = 7
	turnFor = 600 * time.Millisecond
	// tenants take turns; of denied ones there are few, so that all are remembered.
	tenants = 10_000
	denied  = 100
)

// What an answer contains.
const (
	wantAllowed = `"allowed":true`
	wantDenied  = `"allowed":false`
	wantExact   = `"basis":"exact"`
	wantGlobal  = `"mode":"global"`
	wantBatch   = `"results"`
)

// api measures checks over HTTP beside a handler that only gives the same answer. All
// share the processors, the client included.
func api(s *stage, out figures) {
	r := s.serve(1, 1_000_000)[0]
	b := s.bare(r)
	base := func(name, path, want string) *load {
		requests := checks("t", "wide", tenants)
		for i, q := range requests {
			requests[i] = bytes.Replace(q, []byte("/v1/check"), []byte(path), 1)
		}
		return newLoad(name, b, r.redis, requests, want)
	}
	ask := func(name, prefix, policy string, n int, want string) *load {
		return newLoad(name, r.process, r.redis, checks(prefix, policy, n), want)
	}
	bare, bareDenied := base("bare, allowed", "/allowed", wantAllowed), base("bare, denied", "/denied", wantDenied)
	naive, skip := base("naive script", "/naive", wantAllowed), base("net/http alone", "/skip", wantAllowed)
	allowed, rejected := ask("allowed", "t", "wide", tenants, wantExact), ask("denied", "t", "narrow", denied, wantDenied)
	hot := ask("one tenant", "h", "wide", 1, wantExact)
	hot.before = func(turn int) { hot.client.requests = checks(fmt.Sprint("h", turn, "x"), "wide", 1) }
	batch := newLoad("batches", r.process, r.redis, batches("t", "wide", tenants, 10), wantExact)
	batch.each = 10
	allowed.mallocs, skip.mallocs = true, true
	rejected.client.want = nil
	rejected.client.saturate(warmup) // the first request of each tenant is allowed
	rejected.client.want = []byte(wantDenied)
	alternate(rounds, 0, turnFor, bare, allowed, hot, bareDenied, rejected, batch, naive, skip)
	mallocs := func(t *turn) float64 { return t.mallocs }
	out["allowed-ratio"] = allowed.ratio(bare, rate)
	out["denied-ratio"] = rejected.ratio(bareDenied, rate)
	out["batch-ratio"] = batch.ratio(allowed, rate)
	out["hot-ratio"] = hot.ratio(allowed, rate)
	out["cpu-ratio"] = allowed.ratio(bare, (*turn).total)
	out["redis-ratio"] = allowed.ratio(naive, redisTime)
	out["mallocs"] = allowed.median(mallocs) - skip.median(mallocs)
	out["rate"] = allowed.median(rate)
	out["cpu"] = allowed.median((*turn).total)
	out["cpu-bare"] = bare.median((*turn).total)
	out["redis"] = allowed.median(redisTime)

	paced, pacedBare := ask("paced", "t", "wide", tenants, wantExact), base("paced, bare", "/allowed", wantAllowed)
	alternate(rounds, 5_000, 2*time.Second, pacedBare, paced)
	out["p50-ratio"], out["p99-ratio"] = paced.ratio(pacedBare, p50), paced.ratio(pacedBare, p99)
	out["p50"], out["p99"] = paced.median(p50), paced.median(p99)
}

// scopes measures a global limit beside a regional one, in one of three regions.
func scopes(s *stage, out figures) {
	r := s.serve(3, 1_000_000)[0]
	regional := newLoad("regional", r.process, r.redis, checks("t", "wide", tenants), wantGlobal)
	global := newLoad("global", r.process, r.redis, checks("t", "global", tenants), wantGlobal)
	alternate(rounds, 0, turnFor, regional, global)
	out["scopes-ratio"] = global.ratio(regional, rate)
}

// Traffic of the busy mesh: measured checks per second, and per second batches of
// twenty in each of the other regions. That is a thousand changes of a partition in
// each of their ticks.
const (
	meshRate    = 2_000
	meshBatches = 500
)

// besideMesh measures checks in a region that exchanges usage with two busy ones, beside
// the same three regions that do not know each other.
func besideMesh(s *stage, out figures) {
	alone, meshed := []*region{s.serve(1, 1_000_000)[0], s.serve(1, 1_000_000)[0], s.serve(1, 1_000_000)[0]}, s.serve(3, 1_000_000)
	measure := func(regions []*region) *load {
		return newLoad("region", regions[0].process, regions[0].redis, checks("t", "global", tenants), wantGlobal)
	}
	busy := func(r *region) *client {
		return newClient(r.http, conns, batches("t", "global", 100_000, 20), wantBatch)
	}
	type side struct {
		load  *load
		peers []*client
	}
	sides := []side{{measure(alone), []*client{busy(alone[1]), busy(alone[2])}}, {measure(meshed), []*client{busy(meshed[1]), busy(meshed[2])}}}
	for round := range 2 * 5 {
		side := sides[(round+round/2)%2]
		stop := background(6*time.Second, meshBatches, side.peers...)
		side.load.client.pace(meshRate, time.Second) // the peers' first changes arrive
		turn := side.load.run(meshRate, 4*time.Second)
		stop()
		side.load.turns = append(side.load.turns, turn)
	}
	out["mesh-p99-ratio"] = sides[1].load.ratio(sides[0].load, p99)
}

// background paces clients for that long; stop waits for them.
func background(d time.Duration, perSecond int, clients ...*client) (stop func()) {
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(func() { _ = (&thread{client: c, conns: c.conns}).run(d, perSecond) })
	}
	return running.Wait
}

// telemetry measures checks with metrics and one trace in a hundred beside neither.
func telemetry(s *stage, out figures) {
	var exports atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		exports.Add(1)
	}))
	defer collector.Close()
	off := s.serve(1, 1_000_000, "OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=")[0]
	on := s.serve(1, 1_000_000, "OTEL_SDK_DISABLED=false", "OTEL_METRICS_EXPORTER=", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01")[0]
	without := newLoad("without telemetry", off.process, off.redis, checks("t", "wide", tenants), wantExact)
	with := newLoad("with telemetry", on.process, on.redis, checks("t", "wide", tenants), wantExact)
	alternate(2*rounds, 0, turnFor, without, with)
	if exports.Load() == 0 {
		check(fmt.Errorf("no spans were exported"))
	}
	out["telemetry-ratio"] = with.ratio(without, rate)
}

// idlePartitions are known of each of three regions; each is used once.
const idlePartitions = 200_000

// idle measures the processor time of a regiond without requests that knows many
// partitions.
func idle(s *stage, out figures) {
	regions := s.serve(3, 1_000_000)
	for _, r := range regions {
		c := newClient(r.http, conns, batches("t", "global", idlePartitions, 20), wantBatch)
		c.saturate(10 * time.Second)
		c.close()
	}
	r := regions[0]
	eventually(func() error {
		if n := r.metric("regiond_sync_partitions"); n < idlePartitions {
			return fmt.Errorf("it knows %.0f partitions", n)
		}
		return nil
	})
	time.Sleep(5 * time.Second) // the backlog is published and garbage is collected
	var share []float64
	for range 5 {
		cpu, began := r.cpu(), time.Now()
		time.Sleep(2 * time.Second)
		share = append(share, (r.cpu()-cpu)/float64(time.Since(began).Microseconds())*100)
	}
	out["idle"] = median(share)
}

const (
	// floodMost is how many tenants can be invented: each is used once.
	floodMost  = 10_000_000
	floodConns = 8
	floodBatch = 20
)

// flood measures what millions of invented tenants do to a regiond that counts a
// hundred thousand apart: its memory, and the latency of a known tenant beside that
// under the same load from known tenants.
func flood(s *stage, out figures) {
	r := s.serve(1, 100_000)[0]
	probe := newClient(r.http, conns, checks("k", "wide", 1_000), wantExact)
	known := newClient(r.http, floodConns, batches("t", "wide", tenants, floodBatch), wantBatch)
	invented := newClient(r.http, floodConns, batches("t", "wide", floodBatch, floodBatch), wantBatch)
	var count atomic.Int64
	invented.rewrite = func(request []byte) { invent(request, count.Add(floodBatch)-floodBatch) }
	probe.saturate(warmup) // the probe's tenants are among those that are counted apart
	// beneath is the p99 of the probe beneath a load.
	beneath := func(load *client, d time.Duration) float64 {
		var loading sync.WaitGroup
		loading.Go(func() {
			defer func() { _ = recover() }() // a probe that fails too reports it
			load.saturate(d)
		})
		s := probe.pace(200, d)
		loading.Wait()
		return s.quantile(0.99)
	}
	var added []float64
	rss, flooded := 0.0, 9*time.Second
	for range 5 {
		alone := beneath(known, 3*time.Second)
		added = append(added, beneath(invented, flooded)-alone)
		rss = max(rss, r.metric("process_resident_memory_bytes")/(1<<20))
	}
	out["flood-tenants"] = float64(count.Load())
	out["flood-rss"], out["flood-p99-added"] = rss, median(added)
}

// invent replaces the tenants of a batch, the seven digits after each t, by new ones.
func invent(request []byte, first int64) {
	const mark = `{"tenant":"t`
	for n := first; ; n++ {
		at := bytes.Index(request, []byte(mark))
		if at < 0 {
			return
		}
		request = request[at+len(mark):]
		// The factor is coprime with ten million, so that all come before any repeats.
		copy(request, fmt.Sprintf("%07d", n*7_654_321%floodMost))
	}
}
