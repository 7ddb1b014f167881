package state_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
)

// manual is a process whose turns the test takes.
func (s *shared) manual(instance string) *state.State {
	began := time.Now()
	return state.New(state.Options{
		Members: members.New(quota.Process{Region: "a", Instance: instance, Boot: began.UnixMicro()}), Eval: s.eval, Alone: true,
		Now: func() time.Duration { return time.Since(began) }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// takeTurns has processes take turns, one after the other.
func takeTurns(times int, all ...*state.State) {
	for range times {
		for _, st := range all {
			st.Turn(context.Background())
		}
		time.Sleep(state.TurnEvery)
	}
}

// Another server takes over. Each step is a turn of a process ("one", "two", "new"), a pause ("wait"), or what happens to the
// store: "copy" keeps it as it is, "over" has a server take over with the copy, "restart" with all, "back" with that of before,
// "flush" empties it. While "dead" or "paused" lasts, "one" alone makes turns; at "quit" it leaves, and at "exit" "two" does.
func TestFailover(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps string // the first letter of each
		open  string // the processes that have an epoch then
		lost  bool
		same  bool // the epoch of before
	}{
		{"nothing", "1 2", "12", false, true},
		{"a restart, and one has not made a turn yet", "r 1", "", false, false},
		{"a restart, and one alone makes turns", "r 1 1 1", "", false, false},
		{"a restart, and all have made a turn", "r 1 2 1", "12", false, false},
		{"a restart, and one never comes", "r 1 w 1", "1", true, false},
		{"a restart, and one comes after it was a loss", "r 1 w 1 2", "12", true, false},
		{"behind by the last turn of one, and the other is first", "c 1 o 2", "", false, false},
		{"behind by the last turn of one, and it comes", "c 1 o 2 1 2", "12", true, false},
		{"behind by the last turn of one, which is first", "c 1 o 1 2", "12", true, false},
		{"behind by the last turn of one, which is dead", "c 1 o 2 w 2", "2", true, false},
		{"a process that knows nothing is first", "r n", "", false, false},
		{"a process that knows nothing is alone", "r n w n", "n", true, false},
		{"a process that knows nothing, and all come", "r n 1 2 1 n", "12n", false, false},
		{"another restart while some are asked", "r 1 r 2", "", false, false},
		{"another restart while some are asked, and all come", "r 1 r 2 1 2", "12", false, false},
		{"a failover back", "c 1 2 r 1 2 b 1 2 1", "12", true, false},
		{"a failover to an empty store", "f r 1 2", "12", true, false},
		{"a step back and a restart", "s r 1 2 1 2", "12", false, false},
		{"a restart and a report of a loss", "r l 1 2 1", "12", true, false},
		{"a restart after the last has left, and one had died before", "d q r n", "n", false, false},
		{"a restart after one has left, and the other dies", "q r n w n", "n", true, false},
		{"behind by the turns of one that was paused while the last left", "p q c 2 o n w n", "n", true, false},
		{"behind by the last turn of one that died, and another restart while it is asked", "c 1 o w w n r n w n", "n", true, false},
		{"behind by the last turn of one that leaves then", "e c 1 o q n w n", "n", true, false},
		{"an empty store, and the last leaves", "e f q n w n", "n", true, false},
	} {
		inBubble(t, func(s *shared) {
			ctx := context.Background()
			all := map[rune]*state.State{'1': s.manual("one"), '2': s.manual("two"), 'n': s.manual("new")}
			takeTurns(3, all['1'], all['2'])
			before := all['1'].Store()
			if before.Epoch == 0 || all['2'].Store() != before {
				t.Fatalf("the epochs are %v and %v", before, all['2'].Store())
			}
			var copied map[string]string
			for _, step := range row.steps {
				switch step {
				case ' ':
					time.Sleep(50 * time.Millisecond)
				case 'w':
					time.Sleep(3 * time.Second)
				case 'c':
					copied = s.copy(state.Key)
				case 'o', 'b':
					s.restore(state.Key, copied)
					s.runs.Add(1)
				case 'r':
					s.runs.Add(1)
				case 'f':
					s.redis.FlushAll()
				case 's':
					s.ahead.Add(-int64(time.Second))
				case 'd':
					takeTurns(70, all['1'])
				case 'p':
					takeTurns(30, all['1'])
				case 'e':
					all['2'].Leave()
				case 'q':
					all['1'].Leave()
				case 'l':
					all['1'].Lose(time.Now().UnixMicro())
				default:
					all[step].Turn(ctx)
				}
			}
			open, epoch := "", loan.Store{}
			for _, id := range "12n" {
				of := all[id].Store()
				if !strings.HasPrefix(s.redis.HGet(state.Key, "epoch"), fmt.Sprintf("%d ", of.Epoch)) {
					continue // the deciding script admits nothing under another
				}
				if open += string(id); epoch != (loan.Store{}) && of != epoch {
					t.Errorf("%s: the epochs are %v and %v", row.name, epoch, of)
				}
				epoch = of
			}
			if open != row.open || (epoch.Lost > 0) != row.lost || open != "" && (epoch.Epoch == before.Epoch) != row.same || epoch.Epoch != 0 && epoch.Epoch < before.Epoch {
				t.Errorf("%s: open are %q with %v, before it was %v", row.name, open, epoch, before)
			}
		})
	}
}

// What was lost while the clock was far ahead was lost before it was set right: a region is not burnt for years, nor are later
// losses excused for as long where an operator has reopened it.
func TestLossUnderAClockThatWasAhead(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		inBubble(t, func(s *shared) {
			ctx := context.Background()
			one, two := s.manual("one"), s.manual("two")
			turns := func() { takeTurns(3, one, two) }
			turns()
			const years = 10 * 365 * 24 * time.Hour
			s.ahead.Add(int64(years))
			turns()
			if got := one.Store(); got.Lost == 0 {
				t.Fatalf("after a step forward the epoch is %v", got)
			}
			if reopened {
				if err := one.Reopen(ctx); err != nil {
					t.Fatal(err)
				}
				turns()
			}
			s.ahead.Add(-int64(years))
			turns()
			us := time.Now().UnixMicro()
			got := two.Store()
			if got != one.Store() || got.Epoch == 0 || got.Lost > us || (got.Lost != 0) == reopened {
				t.Errorf("reopened %v: at %d the epochs are %v and %v", reopened, us, one.Store(), got)
			}
			one.Lose(us)
			turns()
			if after := two.Store(); after.Lost < us || after.Epoch <= got.Epoch || after != one.Store() {
				t.Errorf("reopened %v: after a loss at %d the epochs are %v and %v", reopened, us, one.Store(), after)
			}
		})
	}
}

// What was lost may have counted in a period of a calendar that the clock showed before it was set back a little.
func TestLossAfterAClockWasSetBack(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, two := s.manual("one"), s.manual("two")
		turns := func() { takeTurns(3, one, two) }
		turns()
		const by = 10 * time.Minute
		s.ahead.Add(int64(by))
		turns()
		ahead := time.Now().Add(by).UnixMicro() - (2 * state.TurnEvery).Microseconds()
		if got := one.Store(); got.Lost == 0 || got.DataLost != 0 {
			t.Errorf("after a step of the clock: %v", got)
		}
		s.ahead.Add(-int64(by))
		turns()
		s.redis.FlushAll()
		turns()
		for range 2 { // the second time after another epoch
			if got := one.Store(); got != two.Store() || got.DataLost < ahead || got.DataLost > ahead+time.Minute.Microseconds() || got.Lost > time.Now().UnixMicro() {
				t.Errorf("a loss after the clock was at %d: %v and %v", ahead, got, two.Store())
			}
			s.ahead.Add(-int64(time.Second))
			turns()
		}
	})
}

