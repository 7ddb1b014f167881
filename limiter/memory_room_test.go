package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

func (m *memoryClock) held() (keys, records int) {
	for i := range m.shards {
		keys += len(m.shards[i].keys)
		records += len(m.shards[i].records)
	}
	return keys, records
}

// Newcomers beyond the bound are refused, and nobody who is there loses a place;
// when some expire there is room again.
func TestMemoryBounded(t *testing.T) {
	m := newMemoryClock(MemoryOptions{Partitions: 10 * memoryShards})
	refused := 0
	for i := range 5_000 {
		v := m.decideOne(t, oneCall(fmt.Sprint("t", i), 5, 1))
		if v.Err == nil {
			continue
		}
		refused++
		var e *StoreError
		if !errors.As(v.Err, &e) || e.Ambiguous || e.Reason != quota.ReasonRedisRefused {
			t.Fatalf("refused with %v, want redis_refused and nothing charged", v.Err)
		}
	}
	if keys, _ := m.held(); keys > 640 || keys != 5_000-refused {
		t.Errorf("%d partitions are held after %d of 5000 were refused, want at most 640", keys, refused)
	}
	if v := m.decideOne(t, oneCall("t0", 5, 1)); v.Err != nil || v.Limits[0].Remaining != 3 {
		t.Errorf("the first comer: %+v, want 3 remaining", v)
	}
	m.us += (2*time.Minute + ttlMargin).Microseconds() // all but t0 expire, t0 has just
	for i := range 5_000 {
		m.decideOne(t, oneCall(fmt.Sprint("later", i%300), 5, 1))
	}
	if v := m.decideOne(t, oneCall("later7", 5, 1)); v.Err != nil {
		t.Errorf("no room after all had expired: %v", v.Err)
	}
}

// fromAddress is a check of one of a tenant's many partitions.
func fromAddress(tenant string, n int) Call {
	c := oneCall(tenant, 5, 1)
	c.Keys = []string{fmt.Sprintf("rl:{%s}:l:standard:ip:%d:", tenant, n)}
	return c
}

// The room is everybody's: one tenant may fill all of it. Once its partitions have
// expired there is room for others, although that tenant does not come again.
func TestMemoryRoomIsShared(t *testing.T) {
	const most = 5_000
	m := newMemoryClock(MemoryOptions{Partitions: most})
	for i := range most {
		if v := m.decideOne(t, fromAddress("acme", i)); v.Err != nil {
			t.Fatalf("partition %d of %d: %v", i+1, most, v.Err)
		}
	}
	if v := m.decideOne(t, fromAddress("acme", most)); v.Err == nil {
		t.Error("one more than there is room for was admitted")
	}
	if v := m.decideOne(t, fromAddress("acme", 0)); v.Err != nil || v.Limits[0].Remaining != 3 {
		t.Errorf("a partition that is held: %+v, want 3 remaining", v)
	}
	m.us += (2*time.Minute + ttlMargin).Microseconds()
	refused := 0
	for i := range most / 2 {
		if m.decideOne(t, fromAddress(fmt.Sprint("other", i), 0)).Err != nil {
			refused++
		}
	}
	if refused >= memoryShards {
		t.Errorf("%d of %d others were refused when all had expired, want fewer than there are shards to look through", refused, most/2)
	}
}

// A shard that once held much is not searched for ever as if it did: its map is made
// anew, and nothing that is live is lost by that.
func TestMemoryLetsGoOfRoom(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	for i := range 10 * shrinkAbove {
		m.decideOne(t, fromAddress("acme", i))
	}
	m.us += (2*time.Minute + ttlMargin).Microseconds()
	live := fromAddress("acme", -1)
	live.Cost = 5
	m.decideOne(t, live)
	live.Cost = 1
	for range 10 * shrinkAbove { // far more often than it takes to sweep them all
		if v := m.decideOne(t, live); v.Outcome != denied {
			t.Fatalf("who has used its limit gets %+v", v)
		}
	}
	s := m.shard(live.Keys[0])
	if len(s.keys) != 1 || s.widest > 2*shrinkAbove {
		t.Errorf("%d partitions are held in a map that had %d, want 1 and a smaller one", len(s.keys), s.widest)
	}
}

// What is counted as held is what is held, whatever drops it: a sweep, a reset, or a
// question that finds it expired.
func TestMemoryCountsWhatItHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	learnt := func(string) []charge { return []charge{{mirrorStart, 1}} }
	for _, seed := range []func(string) []charge{nil, learnt} {
		m := newMemoryClock(MemoryOptions{Partitions: 300, seed: seed})
		for step := range 20_000 {
			tenant := fmt.Sprint("t", random.IntN(20))
			switch random.IntN(200) {
			case 0:
				m.us += random.Int64N((3 * time.Minute).Microseconds())
			case 1:
				m.renew()
			case 2:
				if err := m.Reset(context.Background(), tenant); err != nil {
					t.Fatal(err)
				}
			default:
				c := fromAddress(tenant, random.IntN(40))
				c.Op = []Op{OpCheck, OpPeek, OpReport}[random.IntN(3)]
				m.decideOne(t, c)
			}
			if keys, _ := m.held(); int64(keys) != m.size.Load() || keys > 300 {
				t.Fatalf("step %d: %d partitions are held and %d counted, want the same and at most 300", step, keys, m.size.Load())
			}
		}
	}
}

// Callers that come together may pass the bound by one call for each shard, and what is
// counted stays right.
func TestMemoryRoomConcurrent(t *testing.T) {
	const most, callers = 500, 8
	var us atomic.Int64
	us.Store(mirrorStart)
	m := NewMemoryStore(MemoryOptions{Now: us.Load, Partitions: most})
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for i := range 2_000 {
				us.Add(30_000) // a partition lives for 6,000 calls, of 16,000
				var v [1]Verdict
				_ = m.Decide(context.Background(), []Call{fromAddress(fmt.Sprint("t", w, ".", i%100), i)}, v[:])
			}
		})
	}
	wg.Wait()
	if n, _ := (&memoryClock{MemoryStore: m}).held(); int64(n) != m.size.Load() || n < most || n > most+memoryShards {
		t.Errorf("%d partitions are held and %d counted, want the same and %d to %d", n, m.size.Load(), most, most+memoryShards)
	}
}
