package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// awayRig runs a limiter on a store that can be away, in a bubble.
func awayRig(t *testing.T, mode quota.FailMode, then func(t *testing.T, w *weather)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := completions()
		p.OnStoreLoss = mode
		w := weatherAt(t, onePolicy(p), time.Time{})
		defer w.start(t)()
		then(t, w)
	})
}

// start runs the limiter until stop.
func (r *rig) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		ok(t, <-ended)
	}
}

// back has the store return, and waits until what was pending is charged.
func (w *weather) back(t *testing.T) {
	t.Helper()
	w.heals()
	time.Sleep(time.Second)
	synctest.Wait()
	if n := w.count(t, "regiond.settles_pending"); n != 0 {
		t.Errorf("%d settles are pending", n)
	}
}

// left is what a look finds.
func (w *weather) left(t *testing.T, requests, tokens, held int64) {
	t.Helper()
	d := w.reserve(t, "acme", 0)
	if got := [...]int64{d.Limits[0].Remaining, d.Limits[1].Remaining, d.Limits[1].Held}; got != [...]int64{requests, tokens, held} {
		t.Errorf("left %v, want %v", got, [...]int64{requests, tokens, held})
	}
}

// TestSettleWhileTheStoreIsAway: what the store holds is settled later, once, whatever happened to the replies meanwhile.
func TestSettleWhileTheStoreIsAway(t *testing.T) {
	for _, reason := range []quota.Reason{quota.ReasonRedisDown, quota.ReasonRedisTimeout, quota.ReasonOverloaded} {
		awayRig(t, quota.FailClosed, func(t *testing.T, w *weather) {
			d := w.reserve(t, "acme", 500)
			w.fails(reason, reason == quota.ReasonRedisTimeout)
			for _, replayed := range []bool{false, true} {
				got := w.settle(t, d, 300)
				if *got.Settlement != (quota.Settlement{Pending: true}) || got.Replayed != replayed || got.Reason != reason {
					t.Errorf("%v: settled %+v, replayed %v, %v", reason, got.Settlement, got.Replayed, got.Reason)
				}
			}
			time.Sleep(time.Second)
			if n := w.count(t, "regiond.settles_pending"); n != 1 {
				t.Errorf("%v: %d settles are pending", reason, n)
			}
			w.back(t)
			w.left(t, 9, 700, 0)
			if got := w.settle(t, d, 300); got.Settlement.Charged != 300 || !got.Replayed {
				t.Errorf("%v: settled again: %+v", reason, got.Settlement)
			}
			w.left(t, 9, 700, 0)
		})
	}
}

// TestSettleIsChargedHoweverLongTheStoreIsAway: it was in time, also of a reservation that was extended for longer than its id is good for.
func TestSettleIsChargedHoweverLongTheStoreIsAway(t *testing.T) {
	for _, extended := range []int{0, 20} {
		awayRig(t, quota.FailShare, func(t *testing.T, w *weather) {
			d := w.reserve(t, "acme", 500)
			for range extended {
				o := w.Extend(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, TTL: 2 * time.Minute}})
				ok(t, o[0].Err)
				time.Sleep(time.Minute)
			}
			w.fails(quota.ReasonRedisDown, false)
			w.settle(t, d, 300)
			time.Sleep(time.Hour)
			w.back(t)
			w.left(t, 10, 700, 0)
		})
	}
}

// TestSettlesOfAProcessThatStops: what is pending is charged at the end, if the store is back, and is no reason to wait for it. The
// log has how many are not.
func TestSettlesOfAProcessThatStops(t *testing.T) {
	const many = 300 // more than are written at once
	for i, back := range []bool{true, false} {
		var stopped *weather
		awayRig(t, quota.FailShare, func(t *testing.T, w *weather) {
			stopped = w
			var all [many]quota.Decision
			for i := range all {
				all[i] = w.reserve(t, fmt.Sprint("tenant", i), 500)
			}
			w.fails(quota.ReasonRedisDown, false)
			for _, d := range all {
				w.settle(t, d, 300)
			}
			synctest.Wait() // it was tried once, and the next time is not before Run ends
			if back {
				w.heals()
			}
		})
		if n := stopped.count(t, "regiond.settles_pending"); n != int64(i*many) {
			t.Errorf("the store is back: %v; %d settles are pending", back, n)
		}
		if log := stopped.log.String(); strings.Contains(log, "this process ends with settles") == back || strings.Contains(log, "settles=300") == back {
			t.Errorf("the store is back: %v; it logged %s", back, log)
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
			awayRig(t, row.mode, func(t *testing.T, w *weather) {
				w.fails(quota.ReasonRedisDown, false)
				d := w.reserve(t, "acme", 500)
				if !d.Allowed || d.Reservation == nil || d.Mode != quota.ModeLocal {
					t.Fatalf("reserved %+v", d)
				}
				if look := w.reserve(t, "acme", 0); look.Limits[1].Held != row.inMemory {
					t.Errorf("%d held in memory, want %d", look.Limits[1].Held, row.inMemory)
				}
				if row.back {
					w.back(t)
				}
				if got := w.settle(t, d, 300); *got.Settlement != row.settled {
					t.Errorf("settled %+v, want %+v", got.Settlement, row.settled)
				}
				if got := w.settle(t, d, 300); *got.Settlement != row.settled || !got.Replayed {
					t.Errorf("settled again: %+v, replayed %v, want %+v", got.Settlement, got.Replayed, row.settled)
				}
				w.back(t)
				w.left(t, 10, row.tokens, 0) // the request was charged in memory alone
				w.fails(quota.ReasonRedisDown, false)
				if look := w.reserve(t, "acme", 0); look.Limits[1].Held != 0 {
					t.Errorf("%d are held in memory after the settle", look.Limits[1].Held)
				}
			})
		})
	}
	awayRig(t, quota.FailClosed, func(t *testing.T, w *weather) {
		w.fails(quota.ReasonRedisDown, false)
		if d := w.reserve(t, "acme", 500); d.Allowed || d.Reservation != nil || d.Basis != quota.BasisClosed {
			t.Errorf("closed: %+v", d)
		}
		w.fails(quota.ReasonOverloaded, false)
		if d := w.reserve(t, "acme", 500); d.Allowed || d.Reservation != nil || d.Basis != quota.BasisShed {
			t.Errorf("overloaded: %+v", d)
		}
	})
}

