package loansim_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/regiond/regiond/test/loansim"
)

// TestPeriodicWorlds visits every state of the smallest worlds with two periods of a calendar, and of larger ones so many, or as many
// as LOANSIM_STATES says.
func TestPeriodicWorlds(t *testing.T) {
	t.Parallel()
	most := 40_000
	if n, err := strconv.Atoi(os.Getenv("LOANSIM_STATES")); err == nil {
		most = n
	}
	for _, o := range []loansim.Periodic{
		{Shares: []int64{0, 1}, Flights: 2},
		{Shares: []int64{0, 1}, Flights: 1, Steps: 1},
		{Shares: []int64{0, 1}, Flights: 1, Steps: 1, Unseen: true, Holds: true},
		{Shares: []int64{0, 1}, Flights: 1, Losses: 1, Most: most},
		{Shares: []int64{0, 1}, Flights: 1, Losses: 1, Epochs: 1, Most: most},
		{Shares: []int64{0, 1}, Flights: 1, Steps: 1, Holds: true, Most: most},
		{Shares: []int64{1, 1}, Flights: 1, Most: most},
		{Shares: []int64{1, 1}, Flights: 1, Steps: 1, Losses: 1, Most: most},
		{Shares: []int64{1, 1}, Flights: 1, Losses: 1, Holds: true, Most: most},
		{Shares: []int64{2, 1}, Flights: 2, Steps: 1, Most: most},
	} {
		holds(t, o, o.Most)
	}
}

// TestPeriodicWorldsNeedEachRule leaves out one rule at a time.
func TestPeriodicWorldsNeedEachRule(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Sorted(maps.Keys(loansim.PeriodMutants)) {
		breaks(t, m+" ("+loansim.PeriodMutants[m]+")", loansim.PeriodicFor(m))
	}
}
