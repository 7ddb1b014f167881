package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// crowdedMemory starts memory stores for the suite, each asked by 64 goroutines for other
// tenants all the while: in all algorithms, with records, in the shared partition, and
// with resets.
func crowdedMemory(t testing.TB) (store.Store, func(us int64)) {
	var us atomic.Int64
	us.Store(limitertest.Epoch)
	s := NewTimedMemory(us.Load)
	q := limitertest.Ask(
		&quota.Limit{Name: "log", Units: 50, Window: time.Second},
		&quota.Limit{Name: "window", Units: 50, Window: time.Second, Algorithm: quota.SlidingWindow},
		&quota.Limit{Name: "level", Units: 50, Window: time.Second, Algorithm: quota.GCRA},
		&quota.Limit{Name: "global", Units: 50, Window: time.Minute, Scope: quota.ScopeGlobal},
	)
	ctx, cancel := context.WithCancel(context.Background())
	var crowd sync.WaitGroup
	for w := range 64 {
		crowd.Go(func() {
			ops := []store.Op{store.OpCheck, store.OpReport, store.OpPeek}
			for i := 0; ctx.Err() == nil; i++ {
				tenant := fmt.Sprint("crowd", (w+i)%20)
				partition := tenant
				if i%5 == 0 {
					partition = ""
				}
				c := q.Call(partition, ops[i%3], 1, nil)
				if i%4 == 0 && c.Op != store.OpPeek {
					c.Record, c.Print = fmt.Sprintf("rl:{%s}:i:%d", tenant, i%9), "p"
				}
				if v, err := limitertest.Decide(s, c); err != nil {
					t.Error(err, v)
				}
				if i%97 == 0 {
					if err := s.ResetAll(ctx, tenant, 0); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		crowd.Wait()
	})
	return s, us.Store
}

// What others do at the same time changes no answer.
func TestConformanceInACrowd(t *testing.T) { limitertest.Run(t, crowdedMemory) }
