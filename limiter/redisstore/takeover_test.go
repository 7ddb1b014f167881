package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/test/redisserver"
)

// A server that is started anew with all that it had costs no loss: it is open once both processes have found that. Until then,
// and from the first call on, a bounded limit admits nothing. If one of them never comes it is a loss.
func TestRestart(t *testing.T) {
	for name, dies := range map[string]bool{"both come": false, "one dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redisserver.Start(t, redisserver.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			var known atomic.Pointer[state.State]
			o := Options{Addrs: []string{srv.Addr()}, Epoch: state.Key, Budget: 2 * time.Second}
			o.Unknown = func(ctx context.Context) {
				if st := known.Load(); st != nil {
					st.Turn(ctx)
				}
			}
			s, count := nodeSetStore(t, o)
			one, _ := stateOn(s, "one")
			two, _ := stateOn(s, "two")
			known.Store(one)
			top := &region.Topology{Revision: 3, Regions: []region.Region{{Name: "a", Weight: 1}}}
			for _, st := range []*state.State{one, two, one, two} {
				ok(t, st.Adopt(t.Context(), top))
				st.Turn(t.Context())
			}
			room := func() int64 {
				t.Helper()
				call := hour().Call("acme", store.OpPeek, 1, nil)
				call.Bounds = []quota.Bound{{Share: 10, Epoch: one.Store().Epoch}}
				for began := time.Now(); ; {
					v, err := limitertest.DecideOne(s, call)
					if err == nil {
						return v.Limits[0].Bounded
					}
					if time.Since(began) > 10*time.Second {
						t.Fatal(err)
					}
				}
			}
			before, call := one.Store(), room()
			if call != 10 || two.Store() != before {
				t.Fatalf("at first a bounded limit may hold %d, and the epochs are %v and %v", call, before, two.Store())
			}
			srv.Restart()
			if got := room(); got != 0 {
				t.Errorf("before both have come it may hold %d", got)
			}
			for began := time.Now(); one.Store().Epoch == 0 && time.Since(began) < 5*time.Second; {
				if !dies {
					two.Turn(t.Context())
				}
				one.Turn(t.Context())
			}
			got := one.Store()
			if got.Epoch <= before.Epoch || (got.Lost > 0) != dies || room() != 10 {
				t.Errorf("the epoch was %v and is %v, a bounded limit may hold %d", before, got, room())
			}
			losses := count("regiond.redis.losses")
			if want := map[bool]int64{true: 1}[dies]; losses != want {
				t.Errorf("%d losses are counted, want %d", losses, want)
			}
		})
	}
}
