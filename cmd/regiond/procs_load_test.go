//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// loadWorkers each send a request every loadEvery to a region.
	loadWorkers = 2
	loadEvery   = 12 * time.Millisecond
	// mostCost is the largest cost: above the 15 units that make a change urgent.
	mostCost = 20
	// tooSlow is how long an answer may take. regiond gives up after 900 ms, so
	// that a request that waits for somebody else shows, and a busy machine does not.
	tooSlow = 2 * time.Second
)

// spent is what one region admitted of one tenant, as its callers were told.
type spent struct {
	units     int64
	local     int64 // of these, what the store was not asked for
	uncertain bool  // a process may have charged what nobody was told of
}

// tally is everything that callers were told.
type tally struct {
	mu      sync.Mutex // guards all below
	spent   map[string]map[string]*spent
	seen    map[string]int // answers by "region: mode reason"
	marked  time.Time      // of mark
	blind   map[string]time.Time
	slowest time.Duration
	wrong   []string
}

func newTally() *tally {
	l := &tally{spent: map[string]map[string]*spent{}, seen: map[string]int{}, blind: map[string]time.Time{}}
	for _, name := range procsNames() {
		l.spent[name] = map[string]*spent{}
	}
	return l
}

func procsTenant(i int) string { return fmt.Sprintf("tenant-%05d", i) }

// load has all regions asked until the returned function ends it, which also says
// what was wrong with the answers.
func (g *globe) load(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for _, p := range g.regions {
		for range loadWorkers {
			workers.Go(func() {
				pace := time.NewTicker(loadEvery)
				defer pace.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-pace.C:
						g.tally.spend(p, procsTenant(rand.IntN(procsTenants)), 1+rand.Int64N(mostCost))
					}
				}
			})
		}
	}
	stop = sync.OnceFunc(func() {
		cancel()
		workers.Wait()
		g.tally.judge(t)
	})
	t.Cleanup(stop)
	return stop
}

// spend asks one process of a region once.
func (l *tally) spend(p *place, tenant string, cost int64) {
	one := p.door()
	if one == nil {
		return
	}
	asked := time.Now()
	body := fmt.Sprintf(`{"tenant":%q,"cost":%d}`, tenant, cost)
	// Not under the load's context: a request that was sent is heard out.
	a, err := one.try(context.Background(), http.MethodPost, "/v1/check", body)
	took := time.Since(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spent[p.name][tenant]
	if s == nil {
		s = &spent{}
		l.spent[p.name][tenant] = s
	}
	l.slowest = max(l.slowest, took)
	if err != nil {
		s.uncertain = true
		if !p.has(one) {
			return // it was killed on purpose
		}
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %v", p.name, err))
		return
	}
	var d decision
	if err := json.Unmarshal([]byte(a.body), &d); err != nil || a.status != http.StatusOK || took > tooSlow {
		l.wrong = append(l.wrong, fmt.Sprintf("%s after %v: %d %s", p.name, took, a.status, a.body))
		return
	}
	if d.Reason == "redis_timeout" {
		s.uncertain = true
	}
	s.units += cost
	if d.Basis == "local" {
		s.local += cost
	}
	l.note(p.name, &d)
}

// has reports whether a process is asked.
func (p *place) has(one *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.doors, one)
}

// note remembers how the answer was labelled: every mode but global has a reason.
func (l *tally) note(region string, d *decision) {
	l.seen[region+": "+d.Mode+" "+d.Reason]++
	if (d.Mode == "global") != (d.Reason == "") {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: mode %q with reason %q", region, d.Mode, d.Reason))
	}
	if _, noticed := l.blind[region]; d.Mode != "global" && !noticed && !l.marked.IsZero() {
		l.blind[region] = time.Now()
	}
}

// judge reports what was wrong so far.
func (l *tally) judge(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.wrong); n > 0 {
		t.Errorf("%d answers were wrong, such as\n%s", n, l.wrong[0])
	}
	l.wrong = nil
	total := 0
	for _, n := range l.seen {
		total += n
	}
	t.Logf("%d answers, the slowest after %v: %v", total, l.slowest.Round(time.Millisecond), l.seen)
}

// blindWords are what a region says that does not see all the others, and awayWords
// what one says whose Redis is away.
func blindWords() []string {
	return []string{"partitioned peer_silent", "partitioned one_way", "partitioned views_differ", "partitioned process_paused"}
}

func awayWords() []string {
	return append(blindWords(), "local redis_down", "local redis_timeout", "local breaker_open")
}

// mark begins a fault: from now on the first answer that is not global counts.
func (l *tally) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked = time.Now()
	clear(l.blind)
	clear(l.seen)
}

// noticed insists that answers of these regions said within the given time that
// they were not global.
func (l *tally) noticed(t *testing.T, regions []string, within time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range regions {
		at, ok := l.blind[name]
		if !ok || at.Sub(l.marked) > within {
			t.Errorf("%s has not noticed within %v: %v", name, within, l.seen)
			continue
		}
		t.Logf("%s noticed after %v", name, at.Sub(l.marked).Round(time.Millisecond))
	}
}

// labels insists that answers since the mark said global, or one of these words.
func (l *tally) labels(t *testing.T, words []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(l.seen)) {
		_, label, _ := strings.Cut(key, ": ")
		if label != "global " && !slices.Contains(words, label) {
			t.Errorf("answers said %q, which is none of %q", key, words)
		}
	}
}