// TestExtendWhileTheStoreIsAway: what the store holds cannot get more time, and the caller is told to ask again.
func TestExtendWhileTheStoreIsAway(t *testing.T) {
	awayRig(t, quota.FailShare, func(t *testing.T, w *weather) {
		extend := func(d quota.Decision) quota.Decision {
			t.Helper()
			o := w.Extend(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, TTL: time.Minute}})
			if o[0].Err != nil {
				t.Fatal(o[0].Err)
			}
			return o[0].Decision
		}
		held := w.reserve(t, "acme", 100)
		w.fails(quota.ReasonRedisDown, false)
		mine := w.reserve(t, "acme", 100)
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
	awayRig(t, quota.FailShare, func(t *testing.T, w *weather) {
		first, second := w.reserve(t, "acme", 500), w.reserve(t, "acme", 400)
		w.settle(t, first, 100)
		w.fails(quota.ReasonRedisDown, false)
		w.left(t, 8, 500, 400)
		w.settle(t, second, 50)
		w.left(t, 8, 850, 0)
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
		w := weatherAt(t, c, time.Time{})
		defer w.start(t)()
		d := w.reserve(t, "acme", 500)
		w.fails(quota.ReasonRedisDown, false)
		if s := w.settle(t, d, 300); !s.Settlement.Pending {
			t.Fatalf("settled %+v", s.Settlement)
		}
		o.mu.Lock()
		o.takes = month + 1
		o.mu.Unlock()
		w.back(t)
		if left := w.reserve(t, "acme", 0).Limits[0]; left.Remaining != 700 || left.Held != 0 {
			t.Errorf("%d are left and %d held, want 700 and 0: the settle of 300 was not charged", left.Remaining, left.Held)
		}
	})
}

// TestSettleOfNothingWhileTheStoreIsAway: what would have been denied under observe is charged nothing, also by a process that has not
// read overrides yet.
func TestSettleOfNothingWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := completions(), &overlay{all: map[string]*quota.Override{}}
		p.Enforcement = quota.Observe
		w := weatherAt(t, onePolicy(p), time.Time{})
		w.rig = newRig(t, limiter.Options{Store: w.store, Config: onePolicy(p), Overrides: o})
		defer w.start(t)()
		w.reserve(t, "acme", 600)
		d := w.reserve(t, "acme", 600)
		w.fails(quota.ReasonRedisDown, false)
		o.err = errors.New("so the test says")
		if s := w.settle(t, d, 600); *s.Settlement != (quota.Settlement{}) {
			t.Errorf("settled %+v", s.Settlement)
		}
		o.err = nil
		w.back(t)
		w.left(t, 9, 400, 600)
	})
}

// TestPendingSettleIsCountedOnce: one that comes again once the store is back, before the process has sent it.
func TestPendingSettleIsCountedOnce(t *testing.T) {
	w := newWeather(t, onePolicy(completions()))
	d := w.reserve(t, "acme", 500)
	w.fails(quota.ReasonRedisDown, false)
	w.settle(t, d, 300)
	w.heals()
	if s := w.settle(t, d, 300); *s.Settlement != (quota.Settlement{Charged: 300, Released: true}) {
		t.Errorf("settled %+v", s.Settlement)
	}
	if settled, pending := w.count(t, "regiond.reservations.settled"), w.count(t, "regiond.settles_pending"); settled != 300 || pending != 0 {
		t.Errorf("%d units are counted as settled, want 300; %d settles are pending", settled, pending)
	}
}

// TestSettleByAnotherClock: what a process has answered for while the store was away is charged, however far its host's clock is from that
// of the store.
func TestSettleByAnotherClock(t *testing.T) {
	for _, mode := range []quota.FailMode{quota.FailShare, quota.FailOpen} {
		for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
			w := newWeather(t, onePolicy(completions()))
			p := completions()
			p.OnStoreLoss = mode
			host := func() time.Time { return w.at.Add(-ahead) }
			w.rig = newRig(t, limiter.Options{Store: w.store, Config: onePolicy(p), Now: host, TimeUS: func() int64 { return w.at.UnixMicro() }})
			w.fails(quota.ReasonRedisDown, false)
			d := w.reserve(t, "acme", 500)
			w.heals()
			for _, replayed := range []bool{false, true} {
				if s := w.settle(t, d, 300); s.Settlement.Charged != 300 || s.Replayed != replayed {
					t.Errorf("%v, the store is %v ahead: settled %+v, replayed %t", mode, ahead, s.Settlement, s.Replayed)
				}
			}
			w.left(t, 10, 700, 0)
			w.at = w.at.Add(20 * time.Minute)
			if f := fault(t, w.Settle(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, Actual: 300}})); f != quota.FaultOver {
				t.Errorf("%v, the store is %v ahead: settled after all of it is over: fault %d", mode, ahead, f)
			}
		}
	}
}