// A step of the clock burns no period of a calendar: one that a process has noted answers for no loss that another finds then.
func TestLossBesideAStep(t *testing.T) {
	for _, row := range []struct {
		name string
		key  string
	}{
		{"a replica takes over that is ahead, and behind by the last turn of one", state.Key},
		{"a replica of another primary", otherKey},
		{"a partition shows the loss while its process does not reach the store", ""},
	} {
		inBubble(t, func(s *shared) {
			one, run := s.join("one")
			stop := run()
			two, run := s.join("two")
			time.Sleep(time.Second / 2)
			stopTwo := run()
			time.Sleep(time.Minute - time.Second/4)
			before := one.Store()
			copied := s.copy(row.key)
			time.Sleep(time.Second / 2) // in which one of them has made a turn
			ahead := &s.ahead
			if row.key == otherKey {
				ahead = &s.otherAhead
			}
			ahead.Add(int64(time.Second))
			if row.key == "" {
				s.awayFor.Store("one")
				one.Lose(time.Now().UnixMicro())
				time.Sleep(2 * state.TurnEvery)
				s.awayFor.Store("")
			} else {
				s.restore(row.key, copied)
				s.runs.Add(1)
			}
			time.Sleep(20 * time.Second)
			got := one.Store()
			if before.Epoch == 0 || before.LostIn != 0 || got.DataLost == 0 || got.LostIn <= before.Epoch || got != two.Store() {
				t.Errorf("%s: the epoch was %+v, and is %+v and %+v", row.name, before, got, two.Store())
			}
			stop()
			stopTwo()
		})
	}
}

