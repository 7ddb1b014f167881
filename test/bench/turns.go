//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// load is a client and the server that it loads.
type load struct {
	name    string
	server  *process
	redis   *process
	client  *client
	each    int            // decisions in an answer
	before  func(turn int) // called before each turn; nil for nothing
	mallocs bool           // whether allocations are counted
	turns   []turn
}

// turn is the result of a load in one turn.
type turn struct {
	rate       float64 // decisions per second
	cpu, redis float64 // µs per decision
	mallocs    float64 // per decision
	p50, p99   float64 // ms; only if a rate is kept
}

func (t *turn) total() float64 { return t.cpu + t.redis }

// newLoad prepares a load of single checks. want is in each answer.
func newLoad(name string, server, redis *process, requests [][]byte, want string) *load {
	return &load{name: name, server: server, redis: redis, client: newClient(server.http, conns, requests, want), each: 1}
}

// warmup is how long each load runs before anything is measured.
const warmup = 300 * time.Millisecond

// alternate applies loads one after the other, over and over, so that other work of the
// machine affects all alike: at a rate, or with 0 as fast as they can. The first load of
// each round is another.
func alternate(rounds, perSecond int, d time.Duration, loads ...*load) {
	for _, l := range loads {
		if l.before != nil {
			l.before(0)
		}
		l.client.saturate(warmup)
	}
	for round := range rounds {
		for i := range loads {
			l := loads[(i+round)%len(loads)]
			if l.before != nil {
				l.before(round + 1)
			}
			l.turns = append(l.turns, l.run(perSecond, d))
		}
	}
	for _, l := range loads {
		fmt.Fprintf(os.Stderr, "        %-22s %8.0f decisions/s, %6.1f µs each and %5.1f µs of Redis\n", l.name,
			l.median(rate), l.median(func(t *turn) float64 { return t.cpu }), l.median(redisTime))
	}
}

func (l *load) run(perSecond int, d time.Duration) turn {
	mallocs, cpu, redis := l.mallocCount(), l.server.cpu(), l.redis.cpu()
	var s sample
	if perSecond > 0 {
		s = l.client.pace(perSecond, d)
	} else {
		s = l.client.saturate(d)
	}
	cpu, redis = l.server.cpu()-cpu, l.redis.cpu()-redis
	if s.wrongs > 0 {
		check(fmt.Errorf("%s: %d of %d answers are wrong, such as %s", l.name, s.wrongs, s.answers, s.wrong))
	}
	n := float64(s.answers * l.each)
	return turn{
		rate: n / s.took.Seconds(), cpu: cpu / n, redis: redis / n, mallocs: (l.mallocCount() - mallocs) / n,
		p50: s.quantile(0.5), p99: s.quantile(0.99),
	}
}

func (l *load) mallocCount() float64 {
	if !l.mallocs {
		return 0
	}
	return l.server.metric("go_memstats_mallocs_total")
}

// The figures of a turn that rows are made of.
func rate(t *turn) float64      { return t.rate }
func redisTime(t *turn) float64 { return t.redis }
func p50(t *turn) float64       { return t.p50 }
func p99(t *turn) float64       { return t.p99 }

// median is the median of a figure over the turns.
func (l *load) median(of func(*turn) float64) float64 {
	var all []float64
	for i := range l.turns {
		all = append(all, of(&l.turns[i]))
	}
	return median(all)
}

// ratio is the median of a figure over that of another load in the same round.
func (l *load) ratio(base *load, of func(*turn) float64) float64 {
	var all []float64
	for i := range l.turns {
		all = append(all, of(&l.turns[i])/of(&base.turns[i]))
	}
	return median(all)
}

// median is the middle value, or the lower of two.
func median(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}
