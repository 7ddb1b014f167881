//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
)

// api measures checks over HTTP beside a handler that only gives the same answer. All
// share the processors, the client included.
func api(s *stage, out figures) {
	r := s.serve(setup{})[0]
	b := s.bare(r)
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
	alternate(rounds, 5_000, 2*time.Second, pacedBare, paced)
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
	b := s.bare(r)
	young := s.load("young logs", r.process, r.redis, checks("y", hour, busy), wantAllowed)
	old := s.load("warm logs", r.process, r.redis, checks("o", second, busy), wantAllowed)
	naive := s.load("naive script, warm", b, r.redis, requests("/naive-second", "n", second, busy, 1), wantAllowed)
	old.client.saturate(3 * warmFor) // a log without end has 1,000 units by then
	alternate(rounds, saturated, warmFor, young, old, naive)
	out["warm-ratio"], out["warm-redis-ratio"] = old.ratio(young, rate), old.ratio(naive, redisTime)
	out["warm-rate"], out["warm-redis"] = old.median(rate), old.median(redisTime)
}

// scopes measures a global limit beside a regional one, in one of three regions.
func scopes(s *stage, out figures) {
	r := s.serve(setup{regions: 3})[0]
	regional := s.load("regional, in a mesh", r.process, r.redis, checks("t", wide, tenants), wantGlobal)
	global := s.load("global, in a mesh", r.process, r.redis, checks("t", global, tenants), wantGlobal)
	alternate(rounds, saturated, turnFor, regional, global)
	out["scopes-ratio"] = global.ratio(regional, rate)
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
