package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// TestLinearizable records every call of 24 clients on three stores and looks
// for one order of them that explains each answer to the last number.
func TestLinearizable(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	stores := []limiter.Store{
		limiter.NewPatientRedis(t, srv.Addr()), limiter.NewPatientRedis(t, srv.Addr()), limiter.NewPatientRedis(t, srv.Addr()),
	}
	q := limitertest.Ask(
		&quota.Limit{Name: "short", Units: 12, Window: 20 * time.Millisecond, Scope: quota.ScopeGlobal},
		&quota.Limit{Name: "long", Units: 30, Window: 80 * time.Millisecond},
	)
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		clients sync.WaitGroup
		start   = time.Now()
	)
	for client := range 24 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(11, uint64(client)))
			for range 60 {
				op := recorded(t, q, stores[client%len(stores)], random, start)
				op.ClientId = client
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if got := porcupine.CheckOperationsTimeout(oracle.Linear(), history, time.Minute); got != porcupine.Ok {
		t.Fatalf("the history is %s", got)
	}
	seeded := slices.Clone(history)
	i := slices.IndexFunc(seeded, func(op porcupine.Operation) bool {
		return op.Output.(oracle.Output).Answer.Outcome == oracle.Denied && op.Input.(oracle.Input).Op == oracle.Check
	})
	if i < 0 {
		t.Fatal("nobody was denied")
	}
	out := seeded[i].Output.(oracle.Output)
	out.Answer.Outcome = oracle.Admitted // as if a race had let one more through
	seeded[i].Output = out
	if got := porcupine.CheckOperationsTimeout(oracle.Linear(), seeded, time.Minute); got != porcupine.Illegal {
		t.Errorf("with one denial turned into an admission the history is %s", got)
	}
}

// recorded makes one random call on one of three partitions and writes it down.
func recorded(t *testing.T, q *limitertest.Question, store limiter.Store, random *rand.Rand, start time.Time) porcupine.Operation {
	ops := []limiter.Op{limiter.OpCheck, limiter.OpCheck, limiter.OpCheck, limiter.OpCheck, limiter.OpPeek, limiter.OpReport}
	ceilings := []int64{6 + random.Int64N(7), 30}
	call := q.Call(fmt.Sprint("t", random.IntN(3)), ops[random.IntN(len(ops))], 1+random.Int64N(3), ceilings)
	in := oracle.Input{Op: oracle.Op(call.Op), Cost: call.Cost, Counters: call.Counters, Part: oracle.Part{Name: call.Keys[0]}}
	for i, l := range q.Limits {
		in.Part.Asks = append(in.Part.Asks, oracle.Ask{Limit: l, Ceiling: ceilings[i]})
	}
	verdicts := make([]limiter.Verdict, 1)
	op := porcupine.Operation{Input: in, Call: time.Since(start).Nanoseconds()}
	if err := store.Decide(context.Background(), []limiter.Call{call}, verdicts); err != nil {
		t.Errorf("decide: %v", err)
	}
	op.Return = time.Since(start).Nanoseconds()
	out := oracle.Output{StoreUS: verdicts[0].StoreUS, Answer: oracle.Answer{Outcome: verdicts[0].Outcome}}
	for _, l := range verdicts[0].Limits {
		out.Answer.States = append(out.Answer.States, oracle.State(l))
	}
	op.Output = out
	return op
}
