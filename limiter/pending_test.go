package limiter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// absent is a store that may be away, for a reason; one whose replies are lost carries out what it does not answer.
type absent struct {
	store.Store
	reason  atomic.Uint32 // quota.Reason; none: it is there
	replies atomic.Bool   // are lost
}

func (a *absent) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	reason, lost := quota.Reason(a.reason.Load()), a.replies.Load()
	if reason == quota.ReasonNone || lost {
		a.Store.Decide(ctx, calls, verdicts)
	}
	if reason != quota.ReasonNone {
		store.Fail(verdicts, &store.Error{Reason: reason, Ambiguous: lost, Err: errors.New("away")})
	}
}

// awayRig runs a limiter on a store that can be away, in a bubble.
func awayRig(t *testing.T, mode quota.FailMode, then func(t *testing.T, r *rig, a *absent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := completions()
		p.OnStoreLoss = mode
		a := &absent{Store: memstore.New(memstore.Options{})}
		meter, reader := readMeter(t)
		r := storeRig(t, a, onePolicy(p), meter, reader, nil)
		defer r.start(t)()
		then(t, r, a)
	})
}

// start runs the limiter until stop.
func (r *rig) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func (a *absent) away(reason quota.Reason) { a.reason.Store(uint32(reason)) }

// back has the store return, and waits until what was pending is charged.
func (a *absent) back(t *testing.T, r *rig) {
	t.Helper()
	a.away(quota.ReasonNone)
	time.Sleep(time.Second)
	synctest.Wait()
	if n := r.count(t, "regiond.settles_pending"); n != 0 {
		t.Errorf("%d settles are pending", n)
	}
}

// left is what a look finds in the store.
func (a *absent) left(t *testing.T, r *rig, requests, tokens, held int64) {
	t.Helper()
	d := r.reserve(t, "acme", 0)
	if got := [...]int64{d.Limits[0].Remaining, d.Limits[1].Remaining, d.Limits[1].Held}; got != [...]int64{requests, tokens, held} {
		t.Errorf("left %v, want %v", got, [...]int64{requests, tokens, held})
	}
}

// TestSettleWhileTheStoreIsAway: what the store holds is settled later, once, whatever happened to the replies meanwhile.
func TestSettleWhileTheStoreIsAway(t *testing.T) {
	for _, reason := range []quota.Reason{quota.ReasonRedisDown, quota.ReasonRedisTimeout, quota.ReasonOverloaded} {
		awayRig(t, quota.FailClosed, func(t *testing.T, r *rig, a *absent) {
			d := r.reserve(t, "acme", 500)
			a.replies.Store(reason == quota.ReasonRedisTimeout)
			a.away(reason)
			for _, replayed := range []bool{false, true} {
				got := r.settle(t, d, 300)
				if *got.Settlement != (quota.Settlement{Pending: true}) || got.Replayed != replayed || got.Reason != reason {
					t.Errorf("%v: settled %+v, replayed %v, %v", reason, got.Settlement, got.Replayed, got.Reason)
				}
			}
			time.Sleep(time.Second)
			if n := r.count(t, "regiond.settles_pending"); n != 1 {
				t.Errorf("%v: %d settles are pending", reason, n)
			}
			a.back(t, r)
			a.left(t, r, 9, 700, 0)
			if got := r.settle(t, d, 300); got.Settlement.Charged != 300 || !got.Replayed {
				t.Errorf("%v: settled again: %+v", reason, got.Settlement)
			}
			a.left(t, r, 9, 700, 0)
		})
	}
}

// TestSettleIsChargedHoweverLongTheStoreIsAway: it was in time.
func TestSettleIsChargedHoweverLongTheStoreIsAway(t *testing.T) {
	awayRig(t, quota.FailShare, func(t *testing.T, r *rig, a *absent) {
		d := r.reserve(t, "acme", 500)
		a.away(quota.ReasonRedisDown)
		r.settle(t, d, 300)
		time.Sleep(time.Hour)
		a.back(t, r)
		a.left(t, r, 10, 700, 0)
	})
}

// TestSettlesOfAProcessThatStops: what is pending is charged at the end, if the store is back, and is no reason to wait for it.
func TestSettlesOfAProcessThatStops(t *testing.T) {
	for pending, back := range []bool{true, false} {
		var stopped *rig
		awayRig(t, quota.FailShare, func(t *testing.T, r *rig, a *absent) {
			stopped = r
			d := r.reserve(t, "acme", 500)
			a.away(quota.ReasonRedisDown)
			r.settle(t, d, 300)
			synctest.Wait() // it was tried once, and the next time is not before Run ends
			if back {
				a.away(quota.ReasonNone)
			}
		})
		if n := stopped.count(t, "regiond.settles_pending"); n != int64(pending) {
			t.Errorf("the store is back: %v; %d settles are pending", back, n)
		}
	}
}

