package sim

import (
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// TestRewindAfterStepBack: where a store's clock stepped back its keys live on, so writes of long ago are not to be left out
// when it is rolled back. A write that then has another outcome panics.
func TestRewindAfterStepBack(t *testing.T) {
	t.Parallel()
	s := &simRegion{w: &World{o: Options{Lossy: true}, bound: &boundJudge{}}}
	s.store.begin(s)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "all", Units: 10, Window: time.Second, Scope: quota.ScopeGlobal}})
	var known quota.Counter
	admit := func() {
		t.Helper()
		call := limitertest.CallOf(plan, "acme", 1)
		call.Counters, call.Known = plan.AppendCounters(nil, call.Keys, "acme", "p"), []quota.Counter{known}
		v, err := limitertest.DecideOne(&s.store, call)
		if err != nil || v.Outcome != store.Admitted {
			t.Fatalf("%+v, %v", v, err)
		}
		known = v.Limits[0].Counter
	}
	admit()
	s.stepped -= time.Hour
	s.w.now += writesMatter + time.Second
	admit()
	s.w.now += time.Second
	s.store.rewind(time.Millisecond)
	admit()
	s.w.now, s.stepped = s.w.now+writesMatter+time.Second, s.stepped+time.Hour
	known = quota.Counter{}
	if admit(); len(s.store.writes) != 1 {
		t.Errorf("%d writes are kept, want that one: those before matter to no clock", len(s.store.writes))
	}
}
