package state_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
)

// shared is a Redis that processes of one region share, in a bubble of fake time.
type shared struct {
	t     *testing.T
	redis *miniredis.Miniredis
	away  atomic.Bool
	ahead atomic.Int64 // ns of true time
	hosts atomic.Int64 // the same of the clock of the host on which processes run
	runs  atomic.Int64 // servers that have taken over
	slow  atomic.Int64 // ns that the first call since takes on its way to the server

	mu         sync.Mutex   // one script at a time, each at its server's time
	awayFor    atomic.Value // the instance that alone does not reach it
	otherAway  atomic.Bool  // the primary that has otherKey
	otherAhead atomic.Int64 // ahead of the primary that has otherKey

	tables map[string]*members.Table // of the newest run of each instance
}

// otherKey is a key on another primary.
const otherKey = "rl:region:{0}"

func (s *shared) copy(key string) map[string]string {
	fields, _ := s.redis.HKeys(key)
	copied := map[string]string{}
	for _, f := range fields {
		copied[f] = s.redis.HGet(key, f)
	}
	return copied
}

func (s *shared) restore(key string, copied map[string]string) {
	s.redis.Del(key)
	for f, value := range copied {
		s.redis.HSet(key, f, value)
	}
}

func inBubble(t *testing.T, f func(s *shared)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shared{t: t, redis: miniredis.NewMiniRedis(), tables: map[string]*members.Table{}}
		s.redis.ClockTTL(true)
		conn, err := s.redis.Dial() // then it has a server
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		s.redis.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "INFO" {
				c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%040x\r\n", s.runs.Load()))
			}
			return cmd == "INFO"
		})
		defer s.redis.Close()
		f(s)
	})
}

func (s *shared) eval(ctx context.Context, script, key string, args ...any) (any, error) {
	if s.away.Load() {
		return nil, net.ErrClosed
	}
	ahead := &s.ahead
	if key == otherKey {
		if s.otherAway.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ahead = &s.otherAhead
	}
	if key == state.Key {
		time.Sleep(time.Duration(s.slow.Swap(0)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(time.Now().Add(time.Duration(ahead.Add(1000)))) // no two calls have one TIME
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return s.redis.Dial() }, Protocol: 2, DisableIdentity: true,
	})
	defer client.Close()
	return client.Eval(ctx, script, []string{key}, args...).Result()
}

// table is that of a process, kept for siblings.
func (s *shared) table(instance string, began time.Time) *members.Table {
	t := members.New(quota.Process{Region: "a", Instance: instance, Boot: began.UnixMicro()})
	s.tables[instance] = t
	return t
}

// join makes a process of the region, which runs until the returned func is called.
func (s *shared) join(instance string) (st *state.State, run func() (stop func())) {
	began := time.Now()
	other, err := clock.New(clock.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	st = state.New(state.Options{
		Members:   s.table(instance, began),
		Primaries: func() map[string]*clock.Clock { return map[string]*clock.Clock{otherKey: other} },
		Eval: func(ctx context.Context, script, key string, args ...any) (any, error) {
			if s.awayFor.Load() == instance {
				return nil, net.ErrClosed
			}
			return s.eval(ctx, script, key, args...)
		},
		Now: func() time.Duration { return time.Since(began) }, Logger: slog.New(slog.DiscardHandler),
		HostUS: func() int64 { return time.Now().Add(time.Duration(s.hosts.Load())).UnixMicro() },
	})
	return st, func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		var g sync.WaitGroup
		g.Go(func() { _ = st.Run(ctx) })
		return func() { cancel(); g.Wait() }
	}
}

// adopt has a process adopt files.
func (s *shared) adopt(st *state.State, files ...*region.Topology) {
	s.t.Helper()
	for _, top := range files {
		if err := st.Adopt(context.Background(), top); err != nil {
			s.t.Fatal(err)
		}
	}
}

// file is a topology of regions a and b, and of c unless its weight is 0.
func file(revision int64, a, c int64) *region.Topology {
	top := &region.Topology{Revision: revision, Regions: []region.Region{{Name: "a", Weight: a}, {Name: "b", Weight: 1}, {Name: "c", Weight: c}}}
	if c == 0 {
		top.Regions = top.Regions[:2]
	}
	top.Policies = []quota.Policy{{Limits: []quota.Limit{{Scope: quota.ScopeGlobal, Units: 100, Window: time.Hour}}}}
	return top
}

