package state_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
)

// A region knows the longest window that one of its processes has for a limit with a bound, and goes by it until loans under it
// are over. A longer one begins another epoch.
func TestWindows(t *testing.T) {
	inBubble(t, func(s *shared) {
		processes, stops := map[string]*state.State{}, map[string]func(){}
		for _, step := range []struct {
			process    string
			window     time.Duration // that it adopts; 0: it ends
			renewed    bool
			longest    time.Duration
			afterwards time.Duration // when loans under the longest are over
		}{
			{"one", 10 * time.Second, false, 10 * time.Second, 10 * time.Second},
			{"two", 10 * time.Second, false, 10 * time.Second, 10 * time.Second},
			{"one", time.Second, false, 10 * time.Second, 10 * time.Second}, // two has it
			{"two", time.Second, false, 10 * time.Second, time.Second},
			{"one", 20 * time.Second, true, 20 * time.Second, 20 * time.Second},
			{"two", 20 * time.Second, false, 20 * time.Second, 20 * time.Second},
			{"two", 0, false, 20 * time.Second, 20 * time.Second},
			{"three", 2 * time.Second, false, 20 * time.Second, 20 * time.Second}, // one has it
			{"one", 0, false, 20 * time.Second, 20 * time.Second},                 // which nobody knows to be over
			{"four", time.Second, false, 20 * time.Second, 2 * time.Second},       // three has that
		} {
			var before loan.Store
			for _, st := range processes {
				before = st.Store()
			}
			switch step.window {
			case 0:
				stops[step.process]()
				delete(stops, step.process)
				delete(processes, step.process)
			default:
				st, run := processes[step.process], func() func() { return stops[step.process] }
				if st == nil {
					st, run = s.join(step.process)
				}
				s.adopt(st, bounded(step.window))
				processes[step.process], stops[step.process] = st, run()
			}
			longest := func(when string, want time.Duration) {
				for name, st := range processes {
					if got := windowOf(st); got != want {
						t.Errorf("%+v: %s, %s goes by %v", step, when, name, got)
					}
				}
			}
			time.Sleep(2 * state.TurnEvery)
			longest("then", step.longest)
			time.Sleep(time.Duration(loan.TermsOf(step.longest.Microseconds()).Keep())*time.Microsecond - 3*state.TurnEvery)
			longest("before they are over", step.longest)
			time.Sleep(3 * state.TurnEvery)
			longest("when they are over", step.afterwards)
			for name, st := range processes {
				if now := st.Store(); before.Epoch != 0 && (now.Epoch != before.Epoch) != step.renewed || now.Epoch == 0 || now.Lost != 0 {
					t.Errorf("%+v: the epoch was %+v and for %s it is %+v", step, before, name, now)
				}
			}
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// A window that becomes shorter and soon as long again begins another epoch, once: records made meanwhile are too short.
func TestWindowAgain(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, run := s.join("one")
		defer run()()
		two, run := s.join("two")
		defer run()()
		s.adopt(one, bounded(time.Hour), bounded(time.Second))
		s.adopt(two, bounded(time.Hour), bounded(time.Second))
		time.Sleep(time.Minute)
		before := one.Store()
		s.adopt(one, bounded(time.Hour))
		time.Sleep(3 * state.TurnEvery)
		again := two.Store()
		s.adopt(two, bounded(time.Hour))
		time.Sleep(3 * state.TurnEvery)
		got := one.Store()
		if before.Epoch == 0 || again.Epoch <= before.Epoch || got != again || got != two.Store() || got.Lost != 0 {
			t.Errorf("the epoch was %v, then %v, and is %v and %v", before, again, got, two.Store())
		}
	})
}

// After a loss the share is burnt for as long as loans under a window may be used that has become shorter since, also where the
// loss is a step of the clock beyond the end that was noted for that window. It has an end nevertheless. So it is where
// reservations last less long than before.
func TestShorterWindowThenLoss(t *testing.T) {
	const long, short = time.Minute, time.Second
	t.Run("window", func(t *testing.T) { shorterThenLoss(t, bounded(long), bounded(short)) })
	t.Run("max_ttl", func(t *testing.T) { shorterThenLoss(t, reserving(short, long), reserving(short, short)) })
}

func shorterThenLoss(t *testing.T, longer, shorter *region.Topology) {
	terms := [2]loan.Terms{loan.TermsOfLimit(&longer.Policies[0].Limits[0]), loan.TermsOfLimit(&shorter.Policies[0].Limits[0])}
	long := time.Duration(terms[0].Window+terms[0].MaxTTL) * time.Microsecond
	for _, row := range []struct {
		name    string
		happens func(s *shared)
		restart bool // with the shorter window
	}{
		{"nothing", func(*shared) {}, false},
		{"data lost", func(s *shared) { s.redis.FlushAll() }, false},
		{"far forward", func(s *shared) { s.ahead.Add(10 * int64(long)) }, false},
		{"far forward, started anew", func(s *shared) { s.ahead.Add(10 * int64(long)) }, true},
		{"far forward, then data lost", func(s *shared) {
			s.ahead.Add(10 * int64(long))
			time.Sleep(2 * state.TurnEvery)
			s.redis.FlushAll()
		}, false},
		{"forward to just before the end", func(s *shared) { s.ahead.Add(int64(long + 20*time.Second)) }, false},
		{"back", func(s *shared) { s.ahead.Add(-int64(long)) }, false},
	} {
		inBubble(t, func(s *shared) {
			st, run := s.join("one")
			s.adopt(st, longer)
			stop := run()
			time.Sleep(time.Minute)
			shortened := time.Now()
			if row.restart {
				stop()
				st, run = s.join("one")
			}
			s.adopt(st, shorter)
			if row.restart {
				stop = run()
			}
			defer func() { stop() }()
			time.Sleep(2 * state.TurnEvery)
			row.happens(s)
			usable := time.Duration(terms[0].Length+terms[0].MaxTTL+terms[1].Window) * time.Microsecond
			for time.Since(shortened) < usable {
				of, us := st.Store(), time.Now().UnixMicro()+s.ahead.Load()/1000
				if burnt := of.Lost + of.Unwatched + termsOf(st).Keep(); of.Epoch != 0 && of.Lost != 0 && burnt <= us {
					t.Fatalf("%s: %v after the window became shorter the share is burnt no more: %+v", row.name, time.Since(shortened), of)
				}
				time.Sleep(state.TurnEvery / 4)
			}
			time.Sleep(2*time.Duration(terms[0].Keep())*time.Microsecond + 3*state.TurnEvery)
			if got := termsOf(st); got != terms[1] {
				t.Errorf("%s: much later it still goes by %+v", row.name, got)
			}
		})
	}
}

// The first process that takes reservations begins another epoch: loans of before allow for none. Longer ones do not, and their
// length is known at once.
func TestReservationsBeginAnEpoch(t *testing.T) {
	inBubble(t, func(s *shared) {
		st, run := s.join("one")
		s.adopt(st, bounded(time.Second))
		defer run()()
		for _, step := range []struct {
			maxTTL  time.Duration
			renewed bool
		}{{10 * time.Second, true}, {20 * time.Second, false}, {20 * time.Second, false}} {
			time.Sleep(2 * state.TurnEvery)
			before := st.Store().Epoch
			s.adopt(st, reserving(time.Second, step.maxTTL))
			time.Sleep(2 * state.TurnEvery)
			if now := st.Store().Epoch; before == 0 || now == 0 || (now != before) != step.renewed || termsOf(st).MaxTTL != step.maxTTL.Microseconds() {
				t.Errorf("%v: the epoch was %d and is %d, and it goes by %+v", step.maxTTL, before, now, termsOf(st))
			}
		}
	})
}

// bounded is a topology with one limit that has a bound.
func bounded(window time.Duration) *region.Topology {
	top := file(1, 1, 1)
	top.Policies[0].Name, top.Policies[0].Limits[0].Name = "standard", "all"
	top.Policies[0].Limits[0].Window, top.Policies[0].Limits[0].MaxOvershoot = window, quota.Strict
	return top
}

// reserving is bounded with reservations.
func reserving(window, maxTTL time.Duration) *region.Topology {
	top := bounded(window)
	top.Policies[0].Limits[0].Counts, top.Policies[0].Limits[0].HeldFor = quota.CountsTokens, maxTTL
	return top
}

// termsOf are those that the share is burnt by.
func termsOf(st *state.State) loan.Terms {
	us, maxTTL := st.Window("standard.all")
	return loan.TermsOf(us).Holding(maxTTL)
}

func windowOf(st *state.State) time.Duration {
	us, _ := st.Window("standard.all")
	return time.Duration(us) * time.Microsecond
}
