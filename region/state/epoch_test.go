package state_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/state"
)

// drift has a clock gain so much a second for a while, always between two turns.
func drift(ahead *atomic.Int64, by time.Duration) {
	time.Sleep(state.TurnEvery / 2)
	for range 20 {
		ahead.Add(int64(by))
		time.Sleep(state.TurnEvery)
	}
}

// What a process does with the epoch of its region: each row is what happens to a region in
// which "one" has run for a minute, and what it and a sibling have afterwards.
func TestEpoch(t *testing.T) {
	const settled = 3 * state.TurnEvery
	for _, row := range []struct {
		name    string
		happens func(s *shared, one *state.State)
		renewed bool
		lost    bool
	}{
		{"nothing", func(*shared, *state.State) {}, false, false},
		{"redis away for a minute", func(s *shared, _ *state.State) {
			s.away.Store(true)
			time.Sleep(time.Minute)
			s.away.Store(false)
		}, false, false},
		{"a loss that is reported", func(_ *shared, one *state.State) { one.Lose(time.Now().UnixMicro()) }, true, true},
		{"a loss that is reported while redis is away", func(s *shared, one *state.State) {
			s.away.Store(true)
			one.Lose(time.Now().UnixMicro())
			time.Sleep(time.Minute)
			if one.Store() != (loan.Store{}) {
				s.t.Errorf("redis is away: the epoch is still %v", one.Store())
			}
			s.away.Store(false)
		}, true, true},
		{"a loss from before the last one that is known", func(s *shared, one *state.State) {
			there := time.Now().UnixMicro()
			time.Sleep(state.TurnEvery)
			one.Lose(time.Now().UnixMicro())
			time.Sleep(time.Minute)
			noticed := one.Store()
			one.Lose(there)
			time.Sleep(settled)
			if one.Store() != noticed {
				s.t.Errorf("one loss, of which a second partition shows later, makes of the epoch %v %v", noticed, one.Store())
			}
		}, true, true},
		{"rolled back after a loss and a step back", func(s *shared, one *state.State) {
			s.redis.FlushAll()
			time.Sleep(settled)
			s.ahead.Add(-int64(time.Hour))
			time.Sleep(settled)
			before, copied := one.Store(), s.copy(state.Key)
			time.Sleep(settled)
			s.restore(state.Key, copied)
			time.Sleep(settled)
			if one.Store().Lost == before.Lost {
				s.t.Errorf("rolled back: the epoch was %v and is %v", before, one.Store())
			}
		}, true, true},
		{"a flush", func(s *shared, _ *state.State) { s.redis.FlushAll() }, true, true},
		{"another server with all data", func(s *shared, _ *state.State) { s.runs.Add(1) }, true, false},
		{"another server, and another primary is away since", func(s *shared, _ *state.State) {
			two, run := s.join("two")
			stop := run()
			time.Sleep(settled)
			s.awayFor.Store("two") // it is asked in vain
			s.runs.Add(1)
			time.Sleep(state.TurnEvery)
			s.otherAway.Store(true)
			time.Sleep(settled)
			s.awayFor.Store("")
			if time.Sleep(settled); two.Store().Epoch == 0 {
				s.t.Error("the sibling has no epoch")
			}
			stop()
		}, true, true},
		{"a replica that was behind takes over", func(s *shared, _ *state.State) {
			copied := s.copy(state.Key)
			time.Sleep(3 * state.TurnEvery)
			s.restore(state.Key, copied)
		}, true, true},
		{"a copy from before its start is restored", func(s *shared, _ *state.State) {
			copied := s.copy(state.Key)
			for field := range copied {
				if field != "epoch" && field != "topology" {
					delete(copied, field)
				}
			}
			s.restore(state.Key, copied)
		}, true, true},
		{"away for so long that a sibling removes its entry", func(s *shared, _ *state.State) {
			two, run := s.join("two")
			defer run()()
			time.Sleep(settled)
			s.awayFor.Store("one")
			time.Sleep(15 * time.Minute)
			s.awayFor.Store("")
			if time.Sleep(settled); two.Store().Epoch == 0 {
				s.t.Error("the sibling has no epoch")
			}
		}, false, false},
		{"another primary does not answer", func(s *shared, _ *state.State) {
			s.otherAway.Store(true)
			time.Sleep(time.Minute)
		}, false, false},
		{"another primary is flushed", func(s *shared, _ *state.State) { s.redis.Del(otherKey) }, true, true},
		{"another primary's clock steps forward", func(s *shared, _ *state.State) { s.otherAhead.Add(1e9) }, true, true},
		{"another primary's clock steps back", func(s *shared, _ *state.State) { s.otherAhead.Add(-1e9) }, true, false},
		{"the clock steps forward", func(s *shared, _ *state.State) { s.ahead.Add(int64(100 * time.Millisecond)) }, true, true},
		{"the clock steps back", func(s *shared, _ *state.State) { s.ahead.Add(-int64(100 * time.Millisecond)) }, true, false},
		{"the clock steps far back", func(s *shared, _ *state.State) { s.ahead.Add(-int64(time.Hour)) }, true, false},
		{"a flush and a step far back", func(s *shared, _ *state.State) {
			s.ahead.Add(-int64(time.Hour))
			s.redis.FlushAll()
		}, true, true},
		{"an earlier epoch is in the store again", func(s *shared, _ *state.State) { s.redis.HSet(state.Key, "epoch", "7 0 7000000 7 0 0 0") }, true, true},
		{"a loss that is reported while another process renews", func(s *shared, one *state.State) {
			s.redis.HSet(state.Key, "epoch", fmt.Sprintf("%d 0 7000000 7 0 0 0", one.Store().Epoch+5))
			one.Lose(time.Now().UnixMicro())
		}, true, true},
		{"a peer has seen a later one", func(_ *shared, one *state.State) { one.Seen(one.Store().Epoch + 1000) }, true, true},
		{"a peer has seen the last", func(_ *shared, one *state.State) { one.Seen(one.Store().Epoch) }, false, false},
		{"a peer claims the largest that there is", func(_ *shared, one *state.State) { one.Seen(1<<32 - 1) }, false, false},
		{"the clock steps a little", func(s *shared, _ *state.State) { s.ahead.Add(int64(40 * time.Millisecond)) }, false, false},
		{"the clock runs 1 % fast", func(s *shared, one *state.State) {
			drift(&s.ahead, 10*time.Millisecond)
			if got := one.Store().FastPPM; got < 9900 || got > 10_100 {
				s.t.Errorf("1 %% fast: windows are longer by %d ppm", got)
			}
		}, false, false},
		{"the clock runs 1 % slow", func(s *shared, one *state.State) {
			drift(&s.ahead, -10*time.Millisecond)
			if got := one.Store(); got.FastPPM != 0 || got.Epoch == 0 {
				s.t.Errorf("1 %% slow: %+v", got)
			}
		}, false, false},
		{"the clock runs 4 % fast for a while", func(s *shared, one *state.State) {
			drift(&s.ahead, 40*time.Millisecond)
			if one.Store() != (loan.Store{Drifting: true}) {
				s.t.Errorf("4 %% fast: the epoch is still %v", one.Store())
			}
		}, true, true},
		{"another primary's clock runs 4 % slow for a while", func(s *shared, one *state.State) {
			drift(&s.otherAhead, -40*time.Millisecond)
			if one.Store() != (loan.Store{Drifting: true}) {
				s.t.Errorf("4 %% slow: the epoch is still %v", one.Store())
			}
		}, true, false},
		{"the clock steps beyond the life of keys", func(s *shared, _ *state.State) { s.ahead.Add(int64(time.Hour)) }, true, true},
		{"the clock steps while redis is away", func(s *shared, _ *state.State) {
			s.away.Store(true)
			time.Sleep(time.Minute)
			s.ahead.Add(-int64(time.Second))
			s.away.Store(false)
		}, true, false},
	} {
		inBubble(t, func(s *shared) {
			one, run := s.join("one")
			if one.Store() != (loan.Store{}) {
				t.Errorf("%s: before the first turn the epoch is %v", row.name, one.Store())
			}
			s.adopt(one, file(1, 1, 1))
			before := one.Store()
			if before.Epoch == 0 || before.Lost != 0 {
				t.Errorf("%s: at the first start the epoch is %v", row.name, before)
			}
			defer run()()
			time.Sleep(time.Minute + state.TurnEvery/4) // between two turns
			row.happens(s, one)
			time.Sleep(settled)
			two, runTwo := s.join("two")
			defer runTwo()()
			time.Sleep(settled)
			after := one.Store()
			if (after.Epoch != before.Epoch) != row.renewed || after.Epoch < before.Epoch || (after.Lost != 0) != row.lost {
				t.Errorf("%s: the epoch was %v and is %v", row.name, before, after)
			}
			if after.Since == 0 || (after.Since != before.Since) != row.renewed || after.Lost > after.Since {
				t.Errorf("%s: the epoch began at %d and now at %d, after a loss at %d", row.name, before.Since, after.Since, after.Lost)
			}
			steps := strings.Contains(row.name, "clock") && row.name != "the clock steps beyond the life of keys"
			dataLost := row.lost && !steps
			if (after.DataLost != 0) != dataLost || (after.LostIn > before.Epoch) != dataLost || after.LostIn > after.Epoch {
				t.Errorf("%s: the periods of calendars have lost data: %v", row.name, after)
			}
			cause := state.Unknown
			switch {
			case row.lost && strings.Contains(row.name, "clock"):
				cause = state.Stepped
			case row.lost:
				cause = state.Lost
			}
			if got := one.Cause(); got != cause {
				t.Errorf("%s: the cause is %d, want %d", row.name, got, cause)
			}
			if two.Store() != after {
				t.Errorf("%s: a sibling has %v, not %v", row.name, two.Store(), after)
			}
			if sibling := s.tables["one"].Siblings(); len(sibling) != 1 {
				t.Errorf("%s: the siblings are %v", row.name, sibling)
			}
		})
	}
}

