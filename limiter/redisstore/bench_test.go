package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// benchRedis is a server that knows the script.
type benchRedis struct{ *redisserver.Server }

func newBenchRedis(b *testing.B) benchRedis {
	b.Helper()
	srv := redisserver.Start(b, redisserver.Options{})
	ok(b, srv.Client().ScriptLoad(context.Background(), decideScript("", "").source).Err())
	return benchRedis{srv}
}

// benchCalls returns a call for each of tenants, under the same limits.
func benchCalls(tenants int, limits ...quota.Limit) []store.Call {
	var all []*quota.Limit
	for i := range limits {
		limits[i].Name = fmt.Sprint("l", i)
		all = append(all, &limits[i])
	}
	plan := store.NewKeyPlan(all)
	calls := make([]store.Call, tenants)
	for i := range calls {
		calls[i] = limitertest.CallOf(plan, fmt.Sprintf("t%07d", i), 1)
	}
	return calls
}

func middle(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// asIs leaves bounds as they are.
func asIs(b quota.Bound) quota.Bound { return b }

// priced is a kind of check whose Redis time is measured.
type priced struct {
	name   string
	limits []quota.Limit
	cost   int64
	fill   string // entries that each log holds before, "" for none: see fillLogs
	keyed  bool   // with an Idempotency-Key
	denied bool
	share  int64  // of a bounded limit
	lent   int64  // of that
	holds  int    // open under each key before
	ops    string // in turn, in place of checks: reserves of the cost and settles of them
}

// fillLogs puts entries of cost 1 into the first key of each call, half of which are outside
// a window of a minute: plain stamps, weighted ones, plain ones and then as many weighted,
// weighted ones but for one of cost 2, or those of a clock that has stepped back.
func (s benchRedis) fillLogs(b *testing.B, calls []store.Call, kind string, entries int) {
	b.Helper()
	now := s.Time()
	for i := range calls {
		values := make([]any, entries)
		for n := range values {
			at := now - 120_000_000 + int64(n)*120_000_000/int64(entries)
			switch {
			case kind == "heavy" && n > entries*3/4:
				values[n] = fmt.Sprintf("%d:%d:1", at, n+1)
			case kind == "heavy" && n == entries*3/4:
				values[n] = fmt.Sprintf("%d:%d:2", at, n)
			case kind == "heavy":
				values[n] = fmt.Sprintf("%d:%d:1", at, n)
			case kind == "stepped":
				values[n] = fmt.Sprintf("%d+3600000000", at+3_600_000_000)
			case kind == "weighted", kind == "mixed" && n >= entries/2:
				values[n] = fmt.Sprintf("%d:%d:1", at, n)
			default:
				values[n] = at
			}
		}
		ok(b, s.Client().RPush(context.Background(), calls[i].Keys[0], values...).Err())
	}
}

// send runs calls as one script call and fails unless each verdict is outcome.
func (s benchRedis) send(b *testing.B, calls []store.Call, outcome byte) {
	reply, err := s.Client().Do(context.Background(), appendCalls([]any{"EVALSHA", decideScript("", "").sha}, "n", calls, time.Now().UnixMicro(), asIs)...).Result()
	verdicts := make([]store.Verdict, len(calls))
	if err == nil {
		err = parseReplies(reply, "n", calls, verdicts)
	}
	for i := range calls {
		if err == nil && verdicts[i].Outcome != outcome {
			err = fmt.Errorf("a verdict of %c: %w", verdicts[i].Outcome, verdicts[i].Err)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPrices prints the Redis time of a check by kind, in full calls on keys that
// exist, and of a script call with nothing in it. Run it with -benchtime 1x.
func BenchmarkPrices(b *testing.B) {
	const batch, batches, rounds = 64, 40, 5
	minute := quota.Limit{Units: 1_000_000, Window: time.Minute}
	per := func(change func(l *quota.Limit)) quota.Limit {
		l := minute
		change(&l)
		return l
	}
	window := func(w time.Duration) quota.Limit { return per(func(l *quota.Limit) { l.Window = w }) }
	by := func(name string) quota.Limit { return per(func(l *quota.Limit) { l.By = []string{name} }) }
	global := per(func(l *quota.Limit) { l.Scope = quota.ScopeGlobal })
	strict := per(func(l *quota.Limit) { l.Scope, l.MaxOvershoot = quota.ScopeGlobal, quota.Strict })
	tokens := per(func(l *quota.Limit) { l.Counts = quota.CountsTokens })
	full := per(func(l *quota.Limit) { l.Counts, l.Units = quota.CountsTokens, 1001 })
	flight := quota.Limit{Units: quota.MaxHolds, Window: time.Minute, Algorithm: quota.Concurrent}
	one := []quota.Limit{minute}
	kinds := []priced{
		{name: "log", limits: one, cost: 1},
		{name: "log of 10,000", limits: one, cost: 1, fill: "plain"},
		{name: "log of 10,000 weighted", limits: one, cost: 1, fill: "heavy"},
		{name: "log of 10,000, offset", limits: one, cost: 1, fill: "stepped"},
		{name: "log, denied", limits: []quota.Limit{per(func(l *quota.Limit) { l.Units = 1 })}, cost: 1, denied: true},
		{name: "log, 2 limits", limits: []quota.Limit{minute, window(time.Hour)}, cost: 1},
		{name: "log, 3 limits", limits: []quota.Limit{window(time.Second), minute, window(time.Hour)}, cost: 1},
		{name: "2 logs", limits: []quota.Limit{minute, by("a")}, cost: 1},
		{name: "4 logs", limits: []quota.Limit{minute, by("a"), by("b"), by("c")}, cost: 1},
		{name: "8 logs", limits: []quota.Limit{minute, by("a"), by("b"), by("c"), by("d"), by("e"), by("f"), by("g")}, cost: 1},
		{name: "log, cost 2", limits: one, cost: 2},
		{name: "log of 10,000, cost 2", limits: one, cost: 2, fill: "plain"},
		{name: "log of 10,000 weighted, cost 2", limits: one, cost: 2, fill: "weighted"},
		{name: "log of 10,000 mixed, cost 2", limits: one, cost: 2, fill: "mixed"},
		{name: "4 logs, cost 2", limits: []quota.Limit{minute, by("a"), by("b"), by("c")}, cost: 2},
		{name: "window", limits: []quota.Limit{per(func(l *quota.Limit) { l.Algorithm = quota.SlidingWindow })}, cost: 1},
		{name: "gcra", limits: []quota.Limit{per(func(l *quota.Limit) { l.Algorithm = quota.GCRA })}, cost: 1},
		{name: "global log", limits: []quota.Limit{global}, cost: 1},
		{name: "bounded log", limits: []quota.Limit{strict}, cost: 1, share: 1_000_000},
		{name: "bounded log, lent", limits: []quota.Limit{strict}, cost: 1, share: 1_000_000, lent: 30},
		{name: "log, Idempotency-Key", limits: one, cost: 1, keyed: true},
		{name: "tokens", limits: []quota.Limit{tokens}, cost: 1},
		{name: "tokens, 1 hold", limits: []quota.Limit{tokens}, cost: 1, holds: 1},
		{name: "tokens, 1,000 holds", limits: []quota.Limit{tokens}, cost: 1, holds: 1000},
		{name: "tokens, 1,000 holds, denied", limits: []quota.Limit{full}, cost: 1, holds: 1000, denied: true},
		{name: "reserve", limits: []quota.Limit{minute, tokens}, cost: 5, ops: "h"},
		{name: "reserve and settle, each", limits: []quota.Limit{minute, tokens}, cost: 5, ops: "hs"},
		{name: "reserve and settle, 1,000 holds, each", limits: []quota.Limit{minute, tokens}, cost: 5, holds: 1000, ops: "hs"},
		{name: "reserve and settle, concurrent, each", limits: []quota.Limit{minute, tokens, flight}, cost: 5, ops: "hs"},
	}
	s := newBenchRedis(b)
	for _, k := range kinds {
		b.Run(strings.ReplaceAll(k.name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				var full, single []float64
				for range rounds {
					calls := s.prepare(b, k, batch, 10_000)
					full = append(full, s.took(b, k, calls, batch, batches)/batch)
					single = append(single, s.took(b, k, calls, 1, 300))
				}
				b.ReportMetric(middle(full), "us/check")
				b.ReportMetric(middle(single), "us/alone")
				b.ReportMetric(middle(single)-middle(full), "us/call")
			}
		})
	}
}

// prepare empties Redis and returns a call for each of tenants, whose keys exist.
func (s benchRedis) prepare(b *testing.B, k priced, tenants, entries int) []store.Call {
	b.Helper()
	ok(b, s.Client().FlushDB(context.Background()).Err())
	calls := benchCalls(tenants, k.limits...)
	if k.fill != "" {
		s.fillLogs(b, calls, k.fill, entries)
	}
	for n := range calls {
		calls[n].Cost = k.cost
		calls[n].Counters = calls[n].Plan.AppendCounters(nil, calls[n].Keys, fmt.Sprintf("t%07d", n), "standard")
	}
	for n := range calls {
		if k.share > 0 {
			calls[n] = bounded(calls[n], k.share)
		}
		if k.lent > 0 {
			lends := calls[n]
			lends.Op, lends.Loans = store.OpLoans, []store.LoanOp{lendTo("us-east", k.lent)}
			s.send(b, []store.Call{lends}, store.Admitted)
		}
	}
	if k.ops == "" {
		s.send(b, calls, store.Admitted)
	}
	for i := range k.holds {
		s.send(b, reserves(calls, int64(1+i), 1), store.Admitted)
	}
	return calls
}

// reserves are reserves in place of checks.
func reserves(calls []store.Call, id, amount int64) []store.Call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Op, calls[i].Cost, calls[i].Hold = store.OpReserve, amount, store.Hold{ID: id, TTLUS: 120_000_000, KeepUS: 60_000_000}
	}
	return calls
}

// took is the Redis time of a script call with so many of the calls, µs.
func (s benchRedis) took(b *testing.B, k priced, calls []store.Call, size, times int) float64 {
	b.Helper()
	outcome := byte(store.Admitted)
	if k.denied {
		outcome = store.Denied
	}
	_, before := scriptCommands(b, s.Client())
	for n := range times {
		if k.ops != "" {
			s.reservation(b, k, calls, size, n)
			continue
		}
		asked := calls[n%(len(calls)/size)*size:][:size]
		for c := range asked {
			if k.keyed {
				asked[c].Record, asked[c].Print = fmt.Sprint(asked[c].Keys[0], size, n), "p"
			}
		}
		s.send(b, asked, outcome)
	}
	_, after := scriptCommands(b, s.Client())
	return float64(after-before) / float64(times)
}

// reservation sends the n-th call of a kind that reserves: a settle is of what was reserved just before.
func (s benchRedis) reservation(b *testing.B, k priced, calls []store.Call, size, n int) {
	b.Helper()
	at := n / len(k.ops)
	asked := reserves(calls[at%(len(calls)/size)*size:][:size], int64(10_000+1_000_000*size+at), k.cost)
	if k.ops[n%len(k.ops)] == 'h' {
		s.send(b, asked, store.Admitted)
		return
	}
	for i := range asked {
		asked[i].Op, asked[i].Hold.GoneUS = store.OpSettle, store.MaxHoldID
	}
	s.send(b, asked, store.Settled)
}
