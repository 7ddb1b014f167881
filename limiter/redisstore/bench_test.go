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

// asIs leaves bounds as they are.
func asIs(b quota.Bound) quota.Bound { return b }
