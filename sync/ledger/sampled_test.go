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
	l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: units}, quota.Gauge{}, startUS)
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

// TestChecks: a check belongs to the publication that carries its usage, to no other and once. take gives
// so many counters.
func TestChecks(t *testing.T) {
	type step func(l *ledger.Ledger) (linked []byte)
	charged := func(id uint64, units int64, by byte) step {
		return func(l *ledger.Ledger) []byte { charge(l, id, units, check(by)); return nil }
	}
	take := func(entries int) step {
		return func(l *ledger.Ledger) []byte { return numbers(linked(l, entries)) }
	}
	takeOnly := func(l *ledger.Ledger) []byte { l.Take(100, true, 1); return nil }
	checks := func(l *ledger.Ledger) []byte { return numbers(l.Checks()) }
	local := func(l *ledger.Ledger) []byte {
		s, by := pairLimit, check(1)
		s.Check = &by
		l.Local(&s, 1, startUS)
		return nil
	}
	many, newest := []step{}, []byte{}
	for i := range ledger.MaxChecks + 5 {
		many = append(many, charged(uint64(i), 1, byte(i+1)))
		if i >= 5 {
			newest = append(newest, byte(i+1))
		}
	}
	for name, row := range map[string]struct {
		regions int
		steps   []step
		want    [][]byte // of the steps that link any
	}{
		"later usage is in the next":  {2, []step{charged(1, 1, 1), charged(2, 1, 2), takeOnly, charged(1, 2, 3), checks, checks, take(100)}, [][]byte{{1, 2}, {3}}},
		"in parts":                    {2, []step{charged(1, 1, 1), charged(1<<60, 1, 2), take(1), take(1)}, [][]byte{{1}, {2}}},
		"the later is recorded first": {2, []step{charged(1, 2, 2), charged(1, 1, 1), take(100)}, [][]byte{{2, 1}}},
		"without peers":               {1, []step{charged(1, 1, 1), take(100)}, nil},
		"without the store":           {2, []step{local, take(100)}, [][]byte{{1}}},
		"the newest are kept":         {2, append(many, take(100)), [][]byte{newest}},
	} {
		l := newLedger(t, &fakeClock{}, func(o *ledger.Options) { o.Regions = func() int { return row.regions } })
		var got [][]byte
		for _, s := range row.steps {
			if linked := s(l); len(linked) > 0 {
				got = append(got, linked)
			}
		}
		if !slices.EqualFunc(got, row.want, slices.Equal[[]byte]) {
			t.Errorf("%s: linked to %v, want %v", name, got, row.want)
		}
	}
}
