package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// startUS is what store clocks show, skews apart, when virtual time begins.
const startUS = int64(1_700_000_000_000_000)

// simRegion is what stands in one region: a store with a clock, and the processes that
// share it. The store is the limiter's own memory store, one for each tenant: what
// one tenant does to the sweeping of another's keys is not part of the world.
type simRegion struct {
	w         *World
	place     int
	name      string
	store     regionStore
	stepped   time.Duration // by which the store's clock was set ahead
	seen      time.Duration // the same, as the processes' clock tracking has noticed
	harmed    time.Duration // when its data or its clock were, if no process has seen that; 0: none were
	slid      time.Duration // when a StrictPlan stepped it last by as little as nothing follows upon
	skew      time.Duration
	pace      int64            // of the clock, less true time's, in millionths
	topology  *region.Topology // in force here
	former    []former         // topologies, oldest first
	processes []*process       // alive, in order of their start
	started   int
	version   int // of topology; rollouts are numbered as they are planned
	turn      int // whose turn it is to be asked
}

// former is a topology and until when it was in force.
type former struct {
	topology *region.Topology
	until    time.Duration
}

// trueUS is the time that has passed, by the pace of the store's clock.
func (s *simRegion) trueUS() int64 {
	us := s.w.now.Microseconds()
	return us + us*s.pace/1_000_000
}

// nowUS is the store's clock.
func (s *simRegion) nowUS() int64 {
	return startUS + s.trueUS() + (s.skew + s.stepped).Microseconds()
}

// timeUS is the store's clock as regiond processes without bounded limits track it: a step shows only after
// the next reading.
func (s *simRegion) timeUS() int64 {
	return startUS + s.trueUS() + (s.skew + s.seen).Microseconds()
}

// regionStore is the region's store. It implements store.Store, and gives its counters
// back as Redis would.
type regionStore struct {
	s         *simRegion
	durable   durable
	away      bool
	strange   bool                       // it has taken over, and was asked nothing yet
	tenants   map[string]*memstore.Store // by the prefix of their keys
	clockUS   func() int64               // of all of them; replaced while writes are replayed
	counters  []*keptCounter             // in the order of their creation
	byKey     map[quota.CounterKey]*keptCounter
	writes    []write
	latest    int64                     // time of a write by the store's clock, which may have stepped back
	matter    time.Duration             // for how long a write matters: the longest life of a key that was written
	overrides map[string][]keptOverride // by tenant, the newest last
}

// keptCounter is a usage counter and its earlier bucket.
type keptCounter struct {
	key     quota.CounterKey
	buckets []quota.Counter // oldest first
}

// write is a call that may have changed the store, kept so that the writes before it can be done
// again. A refused one may: a denial notes a step of the clock, and a counter that went back is dropped.
type write struct {
	at      time.Duration
	us      int64
	outcome byte
	call    store.Call
	reset   string // or the tenant that was reset
}

func (t *regionStore) begin(s *simRegion) {
	t.s, t.clockUS = s, s.nowUS
	t.durable = durable{nowUS: s.nowUS, now: func() time.Duration { return s.w.now }}
	t.clear()
}

func (t *regionStore) clear() {
	t.tenants, t.byKey = map[string]*memstore.Store{}, map[quota.CounterKey]*keptCounter{}
	t.counters, t.latest = nil, 0
}

var errAway = errors.New("the simulated store is away")

// Decide implements store.Store.
func (t *regionStore) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if t.away {
		store.Fail(verdicts, &store.Error{Reason: quota.ReasonRedisDown, Err: errAway})
		return
	}
	for i := range calls {
		calls[i].Bounds = t.inForce(calls[i].Bounds)
		t.decide(ctx, calls[i:i+1], verdicts[i:i+1])
	}
}

// inForce is bounds as the deciding script takes them: of no known epoch, unless theirs is
// that of the region's hash.
func (t *regionStore) inForce(bounds []quota.Bound) []quota.Bound {
	bounds = slices.Clone(bounds)
	for i := range bounds {
		if bounds[i].Epoch != t.durable.epoch() {
			bounds[i].Epoch = 0
		}
	}
	return bounds
}

// eval is state.Eval.
func (t *regionStore) eval(ctx context.Context, script, key string, args ...any) (any, error) {
	if t.away {
		return nil, errAway
	}
	return t.durable.eval(ctx, script, key, args...)
}

// ResetAll implements store.Store. The world calls reset.
func (t *regionStore) ResetAll(context.Context, string, int64) error { return errors.ErrUnsupported }

func (t *regionStore) decide(ctx context.Context, call []store.Call, verdict []store.Verdict) {
	c := &call[0]
	prefix, _, _ := strings.Cut(c.Keys[0], "}")
	m := t.tenants[prefix]
	if m == nil {
		m = memstore.New(memstore.Options{Now: func() int64 { return t.clockUS() }})
		t.tenants[prefix] = m
	}
	v := &verdict[0]
	held := t.holds(c)
	m.Decide(ctx, call, verdict)
	if j := t.s.w.judge; j != nil && !held && v.Err == nil && v.Outcome != store.Lost {
		j.violated("LOC-F not told", nil, "%s: its store decided by a ceiling that rests on %+v, which it does not hold", t.s.name, c.Known)
	}
	if v.Err != nil || c.Op == store.OpPeek {
		return
	}
	switch v.Outcome {
	case store.Admitted, store.Settled:
		t.keep(c, v)
	case store.Lost:
		t.drop(c, v)
	}
	if t.s.w.o.Lossy {
		for i := range c.Plan.Keys {
			t.matter = max(t.matter, writesMatter, c.Plan.Keys[i].Life)
		}
		if n := len(t.writes); n > 0 && t.writes[n-1].at < t.s.w.now-t.matter && t.latest < v.StoreUS-t.matter.Microseconds() && t.s.w.bound != nil {
			t.writes, t.latest = t.writes[:0], 0
		}
		t.latest = max(t.latest, v.StoreUS)
		kept := *c
		kept.Keys, kept.Counters, kept.Ceilings = slices.Clone(c.Keys), slices.Clone(c.Counters), slices.Clone(c.Ceilings)
		kept.Known, kept.Periods, kept.Bounds, kept.Loans = slices.Clone(c.Known), slices.Clone(c.Periods), slices.Clone(c.Bounds), slices.Clone(c.Loans)
		t.writes = append(t.writes, write{at: t.s.w.now, us: v.StoreUS, outcome: v.Outcome, call: kept})
	}
}

