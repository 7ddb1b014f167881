//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

const benchBatch = 100 // checks of one call, which then is full

const (
	// storeRounds is how often two ways alternate.
	storeRounds = 5
	// storeCallers call concurrently, each for one decision.
	storeCallers = 64
	storeTurn    = 500 * time.Millisecond
)

// benchStore is a Store and its server.
type benchStore struct {
	*Store
	redis *redisserver.Server
}

func newBenchStore(b *testing.B, options redisserver.Options) *benchStore {
	b.Helper()
	srv := redisserver.Start(b, options)
	s, err := New(Options{Addrs: []string{srv.Addr()}, Budget: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := srv.Client().ScriptLoad(context.Background(), decideScript(nowLua, "").source).Err(); err != nil {
		b.Fatal(err)
	}
	return &benchStore{s, srv}
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

// decideAs decides calls and fails unless each verdict is outcome.
func (s *benchStore) decideAs(b *testing.B, outcome byte, calls []store.Call, verdicts []store.Verdict) {
	var err error
	s.Decide(context.Background(), calls, verdicts[:len(calls)])
	for i := range calls {
		if err == nil && verdicts[i].Outcome != outcome {
			err = fmt.Errorf("a verdict of %c: %w", verdicts[i].Outcome, verdicts[i].Err)
		}
	}
	if err != nil {
		b.Error(err)
	}
}

// info is the sum of some fields of INFO.
func (s *benchStore) info(b *testing.B, section string, fields ...string) float64 {
	b.Helper()
	text, err := s.redis.Client().Info(context.Background(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for _, field := range fields {
		_, rest, found := strings.Cut(text, field)
		end := strings.IndexAny(rest, ",\r")
		if !found || end < 0 {
			b.Fatalf("INFO %s has no %s", section, field)
		}
		v, err := strconv.ParseFloat(rest[:end], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += v
	}
	return sum
}

// scriptUS is the time that Redis reports for scripts, in µs.
func (s *benchStore) scriptUS(b *testing.B) float64 {
	b.Helper()
	return s.info(b, "commandstats", fmt.Sprintf("cmdstat_evalsha:calls=%d,usec=", s.redis.Calls(b, "evalsha")))
}

func middle(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// benchTurn is what a turn measured.
type benchTurn struct {
	decisions float64 // a second
	cpu       float64 // µs of this process and of Redis for each
}

// turn runs all callers for storeTurn; decide gets the numbers of the caller and the call.
func (s *benchStore) turn(b *testing.B, decide func(caller, n int)) benchTurn {
	b.Helper()
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano())/1000 + 1e6*s.info(b, "cpu", "used_cpu_sys:", "used_cpu_user:")
	}
	before, began := cpu(), time.Now()
	end := began.Add(storeTurn)
	var callers sync.WaitGroup
	counts := make([]int, storeCallers)
	for c := range storeCallers {
		callers.Go(func() {
			for time.Now().Before(end) {
				decide(c, counts[c])
				counts[c]++
			}
		})
	}
	callers.Wait()
	took, n := time.Since(began).Seconds(), 0
	for _, count := range counts {
		n += count
	}
	return benchTurn{decisions: float64(n) / took, cpu: (cpu() - before) / float64(n)}
}

// BenchmarkCollector compares 64 callers whose checks share script calls with 64 that send
// a script call each: decisions per second, and processor time of client and Redis. Run it
// with -benchtime 1x.
func BenchmarkCollector(b *testing.B) {
	s := newBenchStore(b, redisserver.Options{})
	plain := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), PoolSize: storeCallers})
	defer plain.Close()
	calls := benchCalls(100_000, quota.Limit{Units: 1_000, Window: time.Minute})
	of := func(caller, n int) []store.Call {
		i := (caller*len(calls)/storeCallers + n) % len(calls)
		return calls[i : i+1]
	}
	sha := decideScript(nowLua, "").sha
	alone := func(caller, n int) {
		ask, verdicts := of(caller, n), make([]store.Verdict, 1)
		reply, err := plain.Do(context.Background(), appendCalls([]any{"EVALSHA", sha}, "n", ask, time.Now().UnixMicro(), asIs)...).Result()
		if err == nil {
			err = parseReplies(reply, "n", ask, verdicts)
		}
		if err != nil || verdicts[0].Outcome != store.Admitted {
			b.Errorf("a verdict of %c: %v", verdicts[0].Outcome, err)
		}
	}
	together := func(caller, n int) {
		s.decideAs(b, store.Admitted, of(caller, n), make([]store.Verdict, 1))
	}
	for b.Loop() {
		var decisions, cpu []float64
		var rate, cost [2][]float64
		for round := range storeRounds {
			var turns [2]benchTurn
			for i := range turns {
				way := (i + round) % 2
				turns[way] = s.turn(b, []func(caller, n int){alone, together}[way])
			}
			decisions, cpu = append(decisions, turns[1].decisions/turns[0].decisions), append(cpu, turns[1].cpu/turns[0].cpu)
			for way := range turns {
				rate[way], cost[way] = append(rate[way], turns[way].decisions), append(cost[way], turns[way].cpu)
			}
		}
		b.ReportMetric(middle(decisions), "decisions-ratio")
		b.ReportMetric(middle(cpu), "cpu-ratio")
		b.ReportMetric(middle(rate[0]), "decisions/s-alone")
		b.ReportMetric(middle(rate[1]), "decisions/s-together")
		b.ReportMetric(middle(cost[0]), "cpu-us-alone")
		b.ReportMetric(middle(cost[1]), "cpu-us-together")
	}
}

// BenchmarkWindows compares the time that Redis reports for three windows of one partition
// with that for one, in full batches, all admitted.
func BenchmarkWindows(b *testing.B) {
	s := newBenchStore(b, redisserver.Options{})
	const tenants, batches = 2_000, 150
	ways := [][]store.Call{
		benchCalls(tenants, quota.Limit{Units: 1_000, Window: time.Minute}),
		benchCalls(tenants, quota.Limit{Units: 100, Window: time.Second}, quota.Limit{Units: 1_000, Window: time.Minute}, quota.Limit{Units: 10_000, Window: time.Hour}),
	}
	verdicts := make([]store.Verdict, benchBatch)
	for b.Loop() {
		var ratios []float64
		var took [2][]float64
		for round := range storeRounds {
			var us [2]float64
			for i := range ways {
				way := (i + round) % 2
				if err := s.redis.Client().FlushDB(context.Background()).Err(); err != nil {
					b.Fatal(err)
				}
				before := 0.0
				for n := range 2 * batches {
					if n == batches { // keys are there
						before = s.scriptUS(b)
					}
					at := n * benchBatch % (tenants - benchBatch)
					s.decideAs(b, store.Admitted, ways[way][at:at+benchBatch], verdicts)
				}
				us[way] = (s.scriptUS(b) - before) / (batches * benchBatch)
				took[way] = append(took[way], us[way])
			}
			ratios = append(ratios, us[1]/us[0])
		}
		b.ReportMetric(middle(ratios), "us-ratio")
		b.ReportMetric(middle(took[0]), "us/one")
		b.ReportMetric(middle(took[1]), "us/three")
	}
}

// BenchmarkEntry compares the bytes per admission in a log with those in the sorted set that
// is commonly used: a stamp in µs as score, and a unique member.
func BenchmarkEntry(b *testing.B) {
	const entries = 40_000 // in all
	for _, each := range []int{100, 1_000, 10_000} {
		b.Run(strconv.Itoa(each), func(b *testing.B) {
			s := newBenchStore(b, redisserver.Options{})
			client, ctx := s.redis.Client(), context.Background()
			calls := benchCalls(entries/each, quota.Limit{Units: int64(each), Window: time.Hour})
			asked, verdicts := make([]store.Call, benchBatch), make([]store.Verdict, benchBatch)
			used := func() float64 { return s.info(b, "memory", "used_memory:") }
			for b.Loop() {
				var ratios, ours, theirs []float64
				for range storeRounds {
					before := used()
					for n := 0; n < entries; n += benchBatch {
						batch := asked[:min(benchBatch, entries-n)]
						for i := range batch {
							batch[i] = calls[(n+i)%len(calls)]
						}
						s.decideAs(b, store.Admitted, batch, verdicts)
					}
					log := used() - before
					if err := client.FlushDB(ctx).Err(); err != nil {
						b.Fatal(err)
					}
					before = used()
					now := time.Now().UnixMicro()
					for n := 0; n < entries; n += 1_000 {
						pipe := client.Pipeline()
						for i := n; i < n+1_000; i++ {
							us := now + int64(i)*1_000/int64(len(calls))
							pipe.ZAdd(ctx, calls[i%len(calls)].Keys[0], redis.Z{Score: float64(us), Member: fmt.Sprintf("%d-%d", us/1000, i)})
						}
						for i := 0; n == 0 && i < len(calls); i++ {
							pipe.PExpire(ctx, calls[i].Keys[0], 2*time.Hour)
						}
						if _, err := pipe.Exec(ctx); err != nil {
							b.Fatal(err)
						}
					}
					set := used() - before
					if err := client.FlushDB(ctx).Err(); err != nil {
						b.Fatal(err)
					}
					ratios, ours, theirs = append(ratios, log/set), append(ours, log/entries), append(theirs, set/entries)
				}
				b.ReportMetric(middle(ratios), "bytes-ratio")
				b.ReportMetric(middle(ours), "bytes/entry")
				b.ReportMetric(middle(theirs), "bytes/member")
			}
		})
	}
}

// BenchmarkExpired is the longest script call on a log of 100,000 expired admissions, for each
// operation, and after the limit was lowered.
func BenchmarkExpired(b *testing.B) {
	s := newBenchStore(b, redisserver.Options{})
	client, ctx := s.redis.Client(), context.Background()
	const entries = 100_000
	wide := benchCalls(1, quota.Limit{Units: entries, Window: time.Second})[0]
	low := benchCalls(1, quota.Limit{Units: 10, Window: time.Second})[0]
	as := func(c store.Call, op store.Op, cost int64) store.Call {
		c.Op, c.Cost = op, cost
		return c
	}
	kinds := []store.Call{
		as(wide, store.OpCheck, 1), as(wide, store.OpCheck, 1_000), as(wide, store.OpPeek, 1), as(wide, store.OpReport, 1_000),
		as(low, store.OpCheck, 1), as(low, store.OpCheck, 5), as(low, store.OpReport, 50),
	}
	stamps := make([]any, entries)
	old := time.Now().Add(-time.Hour).UnixMicro()
	for i := range stamps {
		stamps[i] = old + int64(i)
	}
	verdicts := make([]store.Verdict, 1)
	s.decideAs(b, store.Admitted, kinds[:1], verdicts) // INFO lists only commands that were called
	for b.Loop() {
		worst, longest := 0.0, 0.0
		for i := range kinds {
			var took []float64
			for range storeRounds {
				err := client.Del(ctx, wide.Keys[0]).Err()
				for n := 0; err == nil && n < entries; n += 10_000 {
					err = client.RPush(ctx, wide.Keys[0], stamps[n:n+10_000]...).Err()
				}
				if err != nil {
					b.Fatal(err)
				}
				before := s.scriptUS(b)
				s.decideAs(b, store.Admitted, kinds[i:i+1], verdicts)
				took = append(took, s.scriptUS(b)-before)
			}
			worst, longest = max(worst, middle(took)), max(longest, slices.Max(took))
			b.Logf("%c of %d under a limit of %d: %v µs", kinds[i].Op, kinds[i].Cost, kinds[i].Plan.Limits[0].Units, took)
		}
		b.ReportMetric(worst/1000, "ms/call")
		b.ReportMetric(longest/1000, "ms/longest-call")
	}
}

// asIs leaves bounds as they are.
func asIs(b quota.Bound) quota.Bound { return b }
