//go:build unix

package daemon

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/redisserver"
)

// benchPolicies is the topology's one policy, with its limit in that scope.
func benchPolicies(scope quota.Scope) []quota.Policy {
	l := benchLimit()
	l.Scope = scope
	return []quota.Policy{{Name: "standard", Limits: []quota.Limit{l}}}
}

func benchScopes() []quota.Scope { return []quota.Scope{quota.ScopeRegion, quota.ScopeGlobal} }

func newBenchLimiter(b *testing.B, store limiter.Store, metrics *limiter.Metrics, scope quota.Scope, g limiter.Global) *limiter.Limiter {
	b.Helper()
	l, err := limiter.New(limiter.Options{
		Store: store, Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
		Config: limiter.Config{
			Policies: benchPolicies(scope), Default: &limiter.Tenant{Policy: "standard"}, MaxUnknown: 1_000_000, Global: g,
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkScript is the time that Redis spends in the deciding script, by its own
// account: one limit, one check a call, all admitted, many partitions.
func BenchmarkScript(b *testing.B) {
	for _, scope := range benchScopes() {
		b.Run(scope.String(), func(b *testing.B) {
			srv := redisserver.Start(b, redisserver.Options{})
			metrics, err := limiter.NewMetrics(noop.Meter{})
			if err != nil {
				b.Fatal(err)
			}
			store, err := limiter.NewRedisStore(limiter.RedisOptions{
				Addrs: []string{srv.Addr()}, Budget: 4 * time.Second, Logger: slog.New(slog.DiscardHandler),
			}, metrics)
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			l := newBenchLimiter(b, store, metrics, scope, nil)
			checkAll(b, l, 2_000) // loads the script and makes the keys
			before := scriptTime(b, srv)
			calls := srv.Calls(b, "evalsha")
			n := 0
			for b.Loop() {
				n++
				checkOne(b, l, n%2_000)
			}
			calls = srv.Calls(b, "evalsha") - calls
			b.ReportMetric(float64(scriptTime(b, srv)-before)/float64(calls), "us/script")
		})
	}
}

func checkAll(b *testing.B, l *limiter.Limiter, tenants int) {
	b.Helper()
	for i := range tenants {
		checkOne(b, l, i)
	}
}

func checkOne(b *testing.B, l *limiter.Limiter, tenant int) {
	b.Helper()
	d, err := l.Check(context.Background(), quota.Request{Tenant: benchTenant(tenant), Cost: 1})
	if err != nil || d.Mode != quota.ModeGlobal {
		b.Fatalf("%v, %v because of %q", err, d.Mode, d.Reason)
	}
}

// scriptTime is how many µs Redis has spent in scripts.
func scriptTime(b *testing.B, srv *redisserver.Server) int64 {
	b.Helper()
	info, err := srv.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, rest, _ = strings.Cut(rest, "usec=")
	text, _, _ := strings.Cut(rest, ",")
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		b.Fatalf("INFO commandstats: %v", err)
	}
	return us
}

// newBenchGlobal is what one region knows of two others: so many partitions, in two
// buckets each. Its time stands still, so that nobody falls silent.
func newBenchGlobal(b *testing.B, partitions int) *global.Ceilings {
	b.Helper()
	const now = 10 * time.Second
	self := time.Now().UnixMicro()
	top, _, err := region.Parse("bench", []byte(benchTopology("127.0.0.1:1", "127.0.0.1:2", benchStandard())))
	if err != nil {
		b.Fatal(err)
	}
	g, err := global.New(global.Options{
		Self: quota.Process{Region: benchSelf, Instance: "one", Boot: self},
		Now:  func() time.Duration { return now }, TimeUS: func() int64 { return self },
		Key: wire.NewKey(nil, benchCluster), Topology: top,
	})
	if err != nil {
		b.Fatal(err)
	}
	cd := newBenchCrowded(benchCrowd{Count: partitions, Buckets: 2}, g.Ledger(), func() int64 { return self })
	for _, name := range benchPeers() {
		if err := cd.told(name, now); err != nil {
			b.Fatal(err)
		}
	}
	g.See(seenAll(b, now, g.Units()))
	if mode, reason := g.View().Mode(quota.FailShare); mode != quota.ModeGlobal {
		b.Fatalf("the mode is %v because of %v", mode, reason)
	}
	return g
}

// seenAll is the view of a region to which all others are fresh.
func seenAll(b *testing.B, now time.Duration, units []int64) *view.View {
	b.Helper()
	says := seesAll()
	t := view.Topology{Units: units}
	for _, name := range append([]string{benchSelf}, benchPeers()...) {
		t.Weights = append(t.Weights, quota.Weight{Region: name, Weight: 1})
	}
	viewer, err := view.New(view.Options{Self: benchSelf}, t)
	if err != nil {
		b.Fatal(err)
	}
	v, step := (*view.View)(nil), 500*time.Millisecond
	for at := step; at <= now; at += step {
		in := view.Input{Now: at}
		for _, name := range benchPeers() {
			in.Processes = append(in.Processes, view.Process{
				Region: name, Instance: "one", Boot: 1, Heard: at, Acked: at, Beats: int(at / step),
				Members: says.Members, Topology: says.Topology, Digested: true,
			})
		}
		v, _ = viewer.Observe(in)
	}
	return v
}

// BenchmarkCeiling is what a global limit asks of the other rooms before a decision.
func BenchmarkCeiling(b *testing.B) {
	const partitions = 100_000
	g := newBenchGlobal(b, partitions)
	p := benchPolicies(quota.ScopeGlobal)[0]
	cd := newBenchCrowded(benchCrowd{}, g.Ledger(), func() int64 { return time.Now().UnixMicro() })
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = cd.total(i * benchStride % partitions)
	}
	if c := g.Ceiling(&p, &p.Limits[0], keys[1], false); c.Units >= 600 || c.Mode != quota.ModeGlobal {
		b.Fatalf("the ceiling is %+v, although the others have used something", c)
	}
	perCall(b, func(n int) { g.Ceiling(&p, &p.Limits[0], keys[n%len(keys)], false) })
}

// BenchmarkDecision is what a decision costs outside of the store: the store that it
// asks keeps usage in memory and is asked by one caller.
func BenchmarkDecision(b *testing.B) {
	for _, scope := range benchScopes() {
		b.Run(scope.String(), func(b *testing.B) {
			metrics, err := limiter.NewMetrics(noop.Meter{})
			if err != nil {
				b.Fatal(err)
			}
			const tenants = 20_000
			l := newBenchLimiter(b, limiter.NewMemoryStore(limiter.MemoryOptions{}), metrics, scope, newBenchGlobal(b, 100_000))
			checkAll(b, l, tenants)
			perCall(b, func(n int) { checkOne(b, l, n*benchStride%tenants) })
		})
	}
}

// BenchmarkBytes is what a changed partition takes on the wire, all of the message
// included: a tick of 100,000 partitions as the ledger gives it.
func BenchmarkBytes(b *testing.B) {
	now := time.Duration(0)
	us := time.Now().UnixMicro()
	l, err := ledger.New(ledger.Options{
		Self: benchSelf, Boot: us, Now: func() time.Duration { return now },
		Limit: func(string) (int64, bool) { return 600, true }, Regions: func() int { return 3 },
	})
	if err != nil {
		b.Fatal(err)
	}
	cd := newBenchCrowded(benchCrowd{Count: 100_000, Changed: 1_000, Buckets: 1}, l, func() int64 { return us })
	cd.fill()
	size, entries := 0, 0
	for b.Loop() {
		cd.change(cd.Changed)
		groups := l.Take(wire.MaxEntries, true)
		for i := range groups {
			groups[i].Sort()
			entries += len(groups[i].IDs)
		}
		for _, message := range wire.Split(groups, wire.MaxEntries, wire.MaxGroupBytes) {
			u := wire.Usage{From: quota.Process{Region: benchSelf, Instance: "eu-west-0", Boot: us}, Seq: 1, TimeUS: us, Groups: message}
			size += len(wire.AppendUsage(nil, &u))
		}
	}
	b.ReportMetric(float64(size)/float64(entries), "bytes/change")
	b.ReportMetric(float64(entries)/float64(b.N), "changes/tick")
}
