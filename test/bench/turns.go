//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
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
	seen    tally    // the answers of all turns, without warm-ups
	strange string   // how an answer began that is neither a decision nor shed
	missed  []string // promises that were not kept
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

// conns are open at once, unless a load says otherwise.
const conns = 64

// load prepares a load. want is in each decision.
func (s *stage) load(name string, server, redis *process, requests [][]byte, want string) *load {
	return s.loadOf(conns, name, server, redis, requests, want)
}

func (s *stage) loadOf(conns int, name string, server, redis *process, requests [][]byte, want string) *load {
	return s.add(name, server, redis, newClient(server.http, conns, requests, want))
}

func (s *stage) add(name string, server, redis *process, c *client) *load {
	l := &load{name: name, server: server, redis: redis, client: c}
	s.ending = append(s.ending, l.client.close)
	s.loads = append(s.loads, l)
	return l
}

// rhythm is when requests are sent: burst at a time, perSecond in all, or with 0 as fast as
// they are answered.
type rhythm struct {
	perSecond float64
	burst     int
}

var (
	saturated = rhythm{}
	perSecond = func(n float64) rhythm { return rhythm{n, 1} }
)

// warmup is how long each load runs before anything is measured.
const warmup = 300 * time.Millisecond

// alternate applies loads one after the other, over and over, so that other work of the
// machine affects all alike. The first load of each round is another.
func alternate(rounds int, at rhythm, d time.Duration, loads ...*load) {
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
			l.run(at, d)
		}
	}
}

// together runs functions at once. If one fails, all end before it is reported.
func together(all ...func()) {
	var running sync.WaitGroup
	failed := make(chan any, len(all))
	for _, f := range all {
		running.Go(func() {
			defer func() {
				if why := recover(); why != nil {
					failed <- why
				}
			}()
			f()
		})
	}
	running.Wait()
	if len(failed) > 0 {
		panic(<-failed)
	}
}

// run adds a turn.
func (l *load) run(at rhythm, d time.Duration) {
	mallocs, cpu, redis, stolen := l.mallocCount(), l.server.cpu(), l.redis.cpu(), stolenTime()
	var s sample
	if at.perSecond > 0 {
		s = l.client.pace(at.perSecond, at.burst, d)
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

// miss notes a promise that was not kept.
func (l *load) miss(broken bool, format string, args ...any) {
	if broken {
		l.missed = append(l.missed, fmt.Sprintf(format, args...))
	}
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
