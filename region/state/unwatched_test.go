package state_test

import (
	"math"
	"testing"
	"time"

	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/state"
)

// A step of a clock that no process watched is found by the first that starts, by its host's clock: what was counted before may
// have aged early. Each row is what happens before, while and after no process runs, and whether the region's data count as
// lost then.
func TestUnwatchedStep(t *testing.T) {
	const hour = int64(time.Hour)
	nothing := func(*shared) {}
	for _, row := range []struct {
		name          string
		before, while func(s *shared)
		lost          bool
	}{
		{"nothing", nothing, nothing, false},
		{"an hour forward", nothing, func(s *shared) { s.ahead.Add(hour) }, true},
		{"an hour back", nothing, func(s *shared) { s.ahead.Add(-hour) }, false},
		{"60 ms forward", nothing, func(s *shared) { s.ahead.Add(60e6) }, true},
		{"40 ms forward", nothing, func(s *shared) { s.ahead.Add(40e6) }, false},
		{"as fast as windows allow for", nothing, func(s *shared) { time.Sleep(10 * time.Minute); s.ahead.Add(3e8) }, false},
		{"faster", nothing, func(s *shared) { time.Sleep(10 * time.Minute); s.ahead.Add(4e8) }, true},
		{"another server, which is ahead", nothing, func(s *shared) { s.runs.Add(1); s.ahead.Add(hour) }, true},
		{"another server", nothing, func(s *shared) { s.runs.Add(1) }, false},
		{"another primary an hour forward", nothing, func(s *shared) { s.otherAhead.Add(hour) }, true},
		{"a host that is an hour behind", nothing, func(s *shared) { s.hosts.Add(-hour) }, true},
		{"a host that is an hour ahead", nothing, func(s *shared) { s.hosts.Add(hour) }, false},
		{"host and redis an hour forward", nothing, func(s *shared) { s.hosts.Add(hour); s.ahead.Add(hour) }, false},
		{"the host's clock was set back while a process ran", func(s *shared) { s.hosts.Add(-hour) }, nothing, false},
		{"redis's clock was set back while a process ran", func(s *shared) { s.ahead.Add(-hour) }, nothing, false},
		{"a slow way to redis", nothing, func(s *shared) { s.slow.Store(140e6) }, false},
		{"a slow way to redis, and an hour forward", nothing, func(s *shared) { s.slow.Store(140e6); s.ahead.Add(hour) }, true},
	} {
		for _, dies := range []bool{false, true} {
			inBubble(t, func(s *shared) {
				_, stop := s.start("one")
				time.Sleep(time.Minute)
				row.before(s)
				time.Sleep(3 * state.TurnEvery)
				s.away.Store(dies) // then its entry stays
				stop()
				s.away.Store(false)
				row.while(s)
				one, stop := s.start("two")
				time.Sleep(2*state.GoneAfter + 2*state.TurnEvery)
				got, cause := one.Store(), state.Unknown
				switch {
				case dies && s.runs.Load() > 0: // nobody can say what the other server lacks
					cause = state.Lost
				case row.lost:
					cause = state.Stepped
				}
				if got.Epoch == 0 || (got.Lost != 0) != (cause != state.Unknown) {
					t.Errorf("%s, killed %v: the epoch is %+v", row.name, dies, got)
				}
				if one.Cause() != cause {
					t.Errorf("%s, killed %v: the cause is %d", row.name, dies, one.Cause())
				}
				stop()
				next, stop := s.start("two") // on the same host
				defer stop()
				time.Sleep(2*state.GoneAfter + 2*state.TurnEvery)
				if again := next.Store(); again.Epoch <= got.Epoch || again.Lost != got.Lost {
					t.Errorf("%s, killed %v: the epoch was %+v, and after another start is %+v", row.name, dies, got, again)
				}
			})
		}
	}
}

// A process that starts beside one that lives goes by what that one has watched, whatever its own host's clock shows.
func TestHostsThatDiffer(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, stop := s.start("one")
		defer stop()
		time.Sleep(time.Minute)
		before := one.Store()
		s.hosts.Add(-int64(time.Hour))
		two, stopTwo := s.start("two")
		defer stopTwo()
		time.Sleep(2 * state.GoneAfter)
		if one.Store() != before || two.Store() != before {
			t.Errorf("the epoch was %+v, and is %+v and %+v", before, one.Store(), two.Store())
		}
	})
}

