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
		holds(t, o, o.Most)
	}
}

// TestSmallWorldsNeedEachRule leaves out one rule at a time.
func TestSmallWorldsNeedEachRule(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Sorted(maps.Keys(loansim.Mutants)) {
		breaks(t, m+" ("+loansim.Mutants[m]+")", loansim.SmallFor(m))
	}
}

// world is one that a search visits.
type world interface {
	Visit() (states int, found *loansim.Found, whole bool)
}

// holds has no state of a world be above the bound, and all be visited where their number is not bounded.
func holds(t *testing.T, w world, most int) {
	t.Helper()
	n, found, whole := w.Visit()
	t.Logf("%v: %d states, all of them: %v", w, n, whole)
	if found != nil {
		t.Errorf("%v: above the bound:\n%s", w, strings.Join(found.Steps, "\n"))
	}
	if !whole && most == 0 {
		t.Errorf("%v: gave up after %d states", w, n)
	}
}

// breaks has a state of a world that lacks a rule be above the bound.
func breaks(t *testing.T, rule string, w world) {
	t.Helper()
	n, found, _ := w.Visit()
	if found == nil {
		t.Errorf("%s: not found in %d states", rule, n)
		return
	}
	t.Logf("%s: found after %d states, in %d steps: %s", rule, n, len(found.Steps), strings.Join(found.Steps, "; "))
}