// A process that starts takes over the epoch of one that was alive; where none was, nobody
// watched the clock.
func TestEpochOfAStart(t *testing.T) {
	for _, row := range []struct {
		name    string
		dies    bool          // the process before, without removing its entry
		pause   time.Duration // until the next starts
		renewed bool
		within  time.Duration // until the next has an epoch
	}{
		{"beside another", false, 0, false, 3 * time.Second},
		{"after one that died just now", true, time.Second, true, state.GoneAfter + 2*state.TurnEvery},
		{"after one that died a while ago", true, time.Minute, true, 0},
	} {
		inBubble(t, func(s *shared) {
			one, run := s.join("one")
			stop := run()
			time.Sleep(time.Minute)
			before := one.Store()
			if row.dies {
				s.away.Store(true)
				stop()
				s.away.Store(false)
			} else {
				defer stop()
			}
			time.Sleep(row.pause)
			two, runTwo := s.join("two")
			three, runThree := s.join("three")
			for _, st := range []*state.State{two, three} { // at the same time
				s.adopt(st, file(1, 1, 1))
			}
			defer runTwo()()
			defer runThree()()
			began := time.Now()
			for two.Store().Epoch == 0 && time.Since(began) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > row.within {
				t.Errorf("%s: an epoch only after %v", row.name, took)
			}
			time.Sleep(state.GoneAfter + 2*state.TurnEvery)
			if got := two.Store(); (got.Epoch != before.Epoch) != row.renewed || got.Lost != 0 || three.Store() != got {
				t.Errorf("%s: the epoch was %v, and is %v and %v", row.name, before, got, three.Store())
			}
		})
	}
}