// An operator reopens a region that has lost data: for all its processes, for that loss alone, and not while it asks about
// another server.
func TestReopen(t *testing.T) {
	inBubble(t, func(s *shared) {
		ctx := context.Background()
		one, two := s.manual("one"), s.manual("two")
		turns := func() { takeTurns(2, one, two) }
		turns()
		turns()
		if err := one.Reopen(ctx); !errors.Is(err, state.ErrOpen) {
			t.Errorf("with nothing lost: %v", err)
		}
		there := time.Now().UnixMicro()
		late := s.manual("late") // it is away from the loss until the region is reopened
		takeTurns(2, late, one, two)
		s.redis.FlushAll()
		turns()
		lost := two.Store()
		if lost.Lost == 0 {
			t.Fatalf("after a flush the epoch is %v", lost)
		}
		if err := two.Reopen(ctx); err != nil {
			t.Fatal(err)
		}
		open := two.Store()
		late.Turn(ctx)
		one.Lose(there) // of a partition that shows the same loss later
		turns()
		if got := one.Store(); got != open || open.Lost != 0 || open.Epoch <= lost.Epoch || two.Store() != open {
			t.Errorf("the epoch was %v, then %v, and is %v and %v", lost, open, got, two.Store())
		}
		if open.DataLost != 0 || open.LostIn != lost.Epoch {
			t.Errorf("what was borrowed before epoch %d is void, want %d", open.LostIn, lost.Epoch)
		}
		s.ahead.Add(-int64(time.Second))
		turns()
		if got := one.Store(); got.Lost != 0 || got.Epoch <= open.Epoch || got.DataLost != 0 || got.LostIn != open.LostIn {
			t.Errorf("a step back has made of the epoch %v %v", open, got)
		}
		one.Lose(time.Now().UnixMicro())
		turns()
		again := one.Store()
		if again.Lost == 0 || two.Store() != again {
			t.Errorf("after another loss the epochs are %v and %v", again, two.Store())
		}
		s.runs.Add(1)
		if err := one.Reopen(ctx); err == nil {
			t.Error("reopened while it asks about another server")
		}
		turns()
		if got := two.Store(); got.Lost == 0 || got.Epoch <= again.Epoch || one.Store() != got {
			t.Errorf("after a failover the epochs are %v and %v", one.Store(), got)
		}
		s.away.Store(true)
		if err := one.Reopen(ctx); !errors.Is(err, state.ErrAway) {
			t.Errorf("with redis away: %v", err)
		}
		if err := one.Reopen(ctx); !errors.Is(err, state.ErrAway) {
			t.Errorf("with redis away, again: %v", err)
		}
		before := two.Store()
		s.away.Store(false)
		turns()
		if got := two.Store(); got != before || one.Store() != got {
			t.Errorf("refused while redis was away, it is reopened later: the epoch was %v, and is %v and %v", before, one.Store(), got)
		}
	})
}
