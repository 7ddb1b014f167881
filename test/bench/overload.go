//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/redisserver"
)

// sizes are the checks in a request, and the bare server's paths for them.
var sizes = []int{1, 10, 100}

func barePath(each int) string { return fmt.Sprint("/batch/", each) }

// overload are loads of much work for Redis at once.
func overload(s *stage, _ figures) {
	r := s.serve(setup{})[0]
	with := func(name string, conns int, requests [][]byte) *load {
		return s.loadOf(conns, name, r.process, r.redis, requests, wantAllowed)
	}
	const d = 4 * time.Second
	with("64 connections, batches of ten", 64, batches("a", hour, tenants, 10)).run(saturated, d)
	with("256 connections, three windows", 256, checks("b", windows, tenants)).run(saturated, d)
	batch := with("batches of 100 at cost 2 each 30 ms, README's policy", conns, batches("c", readme2, tenants, 100))
	single := with("  single checks beside them", conns, checks("d", readme2, tenants))
	together(func() { batch.run(perSecond(1/0.030), d) }, func() { single.run(perSecond(100), d) })
	with("bursts of 100 at 400/s, four logs, cost 2", 100, checks("e", logs2, tenants)).run(rhythm{400, 100}, d)
}

// The promises under load.
const (
	leastOfBest = 0.8  // decisions above what the store can do, in parts of its best rate
	mostWait    = 50.0 // ms, p99 of all answers: the deadline
	mostOfBare  = 3.0  // p99 of all answers in parts of the bare handler's
	leastSingle = 0.99 // decided of single checks beside batches
)

// ladder is what ever more connections can send. Every answer is a decision or a shed, and
// what was decided was charged, no more.
func ladder(s *stage, _ figures) {
	srv := redisserver.Start(s, redisserver.Options{})
	r := s.serve(setup{redis: srv})[0]
	b := s.bare(r, logs)
	before := charged(srv)
	var clients []*client
	for _, each := range sizes {
		var loads []*load
		for _, n := range []int{16, 64, 256} {
			name := fmt.Sprintf("%d connections, four logs, %d at once", n, each)
			l := s.loadOf(n, name, r.process, r.redis, batches("t", logs, tenants, each), wantAllowed)
			bare := s.loadOf(n, "  bare", b, r.redis, requests(barePath(each), "t", logs, tenants, each), wantAllowed)
			alternate(3, saturated, 600*time.Millisecond, bare, l)
			slower := l.ratio(bare, p99)
			l.miss(slower > mostOfBare, "p99 is %.1f times the bare handler's", slower)
			loads, clients = append(loads, l), append(clients, l.client)
		}
		ofBest(loads)
	}
	lost(s.loads[len(s.loads)-1], 4, charged(srv)-before, clients)
}

// pause is how long a throttled server stands still, ms: it runs 1 ms in each 10.
const pause = 9.0

// throttled asks a Redis that has a tenth of a processor, or a cluster of such, for up to
// five times what it can do.
func throttled(s *stage, cluster bool, d time.Duration) {
	var primaries []*redisserver.Server
	o := setup{flags: []string{"--redis-budget", "40ms"}}
	if cluster {
		o.cluster = redisserver.StartCluster(s, 15*time.Second)
		primaries = o.cluster.Servers[:3]
	} else {
		o.redis = redisserver.Start(s, redisserver.Options{})
		primaries = []*redisserver.Server{o.redis}
	}
	r := s.serve(o)[0]
	before := charged(primaries...)
	for _, srv := range primaries {
		srv.Throttle(time.Millisecond, 10*time.Millisecond)
	}
	with := func(name string, conns int, requests [][]byte) *load {
		return s.loadOf(conns, name, r.process, nil, requests, wantAllowed)
	}
	best := with("throttled, 64 connections", 64, batches("t", hour, tenants, 10))
	best.run(saturated, d)
	loads, clients := []*load{best}, []*client{best.client}
	single := with("  100/s in singles beside 5 times", conns, checks("s", hour, tenants))
	for _, times := range []float64{0.5, 1, 1.5, 3, 5} {
		l := with(fmt.Sprintf("throttled, %v times that", times), 512, batches("t", hour, tenants, 10))
		at := perSecond(times * best.median(rate) / 10)
		if times < 5 {
			l.run(at, d)
		} else {
			together(func() { l.run(at, d) }, func() { single.run(perSecond(100), d) })
		}
		l.miss(l.median(p99) > mostWait+pause, "p99 is above %v ms", mostWait+pause)
		if clients = append(clients, l.client); times > 1 {
			loads = append(loads, l)
		}
	}
	ofBest(loads)
	part := float64(single.seen.decided) / float64(single.seen.sum())
	single.miss(part < leastSingle, "%.1f %% decided", 100*part)
	lost(single, 1, charged(primaries...)-before, append(clients, single.client))
}

// ofBest compares the decisions of loads with the best of them.
func ofBest(loads []*load) {
	best := 0.0
	for _, l := range loads {
		best = max(best, l.median(rate))
	}
	for _, l := range loads {
		l.miss(l.median(rate) < leastOfBest*best, "decides %.0f %% of the best rate", 100*l.median(rate)/best)
	}
}

// lost compares the units that were charged with the admissions that were answered, each
// charged to that many logs. A load bears what is missed.
func lost(l *load, logs int, units int64, clients []*client) {
	answered := int64(0)
	for _, c := range clients {
		answered += int64(logs * c.total.decided)
	}
	l.miss(units != answered, "%d units charged, %d answered", units, answered)
}

// charged is the number of units in all logs of loads, each of which was charged by itself. Those of the
// tenants that a stage asks for first end meanwhile.
func charged(servers ...*redisserver.Server) (units int64) {
	ctx := context.Background()
	for _, srv := range servers {
		pipe := srv.Client().Pipeline()
		for _, key := range must(srv.Client().Keys(ctx, "*").Result()) {
			if !strings.HasPrefix(key, "rl:{first") {
				pipe.LLen(ctx, key)
			}
		}
		all, _ := pipe.Exec(ctx) // a key that is no log has no length
		for _, cmd := range all {
			units += cmd.(*redis.IntCmd).Val()
		}
	}
	return units
}
