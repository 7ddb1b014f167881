package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// reserving is a reserve of an amount under a limit of tokens and a concurrent one, for a minute.
func reserving(id, amount int64) store.Call { return reservingFor("acme", id, amount) }

func reservingFor(tenant string, id, amount int64) store.Call {
	c := limitertest.Ask(
		&quota.Limit{Name: "tokens", Units: 100_000, Window: time.Hour, Counts: quota.CountsTokens},
		&quota.Limit{Name: "inflight", Units: quota.MaxHolds, Window: time.Minute, Algorithm: quota.Concurrent},
	).Call(tenant, store.OpReserve, amount, nil)
	c.Hold = store.Hold{ID: id, TTLUS: 60_000_000, KeepUS: 120_000_000}
	return c
}

// TestBytesPerHold measures what an open hold takes under a limit, with ids and amounts as long as they come: the mean over many
// sets, since Redis draws how high a node of a sorted set is.
func TestBytesPerHold(t *testing.T) {
	srv, s := onRedis(t)
	const most, tenants = 120, 16
	calls := make([]store.Call, tenants)
	for filled := int64(1); filled <= 520; filled++ {
		for i := range calls {
			calls[i] = reservingFor(fmt.Sprintf("t%02d", i), store.MaxHoldID-filled, 40)
		}
		must(limitertest.Decide(s, calls...))(t)
		if filled != 500 && filled != 520 { // the set's table is doubled at 512
			continue
		}
		bytes := int64(0)
		for _, c := range calls {
			for _, key := range c.Keys {
				bytes += srv.Client().MemoryUsage(context.Background(), store.HoldsKey(key), 0).Val()
			}
		}
		holds := 2 * tenants * filled
		t.Logf("of %d holds in a set each takes %.1f bytes", filled, float64(bytes)/float64(holds))
		if bytes == 0 || bytes > most*holds {
			t.Errorf("%d holds take %d bytes, above %d each", holds, bytes, most)
		}
	}
}

// TestHoldsLiveLongEnough: a set outlives its last hold by a minute and the ttl of one more, and a record the end of its holds by
// what was asked.
func TestHoldsLiveLongEnough(t *testing.T) {
	srv, s := onRedis(t)
	long, short := reserving(1, 10), reserving(2, 10)
	long.Hold.TTLUS, short.Hold.TTLUS = 600_000_000, 1_000_000
	must(limitertest.Decide(s, long, short))(t)
	for key, want := range map[string]time.Duration{
		store.HoldsKey(long.Keys[0]): 21 * time.Minute, store.HoldsKey(long.Keys[1]): 21 * time.Minute,
		store.ReservationKey(long.Keys[0], 1): 12 * time.Minute, store.ReservationKey(long.Keys[0], 2): 121 * time.Second,
	} {
		if got := srv.Client().PTTL(context.Background(), key).Val(); got < want-10*time.Second || got > want+time.Second {
			t.Errorf("%s lives %v, want %v", key, got, want)
		}
	}
	ok(t, s.ResetAll(context.Background(), "acme", 0))
	if keys := srv.Client().Keys(context.Background(), "rl:{acme}*").Val(); len(keys) != 0 {
		t.Errorf("after a reset there are %q", keys)
	}
}

// TestSetsThatBeginAnewExpire: a set whose other holds are all over, or whose only hold is renewed, is another key for Redis.
func TestSetsThatBeginAnewExpire(t *testing.T) {
	srv, s, now := onTimedRedis(t, limitertest.MovedLua)
	first, second := reserving(1, 10), reserving(2, 10)
	second.Hold.TTLUS = 1_000_000
	renewed := second
	renewed.Op = store.OpExtend
	us := srv.Time()
	for i, c := range []store.Call{first, second, renewed} {
		now(us + int64(i)*first.Hold.TTLUS - int64(i/2)*first.Hold.TTLUS)
		if v, err := limitertest.DecideOne(s, c); err != nil || v.Outcome != store.Admitted {
			t.Fatalf("call %d: %+v, %v", i, v, err)
		}
		for _, key := range c.Keys {
			if got := srv.Client().PTTL(context.Background(), store.HoldsKey(key)).Val(); got <= time.Minute {
				t.Errorf("after call %d %s lives %v", i, key, got)
			}
		}
	}
}