// A burn lasts as long as it must by what processes watched: no step of a clock ends it, forward or back, nor one that nobody
// can find since the host's clock stepped along.
func TestStepsWhileBurnt(t *testing.T) {
	const hour = int64(time.Hour)
	for _, row := range []struct {
		name    string
		down    time.Duration // for how long no process runs
		happens func(s *shared)
		left    time.Duration // at most, more of the burn than without
	}{
		{"nothing", 0, func(*shared) {}, 0},
		{"an hour forward", 0, func(s *shared) { s.ahead.Add(hour) }, time.Minute + 5*time.Second},
		{"an hour back", 0, func(s *shared) { s.ahead.Add(-hour) }, time.Minute + 5*time.Second},
		{"ten seconds back", 0, func(s *shared) { s.ahead.Add(-10e9) }, 10 * time.Second},
		{"no process for ten minutes", 10 * time.Minute, func(*shared) {}, 10*time.Minute + 2*time.Second},
		{"an hour forward while no process runs", time.Minute, func(s *shared) { s.ahead.Add(hour) }, 2*time.Minute + 15*time.Second},
		{"host and redis an hour forward while no process runs", time.Minute, func(s *shared) {
			s.hosts.Add(hour)
			s.ahead.Add(hour)
		}, time.Minute + 2*time.Second},
		{"host and redis an hour back while no process runs", time.Minute, func(s *shared) {
			s.hosts.Add(-hour)
			s.ahead.Add(-hour)
		}, 2*time.Minute + 10*time.Second},
	} {
		inBubble(t, func(s *shared) {
			one, stop := s.start("one")
			time.Sleep(time.Minute)
			s.redis.FlushAll()
			began := time.Now()
			time.Sleep(time.Minute)
			if row.down > 0 {
				stop()
			}
			time.Sleep(row.down / 2)
			row.happens(s)
			time.Sleep(row.down / 2)
			if row.down > 0 {
				one, stop = s.start("one")
			}
			defer stop()
			time.Sleep(3 * state.TurnEvery)
			got, us := one.Store(), time.Now().UnixMicro()+s.ahead.Load()/1000
			counted := (time.Duration(us-got.Lost-got.Unwatched) * time.Microsecond).Truncate(time.Millisecond) // calls move TIME
			if most := time.Since(began); got.Lost == 0 || counted > most-row.down || counted < most-row.left-2*state.TurnEvery {
				t.Errorf("%s: %v after the loss it counts as %v ago: %+v", row.name, most, counted, got)
			}
		})
	}
}

// All processes of a region find a loss or a step, each by its own turn, and so may one that starts: each renews the epoch once at
// most. No shift of the clock is kept that two of them could apply, so a turn later they have the same epoch, and keep it.
func TestNoticedByAll(t *testing.T) {
	for _, row := range []struct {
		name    string
		happens func(s *shared, all []*state.State) (first loan.Store) // what it makes of the epoch; zero: known two turns later
		lost    bool
		most    uint32 // epochs, of a number each
	}{
		{"a loss that two report", func(s *shared, all []*state.State) loan.Store {
			all[0].Lose(time.Now().UnixMicro())
			time.Sleep(200 * time.Millisecond)
			first := all[0].Store()
			s.away.Store(true) // or it may be written before the next line
			all[1].Lose(time.Now().UnixMicro())
			if all[1].Store() != (loan.Store{}) {
				s.t.Errorf("with a loss not yet written the epoch is %v", all[1].Store())
			}
			s.away.Store(false)
			return first
		}, true, math.MaxUint32},
		{"another server, which is behind, and its clock a little", func(s *shared, all []*state.State) loan.Store {
			copied := s.copy(state.Key)
			time.Sleep(3*state.TurnEvery - 30*time.Millisecond) // the last takes a turn, and the next 960 ms later
			s.ahead.Add(-int64(40 * time.Millisecond))
			s.restore(state.Key, copied)
			time.Sleep(20 * time.Millisecond)
			return all[2].Store()
		}, true, math.MaxUint32},
		{"a step forward", func(s *shared, _ []*state.State) (none loan.Store) {
			s.ahead.Add(int64(time.Hour))
			return none
		}, true, math.MaxUint32},
		{"a step back", func(s *shared, _ []*state.State) (none loan.Store) {
			s.ahead.Add(-int64(time.Hour))
			return none
		}, false, 4},
	} {
		inBubble(t, func(s *shared) {
			var all []*state.State
			for _, name := range []string{"one", "two", "three"} {
				st, stop := s.start(name)
				defer stop()
				all = append(all, st)
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			before := all[0].Store()
			first := row.happens(s, all)
			late, stop := s.start("late") // it saw nothing of the clock before
			defer stop()
			time.Sleep(2 * state.TurnEvery)
			if first == (loan.Store{}) {
				first = all[0].Store()
			}
			time.Sleep(time.Minute)
			for _, st := range append(all, late) {
				if st.Store() != first {
					t.Errorf("%s: the epoch was %+v, then %+v, and is %+v", row.name, before, first, st.Store())
				}
			}
			if first.Epoch == before.Epoch || first.Epoch-before.Epoch > row.most || (first.Lost != 0) != row.lost {
				t.Errorf("%s: the epoch was %+v, and is %+v", row.name, before, first)
			}
		})
	}
}

// start has a process run.
func (s *shared) start(instance string) (st *state.State, stop func()) {
	s.t.Helper()
	st, run := s.join(instance)
	s.adopt(st, file(1, 1, 1))
	if got := st.Store(); got.Lost == 0 && got.Unwatched != 0 {
		s.t.Errorf("nothing is lost, and the epoch is %v", got)
	}
	return st, run()
}