// Each process proposes a file to the same region, one after the other.
func TestRevisions(t *testing.T) {
	type shares = map[string]int64 // of 600; nil: nothing bounds them
	for _, row := range []struct {
		name    string
		files   []*region.Topology
		refused string // why the last is
		bounds  shares
		former  []string
	}{
		{"the first", []*region.Topology{file(0, 1, 1)}, "", nil, nil},
		{"the same again", []*region.Topology{file(3, 1, 1), file(3, 1, 1)}, "", nil, nil},
		{"a new number alone", []*region.Topology{file(3, 1, 1), file(4, 1, 1)}, "", nil, nil},
		{"other weights", []*region.Topology{file(3, 1, 1), file(4, 4, 1)}, "", shares{"a": 200, "b": 200, "c": 200}, nil},
		{"and others again", []*region.Topology{file(3, 1, 1), file(4, 4, 1), file(5, 1, 1)}, "", shares{"a": 200, "b": 100, "c": 100}, nil},
		{"a region less", []*region.Topology{file(3, 1, 1), file(4, 1, 0)}, "", shares{"a": 200, "b": 200, "c": 200}, []string{"c"}},
		{"a region that comes back", []*region.Topology{file(3, 1, 1), file(4, 1, 0), file(5, 1, 1)}, "", shares{"a": 200, "b": 200}, nil},
		{"a lower number", []*region.Topology{file(3, 1, 1), file(2, 1, 1)}, "revision 2, and revision 3 is in force", nil, nil},
		{
			"other weights under one number",
			[]*region.Topology{file(3, 1, 1), file(3, 2, 1)},
			"(a 2, b 1, c 1) than are in force in this region (a 1, b 1, c 1), both under revision 3: set revision: 4",
			shares{"a": 200, "b": 200, "c": 200},
			nil,
		},
		{"another region without a number", []*region.Topology{file(0, 1, 1), file(0, 1, 0)}, "set revision: 1", shares{"a": 200, "b": 200, "c": 200}, nil},
	} {
		inBubble(t, func(s *shared) {
			var st *state.State
			var err error
			for i, top := range row.files {
				st, _ = s.join(fmt.Sprint(i))
				err = st.Adopt(context.Background(), top)
			}
			if row.refused == "" && err != nil || row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)) {
				t.Errorf("%s: refused with %v, want %q", row.name, err, row.refused)
			}
			got := st.Snapshot()
			if (got.Bounds == nil) != (row.bounds == nil) {
				t.Errorf("%s: the bounds are %v, want %v", row.name, got.Bounds, row.bounds)
			}
			for name, units := range row.bounds {
				if is := got.Bounds.Share(name, 600); is != units {
					t.Errorf("%s: %s is bound to %d, want %d", row.name, name, is, units)
				}
			}
			if former := got.Topology.Unaged(time.Now().UnixMicro()); !slices.Equal(former, row.former) {
				t.Errorf("%s: former regions %v, want %v", row.name, former, row.former)
			}
			if later := got.Topology.Unaged(time.Now().Add(2*time.Hour + time.Millisecond).UnixMicro()); len(later) > 0 {
				t.Errorf("%s: after two windows %v is still listed", row.name, later)
			}
		})
	}
}

// A topology that every process has bounds nothing any more, also for one that starts
// later; what was settled before another came does not settle that one.
func TestSettle(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, run := s.join("one")
		s.adopt(one, file(1, 1, 1), file(2, 2, 1))
		old := one.Snapshot()
		defer run()()
		s.adopt(one, file(3, 3, 1))
		one.Settle(old)
		time.Sleep(5 * state.TurnEvery / 2)
		if one.Snapshot().Bounds == nil {
			t.Error("an earlier revision was settled, and the newer one counts as settled")
		}
		one.Settle(one.Snapshot())
		time.Sleep(5 * state.TurnEvery / 2)
		two, _ := s.join("two")
		s.adopt(two, file(3, 3, 1))
		if one.Snapshot().Bounds != nil || two.Snapshot().Bounds != nil {
			t.Errorf("settled, and still bound by %v and %v", one.Snapshot().Bounds, two.Snapshot().Bounds)
		}
	})
}