// TestHoldsOfALimitThatIsGone: a settle under other limits than those that were held frees what was held all the same.
func TestHoldsOfALimitThatIsGone(t *testing.T) {
	srv, s := onRedis(t)
	before := reserving(7, 60)
	after := limitertest.Ask(&quota.Limit{Name: "requests", Units: 5, Window: time.Hour}).Call("acme", store.OpSettle, 25, nil)
	after.Hold = before.Hold
	v, err := limitertest.Decide(s, before, after)
	if err != nil || v[1].Outcome != store.Settled || !v[1].Hold.Released || v[1].Hold.Charged != 25 || v[1].Limits[0].Remaining != 5 {
		t.Errorf("settled: %+v, %v", v, err)
	}
	if n := srv.Client().Exists(context.Background(), store.HoldsKey(before.Keys[0]), store.HoldsKey(before.Keys[1])).Val(); n != 0 {
		t.Errorf("%d sets have holds still", n)
	}
}

// TestDamagedHolds: a set or a record that cannot be read fails alone, and nothing is written of its call.
func TestDamagedHolds(t *testing.T) {
	srv, s := onRedis(t)
	ctx := context.Background()
	for name, damage := range map[string]func(c *store.Call) error{
		"a set that is a string": func(c *store.Call) error { return srv.Client().Set(ctx, store.HoldsKey(c.Keys[1]), "x", 0).Err() },
		"a set without a sum": func(c *store.Call) error {
			return srv.Client().Do(ctx, "ZADD", store.HoldsKey(c.Keys[1]), "5", "1:2").Err()
		},
		"a sum of words": func(c *store.Call) error {
			return srv.Client().Do(ctx, "ZADD", store.HoldsKey(c.Keys[1]), "0", "a b c d e f g", "5", "1:2").Err()
		},
		"a sum beyond numbers": func(c *store.Call) error {
			return srv.Client().Do(ctx, "ZADD", store.HoldsKey(c.Keys[1]), "0", "99999999999999999999 1 1 1 1 1 1", "5", "1:2").Err()
		},
		"a record that is a list": func(c *store.Call) error {
			return srv.Client().RPush(ctx, store.ReservationKey(c.Keys[0], c.Hold.ID), "x").Err()
		},
		"a record of words": func(c *store.Call) error {
			return srv.Client().Set(ctx, store.ReservationKey(c.Keys[0], c.Hold.ID), "settled", 0).Err()
		},
	} {
		flush(t, srv.Client())
		bad, good := reserving(7, 60), limitertest.OneCall("good", 5, 1)
		bad.Op, bad.Hold.GoneUS = store.OpSettle, srv.Time()+1_000_000_000
		ok(t, damage(&bad))
		v, _ := limitertest.Decide(s, good, bad, good)
		if !errors.Is(v[1].Err, store.ErrPartition) || v[0].Outcome != store.Admitted || v[2].Limits[0].Remaining != 3 {
			t.Errorf("%s: %+v", name, v)
		}
		if n := srv.Client().Exists(ctx, bad.Keys...).Val(); n != 0 {
			t.Errorf("%s: %d keys were charged", name, n)
		}
	}
}

// TestReservationIsReplayed: an Idempotency-Key gives the same reservation again, from Redis and from what a process has
// written for it.
func TestReservationIsReplayed(t *testing.T) {
	_, s := onRedis(t)
	c := reserving(7, 60)
	c.Record, c.Print = store.RecordKey("acme", "k"), "p"
	again := c
	again.Hold.ID = 8
	v, err := limitertest.Decide(s, c, again)
	if err != nil || v[1].Outcome != store.Replayed || v[1].Hold != v[0].Hold || v[0].Hold.ID != 7 || fmt.Sprint(v[1].Earlier.Limits) != fmt.Sprint(v[0].Limits) {
		t.Fatalf("%+v, %v", v, err)
	}
	own := &store.Admission{
		Record: store.RecordKey("acme", "own"), Print: "p", US: v[0].StoreUS, Plan: c.Plan, Ceilings: c.Ceilings, Limits: v[0].Limits, Hold: v[0].Hold,
	}
	s.Remember(context.Background(), []*store.Admission{own}, func(*store.Admission) int64 { return 0 }, func(int, bool) {})
	again.Record = own.Record
	replay, err := limitertest.DecideOne(s, again)
	later := replay.Hold.ExpiresUS - v[0].Hold.ExpiresUS // it is written as of now, and lasts for as long
	replay.Hold.ExpiresUS -= later
	if err != nil || replay.Outcome != store.Replayed || replay.Hold != v[0].Hold || later < 0 || later > replay.StoreUS-v[0].StoreUS {
		t.Errorf("%+v, %v", replay, err)
	}
}

