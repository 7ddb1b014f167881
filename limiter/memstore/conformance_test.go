package memstore

import (
	"sync/atomic"
	"testing"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
)

// timedMemory starts memory stores for the suite. Like a Redis under its script they expire
// nothing while their clock goes days forward and back.
func timedMemory(testing.TB) (store.Store, func(us int64)) {
	var us atomic.Int64
	return NewTimedMemory(us.Load), us.Store
}

func TestConformance(t *testing.T) { limitertest.Run(t, timedMemory) }

func TestPrograms(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.RunPrograms(t, timedMemory)
}

func TestLoans(t *testing.T) { limitertest.RunLoans(t, timedMemory) }

func TestBoundOfAFastClock(t *testing.T) { limitertest.BoundOfAFastClock(t, timedMemory) }

func TestBoundOfPeriods(t *testing.T) { limitertest.BoundOfPeriods(t, timedMemory) }

func TestPeriodBounds(t *testing.T) { limitertest.RunPeriodBounds(t, timedMemory) }

func TestLoansOfPeriods(t *testing.T) { limitertest.LoansOfPeriods(t, timedMemory) }

func TestLoansAfterALoss(t *testing.T) { limitertest.LoansAfterALoss(t, timedMemory) }

func TestBehindTheEpoch(t *testing.T) { limitertest.BehindTheEpoch(t, timedMemory) }

func TestReportOfASwing(t *testing.T) { limitertest.ReportOfASwing(t, timedMemory) }

func TestCountersAddUpWhenTheClockSteps(t *testing.T) { limitertest.CountersAddUp(t, timedMemory) }

func TestCountersThatAreLost(t *testing.T) { limitertest.CountersThatAreLost(t, timedMemory) }

func TestCountersOfAReset(t *testing.T) { limitertest.CountersOfAReset(t, timedMemory) }

func TestHoldsTooMany(t *testing.T) { limitertest.HoldsTooMany(t, timedMemory) }

func TestHoldPrograms(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.RunHoldPrograms(t, timedMemory)
}
