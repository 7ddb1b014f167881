package limitertest

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// CountersAddUp holds that usage counters show what was admitted, however TIME steps: a
// peer keeps the largest of each bucket and generation, and adds them up. No counter
// falls under a name that it had, and none begins anew under it.
func CountersAddUp(t *testing.T, newStore New) {
	type name struct{ generation, bucket int64 }
	s, now := newStore(t)
	q := Ask(&quota.Limit{Name: "g", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal})
	held := map[name]int64{}
	us, admitted := Epoch, int64(0)
	for i, seconds := range []int64{0, 30, -50, 20, -180, 10, 60, 120, 300, -3600, -61, 61, 3600, 3600, -59, -120, -120} {
		us += seconds * 1_000_000
		now(us)
		cost := int64(i + 1)
		v, err := Decide(s, q.Call("acme", store.OpReport, cost, nil))
		if err != nil {
			t.Fatal(err)
		}
		admitted += cost
		got := v[0].Limits[0].Counter
		of := name{got.Generation, got.Bucket}
		if got.Units < held[of]+cost {
			t.Errorf("step %d: %d units in bucket %d of generation %d, which had %d before %d more", i, got.Units, got.Bucket, got.Generation, held[of], cost)
		}
		held[of] = max(held[of], got.Units)
	}
	sum := int64(0)
	for _, units := range held {
		sum += units
	}
	if sum != admitted {
		t.Errorf("peers hold %d units, %d were admitted: %v", sum, admitted, held)
	}
}

// CountersOutliveAReset holds that a reset forgets the logs of a tenant and not what was
// published to peers.
func CountersOutliveAReset(t *testing.T, newStore New) {
	s, now := newStore(t)
	now(Epoch)
	q := Ask(&quota.Limit{Name: "g", Units: 10, Window: time.Minute, Scope: quota.ScopeGlobal})
	call := q.Call("acme", store.OpCheck, 4, nil)
	if _, err := Decide(s, call); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(context.Background(), "acme"); err != nil {
		t.Fatal(err)
	}
	v, err := Decide(s, call)
	if err != nil || v[0].Limits[0].Remaining != 6 || v[0].Limits[0].Counter.Units != 8 {
		t.Errorf("%+v, %v", v, err)
	}
}