// TestReserveWhileTheStoreIsAway: the fail mode decides, and what was used is charged in the store, whenever it is settled.
func TestReserveWhileTheStoreIsAway(t *testing.T) {
	for _, row := range []struct {
		name     string
		mode     quota.FailMode
		back     bool // before the settle
		settled  quota.Settlement
		tokens   int64 // left in the store
		inMemory int64 // held
	}{
		{"memory, settled there", quota.FailShare, false, quota.Settlement{Pending: true, Released: true}, 700, 500},
		{"memory, settled in the store", quota.FailShare, true, quota.Settlement{Charged: 300, Released: true}, 700, 500},
		{"open, settled later", quota.FailOpen, false, quota.Settlement{Pending: true}, 700, 0},
		{"open, settled in the store", quota.FailOpen, true, quota.Settlement{Charged: 300}, 700, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			awayRig(t, row.mode, func(t *testing.T, r *rig, a *absent) {
				a.away(quota.ReasonRedisDown)
				d := r.reserve(t, "acme", 500)
				if !d.Allowed || d.Reservation == nil || d.Mode != quota.ModeLocal {
					t.Fatalf("reserved %+v", d)
				}
				if look := r.reserve(t, "acme", 0); look.Limits[1].Held != row.inMemory {
					t.Errorf("%d held in memory, want %d", look.Limits[1].Held, row.inMemory)
				}
				if row.back {
					a.back(t, r)
				}
				if got := r.settle(t, d, 300); *got.Settlement != row.settled {
					t.Errorf("settled %+v, want %+v", got.Settlement, row.settled)
				}
				if got := r.settle(t, d, 300); row.back && *got.Settlement != row.settled || !got.Replayed {
					t.Errorf("settled again: %+v, replayed %v, want %+v", got.Settlement, got.Replayed, row.settled)
				}
				a.back(t, r)
				a.left(t, r, 10, row.tokens, 0) // the request was charged in memory alone
				a.away(quota.ReasonRedisDown)
				if look := r.reserve(t, "acme", 0); look.Limits[1].Held != 0 {
					t.Errorf("%d are held in memory after the settle", look.Limits[1].Held)
				}
			})
		})
	}
	awayRig(t, quota.FailClosed, func(t *testing.T, r *rig, a *absent) {
		a.away(quota.ReasonRedisDown)
		if d := r.reserve(t, "acme", 500); d.Allowed || d.Reservation != nil || d.Basis != quota.BasisClosed {
			t.Errorf("closed: %+v", d)
		}
		a.away(quota.ReasonOverloaded)
		if d := r.reserve(t, "acme", 500); d.Allowed || d.Reservation != nil || d.Basis != quota.BasisShed {
			t.Errorf("overloaded: %+v", d)
		}
	})
}

// TestExtendWhileTheStoreIsAway: what the store holds cannot get more time, and the caller is told to ask again.
func TestExtendWhileTheStoreIsAway(t *testing.T) {
	awayRig(t, quota.FailShare, func(t *testing.T, r *rig, a *absent) {
		extend := func(d quota.Decision) quota.Decision {
			t.Helper()
			o := r.Extend(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, TTL: time.Minute}})
			if o[0].Err != nil {
				t.Fatal(o[0].Err)
			}
			return o[0].Decision
		}
		held := r.reserve(t, "acme", 100)
		a.away(quota.ReasonRedisDown)
		mine := r.reserve(t, "acme", 100)
		if d := extend(held); d.Allowed || d.Basis != quota.BasisClosed || d.Reservation != nil {
			t.Errorf("the store's: %+v", d)
		}
		if d := extend(mine); !d.Allowed || d.Reservation.ExpiresIn != time.Minute {
			t.Errorf("memory's: %+v", d)
		}
	})
}

// TestMemoryHoldsWhatTheStoreHolds: when the store goes away, what it held is held on in memory.
func TestMemoryHoldsWhatTheStoreHolds(t *testing.T) {
	awayRig(t, quota.FailShare, func(t *testing.T, r *rig, a *absent) {
		first, second := r.reserve(t, "acme", 500), r.reserve(t, "acme", 400)
		r.settle(t, first, 100)
		a.away(quota.ReasonRedisDown)
		a.left(t, r, 8, 500, 400)
		r.settle(t, second, 50)
		a.left(t, r, 8, 850, 0)
	})
}

// TestSettleIsChargedInWhateverPeriodCounts: a settle that waited for the store has no ceiling to go by. It is charged also where this
// process takes another period for that of now.
func TestSettleIsChargedInWhateverPeriodCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := calendarLimit(t, quota.CalendarMonth, 1)
		limit.Scope, limit.Counts, limit.Units = quota.ScopeGlobal, quota.CountsTokens, 1000
		month := limit.Calendar.At(time.Now().UnixMicro()).Number
		o := &otherPeriods{takes: month, left: map[int64]int64{month: 1000, month + 1: 1000}}
		c := onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{limit}, MaxTTL: time.Hour, MaxHold: 100})
		c.Global = o
		a := &absent{Store: memstore.New(memstore.Options{})}
		meter, reader := readMeter(t)
		r := storeRig(t, a, c, meter, reader, nil)
		defer r.start(t)()
		d := r.reserve(t, "acme", 500)
		a.away(quota.ReasonRedisDown)
		if s := r.settle(t, d, 300); !s.Settlement.Pending {
			t.Fatalf("settled %+v", s.Settlement)
		}
		o.mu.Lock()
		o.takes = month + 1
		o.mu.Unlock()
		a.back(t, r)
		if left := r.reserve(t, "acme", 0).Limits[0]; left.Remaining != 700 || left.Held != 0 {
			t.Errorf("%d are left and %d held, want 700 and 0: the settle of 300 was not charged", left.Remaining, left.Held)
		}
	})
}
