package redisserver_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// A clock that gains a tenth is ahead by a tenth of what has passed, and stays so when
// the gain ends; one that loses falls behind likewise.
func TestSlewGainsAndStays(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	srv.Step(time.Hour)
	for _, rate := range []int64{100_000, -100_000} {
		off := aheadOf(srv)
		earliest := time.Now()
		srv.Slew(rate)
		latest := time.Now()
		for time.Since(latest) < 200*time.Millisecond {
			srv.Time() // time has to pass
		}
		least := time.Since(latest)
		srv.Slew(0)
		most := time.Since(earliest)
		a, b := least*time.Duration(rate)/1_000_000, most*time.Duration(rate)/1_000_000
		want := bounds{min(a, b) - time.Microsecond, max(a, b) + time.Microsecond}
		for range 2 { // the second time it has not gone on
			is := aheadOf(srv)
			if gained := (bounds{is.low - off.high, is.high - off.low}); gained.high < want.low || gained.low > want.high {
				t.Errorf("%d ppm for %v to %v: gained %v, want %v", rate, least, most, gained, want)
			}
		}
	}
}

type bounds struct{ low, high time.Duration }

// aheadOf is by how much a server's clock is ahead of ours.
func aheadOf(srv *redisserver.Server) bounds {
	before := time.Now()
	at := time.UnixMicro(srv.Time())
	return bounds{time.Until(at) - time.Microsecond, at.Sub(before)}
}
