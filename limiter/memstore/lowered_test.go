package memstore

import (
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// A log lives on as long as a former limit needs it, when a shorter one has charged it since.
func TestLogOutlivesALoweredLimit(t *testing.T) {
	us := limitertest.Epoch
	s := New(Options{Now: func() int64 { return us }})
	ask := func(units int64, window time.Duration, cost int64) byte {
		c := limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: window}).Call("acme", store.OpCheck, cost, nil)
		v, err := limitertest.Decide(s, c)
		if err != nil {
			t.Fatal(err)
		}
		return v[0].Outcome
	}
	ask(100, time.Minute, 100)
	us += 2_000_000
	ask(10, time.Second, 1)
	us += 50_000_000
	if got := ask(100, time.Minute, 1); got != store.Denied {
		t.Errorf("100 of 100 used 52 s ago, and a check gets %c", got)
	}
}