// What all regions have agreed on is known to a process that starts later, and for how long: but for a time in which no process
// watched the clock, and from a step of it on. Another file ends it, and a process that has the file of before knows of none.
func TestAgreedOutlivesProcesses(t *testing.T) {
	const down = 2 * time.Minute
	for _, row := range []struct {
		name      string
		happens   func(s *shared)
		file      *region.Topology
		agreed    bool
		least, at time.Duration // AgreedFor is between
	}{
		{"nothing", func(*shared) {}, file(2, 2, 1), true, 4 * time.Minute, 4*time.Minute + 10*time.Second},
		{"the same weights, with a revision more", func(*shared) {}, file(3, 2, 1), true, 4 * time.Minute, 4*time.Minute + 10*time.Second},
		{"other weights", func(*shared) {}, file(3, 3, 1), false, 0, 0},
		{"the file of before", func(*shared) {}, file(1, 1, 1), false, 0, 0},
		{"the clock stepped while no process ran", func(s *shared) { s.ahead.Add(int64(40 * 24 * time.Hour)) }, file(2, 2, 1), true, 0, 10 * time.Second},
		{"that of the host too", func(s *shared) {
			s.ahead.Add(int64(40 * 24 * time.Hour))
			s.hosts.Add(int64(40 * 24 * time.Hour))
		}, file(2, 2, 1), true, 4 * time.Minute, 4*time.Minute + 10*time.Second},
		{"it was set back", func(s *shared) { s.ahead.Add(-int64(40 * 24 * time.Hour)) }, file(2, 2, 1), true, 0, 0},
		{"the data are lost", func(s *shared) { s.redis.FlushAll() }, file(2, 2, 1), false, 0, 0},
	} {
		inBubble(t, func(s *shared) {
			one, run := s.join("one")
			s.adopt(one, file(1, 1, 1), file(2, 2, 1))
			stop := run()
			time.Sleep(5 * state.TurnEvery)
			if of := one.Snapshot(); of.Agreed || of.Bounds == nil {
				t.Fatalf("%s: before all have agreed: %+v", row.name, of)
			}
			one.Agree(one.Snapshot())
			time.Sleep(4 * time.Minute)
			stop()
			time.Sleep(down / 2)
			row.happens(s)
			time.Sleep(down / 2)
			two, run := s.join("two")
			_ = two.Adopt(context.Background(), row.file)
			defer run()()
			time.Sleep(state.GoneAfter + 2*state.TurnEvery)
			if of := two.Snapshot(); of.Agreed != row.agreed || of.AgreedFor < row.least || of.AgreedFor > row.at {
				t.Errorf("%s: agreed %t for %v, want %t for %v", row.name, of.Agreed, of.AgreedFor, row.agreed, row.least)
			}
		})
	}
}

// A hash that is lost during a rollout takes no floor with it: a process that lives puts it back for those that start.
func TestFloorOutlivesTheHash(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, run := s.join("one")
		s.adopt(one, file(1, 1, 1), file(2, 1, 0))
		before := one.Snapshot()
		defer run()()
		s.redis.FlushAll()
		time.Sleep(5 * state.TurnEvery / 2)
		two, _ := s.join("two")
		s.adopt(two, file(2, 1, 0))
		if got := two.Snapshot(); got.Text != before.Text || got.Bounds == nil {
			t.Errorf("after the loss %s is in force, want %s", got.Text, before.Text)
		}
	})
}

// Of two files with one revision that come at the same time one is refused.
func TestOneOfTwoFilesWins(t *testing.T) {
	inBubble(t, func(s *shared) {
		var g sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			st, _ := s.join(fmt.Sprint(i))
			g.Go(func() { errs[i] = st.Adopt(context.Background(), file(7, int64(1+i), 1)) })
		}
		g.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("the files were taken with %v and %v, want one refused", errs[0], errs[1])
		}
	})
}

// A process is alive while its entry changes, by the reader's clock. Time without the
// store, and steps of the store's clock, are nobody's death.
func TestSiblings(t *testing.T) {
	inBubble(t, func(s *shared) {
		expect := func(when, want string) {
			t.Helper()
			time.Sleep(5 * state.TurnEvery / 2)
			got := ""
			for _, b := range s.tables["one"].Others() {
				if b.Store.Alive {
					got += fmt.Sprintf("%s %v ", b.Instance, b.Store.Sees)
				}
			}
			if got != want {
				t.Errorf("%s: siblings are %q, want %q", when, got, want)
			}
		}
		_, stop := s.start("one")
		defer stop()
		two, stopTwo := s.start("two")
		three, stopThree := s.start("three")
		expect("at first", "three [] two [] ")
		two.See([]string{"a", "b"})
		three.See([]string{"a"})
		expect("they see", "three [a] two [a b] ")
		two.See(nil)
		expect("one joins again", "three [a] two [] ")
		s.away.Store(true)
		time.Sleep(time.Minute)
		expect("Redis is away", "three [a] two [] ")
		s.away.Store(false)
		expect("it is back", "three [a] two [] ")
		stopTwo()
		expect("one has left", "three [a] ")
		s.away.Store(true) // for the third's last words
		stopThree()
		s.away.Store(false)
		expect("one was killed", "three [a] ")
		time.Sleep(state.GoneAfter)
		expect("a while ago", "")
	})
}

