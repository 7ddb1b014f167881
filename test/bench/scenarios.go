//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// What a decision contains.
const (
	wantAllowed = `"allowed":true`
	wantDenied  = `"allowed":false`
	wantGlobal  = `"mode":"global"`
	wantExact   = `"basis":"exact"`
)

// api measures checks over HTTP beside a handler that only gives the same answer. All
// share the processors, the client included.
func api(s *stage, out figures) {
	r := s.serve(setup{})[0]
	b := s.bare(r, wide)
	base := func(name, path, want string) *load {
		return s.load(name, b, r.redis, requests(path, "t", wide, tenants, 1), want)
	}
	ask := func(name, prefix string, k kind, n int, want string) *load {
		return s.load(name, r.process, r.redis, checks(prefix, k, n), want)
	}
	bare, bareDenied := base("bare, allowed", "/allowed", wantAllowed), base("bare, denied", "/denied", wantDenied)
	naive, skip := base("naive script", "/naive", wantAllowed), base("net/http alone", "/skip", wantAllowed)
	allowed, rejected := ask("allowed", "t", wide, tenants, wantAllowed), ask("denied", "t", narrow, denied, "")
	hot := ask("one tenant", "h", wide, 1, wantAllowed)
	hot.before = func(turn int) { hot.client.requests = checks(fmt.Sprint("h", turn, "x"), wide, 1) }
	three := ask("three windows", "w", windows, tenants, wantAllowed)
	batch := s.load("batches of ten", r.process, r.redis, batches("t", wide, tenants, 10), wantAllowed)
	allowed.mallocs, skip.mallocs = true, true
	rejected.client.saturate(warmup) // the first request of each tenant is allowed
	rejected.client.want = []byte(wantDenied)
	alternate(rounds, saturated, turnFor, bare, allowed, hot, three, bareDenied, rejected, batch, naive, skip)
	mallocs := func(t *turn) float64 { return t.mallocs }
	out["allowed-ratio"] = allowed.ratio(bare, rate)
	out["denied-ratio"] = rejected.ratio(bareDenied, rate)
	out["batch-ratio"], out["batch-single-ratio"] = batch.ratio(bare, rate), batch.ratio(allowed, rate)
	out["windows-ratio"] = three.ratio(allowed, rate)
	out["hot-ratio"] = hot.ratio(allowed, rate)
	out["cpu-ratio"] = allowed.ratio(bare, (*turn).total)
	out["redis-ratio"] = allowed.ratio(naive, redisTime)
	out["mallocs"] = allowed.median(mallocs) - skip.median(mallocs)
	out["rate"] = allowed.median(rate)
	out["cpu"] = allowed.median((*turn).total)
	out["cpu-bare"] = bare.median((*turn).total)
	out["redis"] = allowed.median(redisTime)

	paced, pacedBare := ask("5,000/s", "t", wide, tenants, wantAllowed), base("5,000/s, bare", "/allowed", wantAllowed)
	alternate(rounds, perSecond(5_000), 2*time.Second, pacedBare, paced)
	out["p50-ratio"], out["p99-ratio"] = paced.ratio(pacedBare, p50), paced.ratio(pacedBare, p99)
	out["p50"], out["p99"] = paced.median(p50), paced.median(p99)
}

const (
	// busy tenants have each a tenth of a limit of 1,000 or more in its window, and never all of it.
	busy = 100
	// warmFor is long enough for a window of a second to be left and entered all the time.
	warmFor = 2 * time.Second
)

// warm measures tenants whose logs are older than their window beside as many whose logs have nothing outside it.
func warm(s *stage, out figures) {
	r := s.serve(setup{})[0]
	b := s.bare(r, wide)
	young := s.load("young logs", r.process, r.redis, checks("y", hour, busy), wantAllowed)
	old := s.load("warm logs", r.process, r.redis, checks("o", second, busy), wantAllowed)
	naive := s.load("naive script, warm", b, r.redis, requests("/naive-second", "n", second, busy, 1), wantAllowed)
	old.client.saturate(3 * warmFor) // a log without end has 1,000 units by then
	alternate(rounds, saturated, warmFor, young, old, naive)
	out["warm-ratio"], out["warm-redis-ratio"] = old.ratio(young, rate), old.ratio(naive, redisTime)
	out["warm-rate"], out["warm-redis"] = old.median(rate), old.median(redisTime)
}

// openHolds is how many reservations of a tenant are open in one of two loads.
const openHolds = 1000

