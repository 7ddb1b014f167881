package clock_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/clock"
)

// stoppable is a local clock that jumps when its process is frozen: the bubble's
// own time, and with it the ticker, knows nothing of the time skipped.
type stoppable struct {
	begun time.Time
	skip  atomic.Int64
}

func (c *stoppable) now() time.Duration { return time.Since(c.begun) + time.Duration(c.skip.Load()) }

func (c *stoppable) freeze(r *redis, d time.Duration) {
	c.skip.Add(int64(d))
	r.moved.Add(int64(d)) // Redis lived on
}

func TestTrackerDistrustsItselfAfterAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &stoppable{begun: time.Now()}
		tracker, r, log := track(t, clock.Options{Now: c.now})
		pass(2*s + 500*ms)

		c.freeze(r, 3*s) // 3.5 s since the last tick: late, but no standstill
		wantTrue(t, tracker, r)
		pass(s)
		wantTrue(t, tracker, r)
		wantLog(t, log, "")

		// Whoever asks first sees it, before the tracker itself has run again.
		c.freeze(r, 4*s)
		if got := tracker.Reading(); got.Valid || got.NowUS == 0 {
			t.Errorf("reading right after a standstill: %+v; want it not valid, though there", got)
		}
		pass(s)
		wantTrue(t, tracker, r)
		wantLog(t, log, `level=WARN msg="process stood still: the region's time is not trusted until the next sample" for=4.999s`+"\n")

		// Ticks alone do not bring trust back, a sample does.
		r.down.Store(true)
		c.freeze(r, time.Hour)
		pass(10 * s)
		if tracker.Reading().Valid {
			t.Error("valid ten ticks after a standstill, without a sample since")
		}
		r.down.Store(false)
		pass(s)
		wantTrue(t, tracker, r)
	})
}

// A standstill in the middle of a reading: the sample is as wide as the gap, and
// good for what it says.
func TestTrackerStandsStillWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &stoppable{begun: time.Now()}
		tracker, r, log := track(t, clock.Options{Now: c.now})
		r.trip.Store(int64(100 * ms))
		pass(1*s + 20*ms) // the second reading is on its way to Redis
		c.freeze(r, 10*s)
		pass(100 * ms)
		wantTrue(t, tracker, r)
		if got := log.take(); !strings.Contains(got, "process stood still") {
			t.Errorf("log is %q, want the standstill", got)
		}
	})
}