// A store that does not answer is no refusal: the file is adopted later. What is no
// topology is reported with its place.
func TestStoreThatCannotBeRead(t *testing.T) {
	inBubble(t, func(s *shared) {
		s.away.Store(true)
		st, run := s.join("one")
		if err := st.Adopt(context.Background(), file(1, 1, 1)); !errors.Is(err, state.ErrAway) || st.Snapshot().Read {
			t.Fatalf("with Redis away: %v", err)
		}
		defer run()()
		s.away.Store(false)
		time.Sleep(5 * state.TurnEvery / 2)
		if got := st.Snapshot(); !got.Read || !got.Adopted || got.Topology.Revision != 1 {
			t.Errorf("with Redis back the state is %+v", got)
		}
		s.away.Store(true)
		if err := st.Adopt(context.Background(), file(2, 2, 1)); !errors.Is(err, state.ErrAway) {
			t.Errorf("another topology while Redis is away: %v", err)
		}
		if err := st.Adopt(context.Background(), file(1, 1, 1)); err != nil {
			t.Errorf("the same topology while Redis is away: %v", err)
		}
		s.away.Store(false)
		time.Sleep(5 * state.TurnEvery / 2)
		if got := st.Snapshot(); got.Topology.Revision != 1 {
			t.Errorf("what could not be written was put in force later: %+v", got.Topology)
		}
		s.redis.HSet(state.Key, "topology", "{")
		other, _ := s.join("two")
		if err := other.Adopt(context.Background(), file(1, 1, 1)); err == nil || !strings.Contains(err.Error(), "field topology of the key rl:region") {
			t.Errorf("garbage: %v", err)
		}
	})
}

// A process that exchanges usage with none notices losses and the clock too, puts no topology in force unless it adopts one, and is
// nobody's sibling.
func TestAlone(t *testing.T) {
	inBubble(t, func(s *shared) {
		one, stop := s.start("one")
		defer stop()
		began, losses := time.Now(), 0
		of, _ := clock.New(clock.Options{})
		alone := state.New(state.Options{
			Members: members.New(quota.Process{Region: "a", Instance: "two", Boot: 7}), Eval: s.eval, Clock: of, Alone: true,
			Now: func() time.Duration { return time.Since(began) }, OnLoss: func() { losses++ }, Logger: slog.New(slog.DiscardHandler),
		})
		for range 3 {
			alone.Turn(context.Background())
			time.Sleep(state.TurnEvery)
		}
		if got := s.tables["one"].Siblings(); len(got) > 0 || losses > 0 || !of.Reading().Valid || alone.Store() != one.Store() {
			t.Errorf("siblings %v, %d losses, a reading %+v, the epoch %v", got, losses, of.Reading(), alone.Store())
		}
		time.Sleep(state.TurnEvery / 2) // between two turns of the other
		s.redis.FlushAll()
		alone.Turn(context.Background())
		if fields, _ := s.redis.HKeys(state.Key); losses != 1 || !slices.Equal(fields, []string{"alone:7:two", "epoch", "server", "watched"}) {
			t.Errorf("%d losses, and the hash has %q", losses, fields)
		}
		alone.Leave()
	})
}

// Without a Redis the state is of this process alone, and the clock that of the store in memory. There too a longer window begins
// another epoch.
func TestInMemory(t *testing.T) {
	us := int64(1_790_000_000_000_000)
	now := func() time.Duration { return time.Second }
	of, _ := clock.New(clock.Options{Now: now})
	st := state.New(state.Options{
		Members: members.New(quota.Process{Region: "a", Instance: "one", Boot: 1}), TimeUS: func() int64 { return us }, Clock: of,
		Now: now, Logger: slog.New(slog.DiscardHandler),
	})
	before := st.Store()
	for i, step := range []struct {
		window  time.Duration
		renewed bool
	}{{time.Second, false}, {time.Minute, true}, {time.Minute, false}, {time.Second, false}} {
		if err := st.Adopt(context.Background(), bounded(step.window)); err != nil {
			t.Fatal(err)
		}
		st.Lose(time.Now().UnixMicro()) // what is in memory is not lost
		st.Turn(context.Background())
		now := st.Store()
		if now.Epoch == 0 || now.Lost != 0 || i > 0 && (now != before) != step.renewed || of.Reading().NowUS != us {
			t.Errorf("%v: the epoch was %v and is %v, at %+v", step.window, before, now, of.Reading())
		}
		before = now
	}
	if got := st.Snapshot().Topology.Revision; got != 1 {
		t.Errorf("revision %d is in force", got)
	}
	st.Leave()
}
