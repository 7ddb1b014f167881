package ledger_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

func check(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled})
}

// charge records a counter that a sampled check has brought there.
func charge(l *ledger.Ledger, id uint64, units int64, by trace.SpanContext) {
	s := pairLimit
	s.ID, s.Check = id, &by
	l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: units}, startUS)
}

// linked is the checks of the next publication, of so many counters.
func linked(l *ledger.Ledger, entries int) []trace.SpanContext {
	l.Take(entries, true, 1)
	return l.Checks()
}

func numbers(spans []trace.SpanContext) (ns []byte) {
	for _, s := range spans {
		id := s.TraceID()
		ns = append(ns, id[0])
	}
	return ns
}

// TestChecks: a check belongs to the publication that carries its usage, to no other
// and once.
func TestChecks(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	charge(l, 1, 1, check(1))
	charge(l, 2, 1, check(2))
	l.Take(100, true, 1)
	charge(l, 1, 2, check(3)) // not in it
	if got := numbers(l.Checks()); !slices.Equal(got, []byte{1, 2}) {
		t.Errorf("the first publication is linked to %v", got)
	}
	if got := l.Checks(); got != nil {
		t.Errorf("and once more to %v", got)
	}
	if got := numbers(linked(l, 100)); !slices.Equal(got, []byte{3}) {
		t.Errorf("the second publication is linked to %v", got)
	}
}

// TestChecksOfParts: what is taken in parts has the checks of each part.
func TestChecksOfParts(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	charge(l, 1, 1, check(1))
	charge(l, 2, 1, check(2))
	one := l.Take(1, true, 1)
	if got := l.Checks(); len(got) != 1 || uint64(numbers(got)[0]) != one[0].IDs[0] {
		t.Errorf("%v is linked to %v", one, numbers(got))
	}
	if got := linked(l, 1); len(got) != 1 {
		t.Errorf("the rest is linked to %v", numbers(got))
	}
}

// TestLinkedChecks: which checks one publication is linked to.
func TestLinkedChecks(t *testing.T) {
	for name, row := range map[string]struct {
		regions int
		charge  func(*ledger.Ledger)
		want    []byte
	}{
		"two, of which the later is recorded first": {2, func(l *ledger.Ledger) {
			charge(l, 1, 2, check(2))
			charge(l, 1, 1, check(1))
		}, []byte{2, 1}},
		"without peers": {1, func(l *ledger.Ledger) { charge(l, 1, 1, check(1)) }, nil},
		"without the store": {2, func(l *ledger.Ledger) {
			s, by := pairLimit, check(1)
			s.Check = &by
			l.Local(&s, 1, startUS)
		}, []byte{1}},
	} {
		l := newLedger(t, &fakeClock{}, func(o *ledger.Options) { o.Regions = func() int { return row.regions } })
		row.charge(l)
		if got := numbers(linked(l, 100)); !slices.Equal(got, row.want) {
			t.Errorf("%s: linked to %v, want %v", name, got, row.want)
		}
	}
}

// TestChecksAreBounded: the newest are kept.
func TestChecksAreBounded(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range ledger.MaxChecks + 5 {
		charge(l, uint64(i), 1, check(byte(i+1)))
	}
	got := numbers(linked(l, 100))
	if len(got) != ledger.MaxChecks || got[0] != 6 || got[len(got)-1] != ledger.MaxChecks+5 {
		t.Errorf("%d are kept: %v", len(got), got)
	}
}
