package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// A slot is on its way to a primary that dies: the primary that it comes from stays in use.
func TestDeadTargetOfASlotLeavesTheSourceInUse(t *testing.T) {
	t.Parallel() // it measures no time
	c := redisserver.StartCluster(t, 5*time.Second)
	s, _ := nodeSetStore(t, Options{Mode: quota.RedisCluster, Addrs: c.Addrs()[:2]})
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 1 << 20, Window: time.Hour}})
	ctx := context.Background()
	moving := limitertest.CallOf(plan, "moving", 1)
	slot := c.Slot(moving.Keys[0])
	from, to := c.Primary(slot), c.Primary((slot+16384/3)%16384)
	var bystander store.Call
	for i := 0; ; i++ {
		bystander = limitertest.CallOf(plan, fmt.Sprint("bystander", i), 1)
		if c.Primary(c.Slot(bystander.Keys[0])) == from {
			break
		}
	}
	source := must(s.nodeSet.of(ctx, bystander.Keys[0]))(t)
	c.Begin(slot, from, to)
	to.Kill()
	failed, first := 0, error(nil)
	for range 100 {
		if _, err := limitertest.DecideOne(s, bystander); err != nil {
			failed, first = failed+1, cmp.Or(first, err)
		}
		_, _ = limitertest.DecideOne(s, moving)
		if _, err := limitertest.DecideOne(s, bystander); err != nil {
			failed, first = failed+1, cmp.Or(first, err)
		}
	}
	if failed > 0 || source.breaker.open() {
		t.Errorf("%d of 200 checks of a tenant failed whose primary is well (%v); its breaker is open: %v", failed, first, source.breaker.open())
	}
}

// Slots have moved, and the client does not know it yet: one call has checks of many of them.
// All servers are well, so all are decided, beside them a check that was where it is.
func TestManyMovedSlotsInOneCall(t *testing.T) {
	t.Parallel()
	const way, tenants = 40 * ms, 45
	c := redisserver.StartCluster(t, 5*time.Second)
	var late atomic.Bool
	s := newStore(t, Options{
		Mode: quota.RedisCluster, Addrs: c.Addrs()[:2], Budget: 2 * time.Second,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &lateConn{conn, &late, way}, err
		},
	})
	ctx := context.Background()
	s.probe(ctx)
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: 1 << 20, Window: time.Hour}})
	var calls []store.Call
	from, to := c.Primary(0), c.Primary(16383)
	moved := map[int]bool{}
	for i := 0; len(calls) <= tenants; i++ {
		call := limitertest.CallOf(plan, fmt.Sprint("tenant", i), 1)
		slot := c.Slot(call.Keys[0])
		if moved[slot] || c.Primary(slot) != from {
			continue
		}
		if moved[slot] = true; len(calls) > 0 { // the first stays
			c.Begin(slot, from, to)
			c.End(slot, to)
		}
		calls = append(calls, call)
	}
	for range 10 { // then a call may be a full one
		s.Decide(ctx, slices.Repeat(calls[:1], tenants), make([]store.Verdict, tenants))
	}
	late.Store(true)
	verdicts, start := make([]store.Verdict, len(calls)), time.Now()
	s.Decide(ctx, calls, verdicts)
	failed, first := 0, error(nil)
	for i := range verdicts {
		if verdicts[i].Err != nil {
			failed, first = failed+1, cmp.Or(first, verdicts[i].Err)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d checks failed after %v: %v; of the one that was not moved: %v", failed, len(calls), time.Since(start), first, verdicts[0].Err)
	}
}

// lateConn sends what it is given later, once late is set.
type lateConn struct {
	net.Conn
	late *atomic.Bool
	way  time.Duration
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.late.Load() {
		time.Sleep(c.way)
	}
	return c.Conn.Write(b)
}
