package loansim_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/test/loansim"
)

// TestSmallWorlds visits every state of the smallest worlds, and of two larger ones so many.
func TestSmallWorlds(t *testing.T) {
	t.Parallel()
	for _, o := range []loansim.Small{
		{Shares: []int64{2, 1}, Flights: 2},
		{Shares: []int64{2, 1}, Flights: 1, Loss: true},
		{Shares: []int64{2, 1}, Flights: 1, Steps: true, Most: 60_000},
		{Shares: []int64{2, 1}, Flights: 1, Next: []int64{1, 2}},
		{Shares: []int64{2, 1}, Flights: 1, Window: 2},
		{Shares: []int64{1, 1}, Flights: 1, Smaller: []int64{1, 0}},
		{Shares: []int64{2, 1}, Flights: 1, Smaller: []int64{1, 1}, Most: 60_000},
		{Shares: []int64{1, 1, 1}, Flights: 1, Most: 60_000},
	} {
		n, found, whole := o.Visit()
		t.Logf("%v: %d states, all of them: %v", o, n, whole)
		if found != nil {
			t.Errorf("%v: above the bound:\n%s", o, strings.Join(found.Steps, "\n"))
		}
		if !whole && o.Most == 0 {
			t.Errorf("%v: gave up after %d states", o, n)
		}
	}
}

// TestSmallWorldsNeedEachRule leaves out one rule at a time.
func TestSmallWorldsNeedEachRule(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Sorted(maps.Keys(loansim.Mutants)) {
		n, found, _ := loansim.SmallFor(m).Visit()
		if found == nil {
			t.Errorf("%s (%s): not found in %d states", m, loansim.Mutants[m], n)
			continue
		}
		t.Logf("%s: found after %d states, in %d steps: %s", m, n, len(found.Steps), strings.Join(found.Steps, "; "))
	}
}
