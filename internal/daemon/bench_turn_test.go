//go:build linux

package daemon

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// benchTurns are loads that are applied one after the other, over and over, so that
// what else the machine does meets them all alike.
type benchTurns struct {
	redis int // its process
	all   []*benchLoad
}

// benchLoad is one of them: a client, and the process that it asks.
type benchLoad struct {
	name    string
	client  *rawClient
	pid     int
	each    int            // decisions in an answer
	before  func(turn int) // nil for nothing
	mallocs func() float64 // of the process, since it began; nil where nobody asks
	rounds  []benchRound
}

// benchRound is what a load came to in one turn.
type benchRound struct {
	decisions    float64 // a second
	cpu, redis   float64 // µs for each decision: of the process that was asked, and of Redis
	mallocs      float64 // for each decision, of the process that was asked
	p50, p99     float64 // ms; only when a rate is kept
	served, took float64 // decisions, and seconds
}

func (r *benchRound) both() float64 { return r.cpu + r.redis }

// run takes turns, so many rounds of that long each, at a rate or, with 0, at the full
// one. The order is another in each round.
func (bt *benchTurns) run(b *testing.B, rounds, perSecond int, long time.Duration) {
	b.Helper()
	for _, t := range bt.all {
		if t.before != nil {
			t.before(0)
		}
		t.client.saturate(b, benchLead)
	}
	for round := range rounds {
		for i := range bt.all {
			t := bt.all[(i+round)%len(bt.all)]
			if t.before != nil {
				t.before(round + 1)
			}
			t.rounds = append(t.rounds, bt.take(b, t, perSecond, long))
		}
	}
	for _, t := range bt.all {
		b.Logf("%s: %.5g decisions/s, %.3g µs and %.3g µs of Redis for each", t.name,
			t.middle(func(r *benchRound) float64 { return r.decisions }),
			t.middle(func(r *benchRound) float64 { return r.cpu }), t.middle(func(r *benchRound) float64 { return r.redis }))
	}
}

// benchLead is for how long a load warms up.
const benchLead = 300 * time.Millisecond

func (bt *benchTurns) take(b *testing.B, t *benchLoad, perSecond int, long time.Duration) benchRound {
	b.Helper()
	mallocs := t.count()
	cpu, redis := processTime(b, t.pid), processTime(b, bt.redis)
	var came rawCame
	if perSecond > 0 {
		came = t.client.keep(b, perSecond, long)
	} else {
		came = t.client.saturate(b, long)
	}
	cpu, redis = processTime(b, t.pid)-cpu, processTime(b, bt.redis)-redis
	if came.wrongs > 0 {
		b.Errorf("%s: %d of %d answers are wrong, such as %s", t.name, came.wrongs, came.answers, came.wrong)
	}
	n := float64(came.answers * t.each)
	return benchRound{
		decisions: n / came.took.Seconds(), cpu: float64(cpu.Microseconds()) / n, redis: float64(redis.Microseconds()) / n,
		mallocs: (t.count() - mallocs) / n,
		p50:     ms(quantile(came.waits, 0.5)), p99: ms(quantile(came.waits, 0.99)),
		served: n, took: came.took.Seconds(),
	}
}

func (t *benchLoad) count() float64 {
	if t.mallocs == nil {
		return 0
	}
	return t.mallocs()
}

// middle is the median of something over the rounds.
func (t *benchLoad) middle(of func(r *benchRound) float64) float64 {
	var all []float64
	for i := range t.rounds {
		all = append(all, of(&t.rounds[i]))
	}
	return median(all)
}

// over is the median over the rounds of something, over the same of another load in
// the same round.
func (t *benchLoad) over(other *benchLoad, of func(r *benchRound) float64) float64 {
	var all []float64
	for i := range t.rounds {
		all = append(all, of(&t.rounds[i])/of(&other.rounds[i]))
	}
	return median(all)
}

// redisProcess is the process id of a server.
func redisProcess(tb testing.TB, srv *redisserver.Server) int {
	tb.Helper()
	info, err := srv.Client().Info(context.Background(), "server").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	text, _, _ := strings.Cut(rest, "\r\n")
	pid, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("INFO server: %v", err)
	}
	return pid
}
