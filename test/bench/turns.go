//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// load is a client and the server that it loads. Each is a line of the table of loads.
type load struct {
	name    string
	server  *process
	redis   *process // for its processor time; nil for none
	client  *client
	before  func(turn int) // called before each turn; nil for nothing
	mallocs bool           // whether allocations are counted
	turns   []turn
	seen    tally  // the answers of all turns, without warm-ups
	strange string // how an answer began that is neither a decision nor shed
}

// turn is the result of a load in one turn.
type turn struct {
	rate       float64 // decisions per second
	cpu, redis float64 // µs per decision
	mallocs    float64 // per decision
	p50, p99   float64 // ms, of all answers
	stolen     float64 // parts of the machine's time that its host gave to others
}

func (t *turn) total() float64 { return t.cpu + t.redis }

// conns are open at once.
const conns = 64

// load prepares a load. want is in each decision.
func (s *stage) load(name string, server, redis *process, requests [][]byte, want string) *load {
	return s.add(name, server, redis, newClient(server.http, conns, requests, want))
}

func (s *stage) add(name string, server, redis *process, c *client) *load {
	l := &load{name: name, server: server, redis: redis, client: c}
	s.ending = append(s.ending, l.client.close)
	s.loads = append(s.loads, l)
	return l
}

// saturated is the rate of requests that are sent as soon as the one before is answered.
const saturated = 0

// warmup is how long each load runs before anything is measured.
const warmup = 300 * time.Millisecond

// alternate applies loads one after the other, over and over, so that other work of the
// machine affects all alike. The first load of each round is another.
func alternate(rounds int, rate float64, d time.Duration, loads ...*load) {
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
			l.run(rate, d)
		}
	}
}

// run adds a turn at a rate of requests per second, or saturated.
func (l *load) run(rate float64, d time.Duration) {
	mallocs, cpu, redis, stolen := l.mallocCount(), l.server.cpu(), l.redis.cpu(), stolenTime()
	var s sample
	if rate > 0 {
		s = l.client.pace(rate, d)
	} else {
		s = l.client.saturate(d)
	}
	cpu, redis = l.server.cpu()-cpu, l.redis.cpu()-redis
	if s.wrongs > 0 {
		check(fmt.Errorf("%s: %d of %d answers are wrong, such as %s", l.name, s.wrongs, s.answers, s.wrong))
	}
	l.strange = cmp.Or(l.strange, s.strange)
	l.seen.add(s.tally)
	n := float64(max(1, s.decided))
	l.turns = append(l.turns, turn{
		rate: float64(s.decided) / s.took.Seconds(), cpu: cpu / n, redis: redis / n, mallocs: (l.mallocCount() - mallocs) / n,
		p50: s.quantile(0.5), p99: s.quantile(0.99),
		stolen: (stolenTime() - stolen) / float64(runtime.NumCPU()) / s.took.Seconds(),
	})
}

// stolenTime is for how long a host had processors of this machine do something else, s.
func stolenTime() float64 {
	stat := must(os.ReadFile("/proc/stat"))
	var user, nice, system, idle, iowait, irq, softirq, steal float64
	_, err := fmt.Sscanf(string(stat), "cpu %f %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	check(err)
	return steal / 100 // USER_HZ
}

func (l *load) mallocCount() float64 {
	if !l.mallocs {
		return 0
	}
	return l.server.metric("go_memstats_mallocs_total")
}

// The figures of a turn that rows are made of.
func rate(t *turn) float64      { return t.rate }
func ownTime(t *turn) float64   { return t.cpu }
func redisTime(t *turn) float64 { return t.redis }
func p50(t *turn) float64       { return t.p50 }
func p99(t *turn) float64       { return t.p99 }
func stolen(t *turn) float64    { return t.stolen }

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

// median is the middle value, or the lower of two; 0 of nothing.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}