// The first process after a flush that none has seen begins another epoch, which is none of before. Only a peer can show that there
// was one, and that data are lost.
func TestFlushBeforeAStart(t *testing.T) {
	for _, row := range []struct {
		shown bool
		step  time.Duration // of the clock before that
	}{{false, 0}, {true, 0}, {true, time.Second}} {
		inBubble(t, func(s *shared) {
			one, stop := s.start("one")
			time.Sleep(time.Minute)
			before := one.Store()
			stop()
			s.redis.FlushAll()
			one, stop = s.start("one")
			defer stop()
			time.Sleep(3 * state.TurnEvery)
			s.ahead.Add(int64(row.step))
			time.Sleep(3 * state.TurnEvery)
			if row.shown {
				one.Seen(before.Epoch)
				if one.Store() != (loan.Store{}) {
					t.Errorf("a loss is known, and the epoch is %v", one.Store())
				}
			}
			time.Sleep(3 * state.TurnEvery)
			if got := one.Store(); got.Epoch <= before.Epoch || (got.Lost > 0) != row.shown || (got.LostIn > 0) != row.shown {
				t.Errorf("%+v: the epoch was %v and is %v", row, before, got)
			}
		})
	}
}

// An epoch that a peer shows before the store was read is known too: the next is above it.
func TestSeenBeforeTheFirstTurn(t *testing.T) {
	inBubble(t, func(s *shared) {
		const seen = 3_000_000_000
		one, run := s.join("one")
		one.Seen(seen)
		defer run()()
		time.Sleep(3 * state.TurnEvery)
		if got := one.Store(); got.Epoch <= seen || got.Lost == 0 {
			t.Errorf("the epoch of an empty hash is %v, and a peer has seen %d", got, seen)
		}
	})
}