// reservations measures reserves with their settles beside checks, and checks of tenants who hold much beside those of others.
func reservations(s *stage, out figures) {
	r := s.serve(setup{})[0]
	base := s.load("checks", r.process, r.redis, checks("t", wide, tenants), wantAllowed)
	pairs := s.load("reserve, settle", r.process, r.redis, reserves("r", tenants, 10, 2000), wantExact)
	pairs.client.follow = settles()
	alternate(rounds, saturated, turnFor, base, pairs)
	answers := 2 - 1./unsettled // of a reservation, on average
	out["reserve-cpu-ratio"] = answers * pairs.ratio(base, (*turn).total)
	out["reserve-rate"] = pairs.median(rate) / answers

	nothing := s.load("checks, nothing held", r.process, r.redis, checks("n", tokens, busy), wantAllowed)
	much := s.load("checks, 1,000 holds", r.process, r.redis, checks("m", tokens, busy), wantAllowed)
	fill := s.load("reserves", r.process, r.redis, reserves("m", busy, 1, 60_000), wantExact)
	for fill.seen.decided < openHolds*busy {
		fill.run(saturated, warmup)
	}
	alternate(rounds, saturated, turnFor, nothing, much)
	out["held-cpu-ratio"] = much.ratio(nothing, (*turn).total)
}

// scopes measures a global limit beside a regional one, in one of three regions.
func scopes(s *stage, out figures) {
	r := s.serve(setup{regions: 3})[0]
	regional := s.load("regional, in a mesh", r.process, r.redis, checks("t", wide, tenants), wantGlobal)
	global := s.load("global, in a mesh", r.process, r.redis, checks("t", global, tenants), wantGlobal)
	alternate(rounds, saturated, turnFor, regional, global)
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
	side := func(name string, regions []*region) (l *load, turn func()) {
		l = s.load(name, regions[0].process, regions[0].redis, checks("t", global, tenants), wantGlobal)
		peer := func(r *region) func() {
			c := s.load(name+", a peer", r.process, r.redis, batches("t", global, 100_000, 20), wantGlobal)
			return func() { c.run(perSecond(meshBatches), 6*time.Second) }
		}
		one, two := peer(regions[1]), peer(regions[2])
		return l, func() {
			together(one, two, func() {
				l.client.pace(meshRate, 1, time.Second) // the peers' first changes arrive
				l.run(perSecond(meshRate), 4*time.Second)
			})
		}
	}
	alone, first := side("without a mesh", slices.Concat(s.serve(setup{}), s.serve(setup{}), s.serve(setup{})))
	meshed, second := side("in a busy mesh", s.serve(setup{regions: 3}))
	for round := range 5 {
		turns := []func(){first, second}
		turns[round%2]()
		turns[1-round%2]()
	}
	out["mesh-p99-ratio"] = meshed.ratio(alone, p99)
}

// telemetry measures checks with metrics and one trace in a hundred beside neither.
func telemetry(s *stage, out figures) {
	var exports atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		exports.Add(1)
	}))
	defer collector.Close()
	off := s.serve(setup{env: []string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT="}})[0]
	on := s.serve(setup{env: []string{
		"OTEL_SDK_DISABLED=false", "OTEL_METRICS_EXPORTER=", "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL,
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
	}})[0]
	without := s.load("without telemetry", off.process, off.redis, checks("t", wide, tenants), wantAllowed)
	with := s.load("with telemetry", on.process, on.redis, checks("t", wide, tenants), wantAllowed)
	alternate(2*rounds, saturated, turnFor, without, with)
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
	regions := s.serve(setup{regions: 3})
	for _, r := range regions {
		s.load("use of "+r.name, r.process, r.redis, batches("t", global, idlePartitions, 20), wantGlobal).run(saturated, 10*time.Second)
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
	r := s.serve(setup{maxUnknown: 100_000})[0]
	with := func(name string, conns int, requests [][]byte) *load {
		return s.loadOf(conns, name, r.process, r.redis, requests, wantAllowed)
	}
	known := with("known tenants", floodConns, batches("t", wide, tenants, floodBatch))
	invented := with("invented tenants", floodConns, batches("t", wide, floodBatch, floodBatch))
	beside := [2]*load{with("a known tenant beside known", conns, checks("k", wide, 1_000)), with("a known tenant beside invented", conns, checks("k", wide, 1_000))}
	var count atomic.Int64
	invented.client.rewrite = func(request []byte) { invent(request, count.Add(floodBatch)-floodBatch) }
	invented.client.want = nil        // in time their shared partition is used up
	beside[0].client.saturate(warmup) // its tenants are among those that are counted apart
	rss := 0.0
	for range 5 {
		together(func() { known.run(saturated, 3*time.Second) }, func() { beside[0].run(perSecond(200), 3*time.Second) })
		together(func() { invented.run(saturated, 9*time.Second) }, func() { beside[1].run(perSecond(200), 9*time.Second) })
		rss = max(rss, r.metric("process_resident_memory_bytes")/(1<<20))
	}
	out["flood-tenants"] = float64(count.Load())
	out["flood-rss"], out["flood-p99-added"] = rss, beside[1].median(p99)-beside[0].median(p99)
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