// holds is whether the store has the counters that a call's ceilings rest on. Those that ended are not missed here.
func (t *regionStore) holds(c *store.Call) bool {
	for i := range c.Known {
		counter := quota.Counter{}
		if k := t.byKey[c.Counters[i]]; k != nil {
			counter = k.buckets[len(k.buckets)-1]
		}
		if !counter.Holds(c.Known[i]) {
			return false
		}
	}
	return true
}

// writesMatter is how long after it a write changes nothing at least, in true time and by the store's clock: where that stepped back,
// keys live on. Keys with reservations live for an hour.
const writesMatter = 3 * time.Minute

func (t *regionStore) keep(c *store.Call, v *store.Verdict) {
	n := 0
	for i := range v.Limits {
		counter := v.Limits[i].Counter
		if counter == (quota.Counter{}) {
			continue
		}
		key := c.Counters[n]
		n++
		k := t.byKey[key]
		if k == nil {
			k = &keptCounter{key: key}
			t.byKey[key], t.counters = k, append(t.counters, k)
		}
		at := slices.IndexFunc(k.buckets, func(b quota.Counter) bool { return b.Bucket == counter.Bucket && b.Generation == counter.Generation })
		if at >= 0 {
			k.buckets[at] = counter
			continue
		}
		k.buckets = append(k.buckets, counter)
		if len(k.buckets) > 2 {
			k.buckets = slices.Delete(k.buckets, 0, 1)
		}
	}
}

// drop forgets the counters that the store has dropped, since they had gone back.
func (t *regionStore) drop(c *store.Call, v *store.Verdict) {
	n := 0
	for i, l := range c.Plan.Limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		if k := t.byKey[c.Counters[n]]; k != nil && v.Limits[i].Counter == (quota.Counter{}) {
			delete(t.byKey, k.key)
			if j := t.s.w.judge; j != nil {
				j.dropped(t.s, k)
			}
			t.counters = slices.DeleteFunc(t.counters, func(o *keptCounter) bool { return o == k })
		}
		n++
	}
}

// read walks over what a restarted process reads back.
func (t *regionStore) read(_ context.Context, yield func(key quota.CounterKey, buckets []quota.Counter, gauge quota.Gauge, storeUS int64)) error {
	if t.away {
		return errAway
	}
	for _, k := range t.counters {
		yield(k.key, k.buckets, quota.Gauge{}, t.clockUS())
	}
	return nil
}

// reset deletes the logs of a tenant.
func (t *regionStore) reset(tenant string) {
	prefix, _, _ := strings.Cut(string(store.AppendPrefix(nil, tenant)), "}")
	if m := t.tenants[prefix]; m != nil {
		_ = m.ResetAll(context.Background(), tenant, 0) // what is in memory never fails
	}
	t.writes = append(t.writes, write{at: t.s.w.now, us: t.clockUS(), reset: tenant})
}

// forget empties the store, as a Redis without persistence does that restarts.
func (t *regionStore) forget() {
	t.clear()
	t.writes, t.overrides = nil, nil
	t.durable.forget()
}

// rewind loses the writes of the last while, as a failover does to a replica that was
// behind, and returns their units. It is another server from then on.
func (t *regionStore) rewind(while time.Duration) (units int64) {
	keep := len(t.writes)
	for keep > 0 && t.writes[keep-1].at > t.s.w.now-while {
		if keep--; t.writes[keep].outcome == store.Admitted {
			units += t.writes[keep].call.Cost
		}
	}
	kept := t.writes[:keep]
	t.clear()
	t.writes = nil
	us := int64(0)
	t.clockUS = func() int64 { return us }
	for i := range kept {
		call := []store.Call{kept[i].call}
		us = kept[i].us
		if kept[i].reset != "" {
			t.reset(kept[i].reset)
			t.writes[len(t.writes)-1].at = kept[i].at
			continue
		}
		var verdict [1]store.Verdict
		t.decide(context.Background(), call, verdict[:])
		if verdict[0].Outcome != kept[i].outcome {
			panic(fmt.Sprintf("sim: at %v %s: write %d of %d got %c when it was made and %c when it was made again",
				t.s.w.now, t.s.name, i, len(kept), kept[i].outcome, verdict[0].Outcome)) // the world's own mistake
		}
		t.writes[len(t.writes)-1].at = kept[i].at
	}
	t.clockUS = t.s.nowUS
	t.durable.back(t.s.w.now - while)
	for tenant, all := range t.overrides {
		t.overrides[tenant] = slices.DeleteFunc(all, func(o keptOverride) bool { return o.at > t.s.w.now-while })
	}
	t.durable.run++
	t.strange = true
	return units
}