// TestGaugeOutlivesItsHolds: what peers have to know of holds is read back with the counter, which lives longer than they do, also
// when it is made again with another bucket.
func TestGaugeOutlivesItsHolds(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s, now, ctx := newRedis(t, srv.Addr(), limitertest.MovedLua), limitertest.ClockOf(t, srv.Client()), context.Background()
	q := limitertest.Ask(&quota.Limit{Name: "tokens", Units: 100, Window: time.Second, Counts: quota.CountsTokens, Scope: quota.ScopeGlobal})
	held, check := q.Call("acme", store.OpReserve, 60, nil), q.Call("acme", store.OpCheck, 1, nil)
	held.Hold = store.Hold{ID: 7, TTLUS: 600_000_000, KeepUS: 1}
	us := srv.Time()
	want := quota.Gauge{Sequence: us, Units: 60, UntilUS: us + held.Hold.TTLUS}
	for i, c := range []store.Call{held, check, check} {
		now(us + int64(i)*2_000_000)
		v, err := limitertest.DecideOne(s, c)
		if err != nil || v.Limits[0].Gauge != want {
			t.Fatalf("call %d: %+v, %v", i, v, err)
		}
		key := string(store.AppendCounterKey(nil, &c.Counters[0]))
		if left := srv.Client().PTTL(ctx, key).Val(); left < 10*time.Minute+50*time.Second || left > 11*time.Minute {
			t.Errorf("after call %d its counter lives %v", i, left)
		}
		err = s.Counters(ctx, func(k quota.CounterKey, buckets []quota.Counter, g quota.Gauge, _ int64) {
			if k != c.Counters[0] || g != want || buckets[len(buckets)-1] != v.Limits[0].Counter {
				t.Errorf("after call %d %v is read back as %v with gauge %+v", i, k, buckets, g)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, garbage := range []string{"", "1 2", "a 2 3", "1 2 3 4", "1 99999999999999999999 3"} {
		key := string(store.AppendCounterKey(nil, &check.Counters[0]))
		srv.Client().HSet(ctx, key, "h", garbage)
		v, _ := limitertest.Decide(s, limitertest.OneCall("good", 5, 1), check, limitertest.OneCall("good", 5, 1))
		if !errors.Is(v[1].Err, store.ErrPartition) || v[0].Outcome != store.Admitted || v[2].Outcome != store.Admitted {
			t.Errorf("gauge %q: %+v", garbage, v)
		}
		err := s.Counters(ctx, func(k quota.CounterKey, _ []quota.Counter, g quota.Gauge, _ int64) {
			t.Errorf("gauge %q of %v is read back as %+v", garbage, k, g)
		})
		if err != nil {
			t.Fatal(err)
		}
		srv.Client().Del(ctx, "rl:{good}:l:standard:::")
	}
}

// TestGaugeAfterFailover: a replica that takes over without the newest changes of holds does not use their numbers again, which
// peers have: they would not believe it. Its counter has lost nothing, since none of the changes used anything.
func TestGaugeAfterFailover(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s, now, ctx := newRedis(t, srv.Addr(), limitertest.MovedLua), limitertest.ClockOf(t, srv.Client()), context.Background()
	q := limitertest.Ask(&quota.Limit{Name: "tokens", Units: 100, Window: time.Second, Counts: quota.CountsTokens, Scope: quota.ScopeGlobal})
	us := srv.Time()
	ask := func(op store.Op, id, cost int64) (quota.Counter, quota.Gauge) {
		t.Helper()
		c := q.Call("acme", op, cost, nil)
		c.Hold = store.Hold{ID: id, TTLUS: 600_000_000, KeepUS: 1_000_000, GoneUS: us + 700_000_000}
		us += 1000
		now(us)
		v, err := limitertest.DecideOne(s, c)
		if err != nil || v.Outcome != store.Admitted && v.Outcome != store.Settled {
			t.Fatalf("%c of %d: %+v, %v", op, id, v, err)
		}
		return v.Limits[0].Counter, v.Limits[0].Gauge
	}
	ask(store.OpReserve, 1, 60)
	replica := map[string]string{}
	for _, key := range srv.Client().Keys(ctx, "rl:{acme}:*").Val() {
		replica[key] = srv.Client().Dump(ctx, key).Val()
	}
	ask(store.OpReserve, 2, 10)
	known, published := ask(store.OpReserve, 3, 10)
	for _, key := range srv.Client().Keys(ctx, "rl:{acme}:*").Val() {
		srv.Client().Del(ctx, key)
		if was := replica[key]; was != "" {
			ok(t, srv.Client().Restore(ctx, key, 700*time.Second, was).Err())
		}
	}
	counter, gauge := ask(store.OpSettle, 1, 0)
	if !counter.Holds(known) || counter.Generation != known.Generation || gauge.Units != 0 {
		t.Fatalf("%+v with gauge %+v after %+v", counter, gauge, known)
	}
	if gauge.Sequence <= published.Sequence {
		t.Errorf("gauge %+v is not newer than %+v, which peers have", gauge, published)
	}
}
