package ledger_test

import (
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/sync/ledger"
)

// startUS is a time on every region's store clock when the tests begin: ten seconds
// into a minute.
const startUS = int64(1_790_000_050_000_000)

// fakeClock is a process's monotonic clock, moved by hand.
type fakeClock struct{ us atomic.Int64 }

func (c *fakeClock) now() time.Duration { return time.Duration(c.us.Load()) * time.Microsecond }

func (c *fakeClock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// tester is a test, by rapid or not.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// newLedger is a ledger of eu-west among two regions, where every L is 600.
func newLedger(tb tester, clock *fakeClock, change func(*ledger.Options)) *ledger.Ledger {
	tb.Helper()
	o := ledger.Options{
		Self: "eu-west", Boot: startUS, Now: clock.now,
		Limit:   func(string) (int64, bool) { return 600, true },
		Regions: func() int { return 2 },
	}
	if change != nil {
		change(&o)
	}
	l, err := ledger.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// roll is what the next Roll gives.
func roll(tb tester, l *ledger.Ledger) []ledger.Cell {
	tb.Helper()
	groups, _ := l.Roll(1)
	return flatten(tb, "eu-west", 2048, groups)
}
