package top

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

var limits = []*quota.Limit{{Name: "burst"}, {Name: "sustained"}}

func newRecorder(t testing.TB, now func() time.Time) *Recorder {
	t.Helper()
	r, err := NewRecorder(now, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// missed is how many events found no room.
func (r *Recorder) missed() (all int64) {
	for _, n := range r.lost.All() {
		all += n
	}
	return all
}

func keyOf(tenant string) string { return "rl:{" + tenant + "}:l:standard:user:2.42:" }

// contain says where rows, and what is said of all that have none, do not contain the truth.
func contain(l list, exact map[quota.TopRow]int64) error {
	shown := map[quota.TopRow]bool{}
	total := int64(0)
	for _, row := range l.rows {
		name := row
		name.AtLeast, name.AtMost = 0, 0
		if truth := exact[name]; shown[name] || truth < row.AtLeast || truth > row.AtMost {
			return fmt.Errorf("%+v: it had %d, or has two rows", row, truth)
		}
		shown[name] = true
	}
	for name, truth := range exact {
		if total += truth; !shown[name] && truth > l.others {
			return fmt.Errorf("%+v had %d and no row, others have %d at most", name, truth, l.others)
		}
	}
	if total != l.total {
		return fmt.Errorf("%d units in all, there were %d", l.total, total)
	}
	return nil
}

// TestRecorder: windows of random events at random times contain exactly what their generations
// cover, between one window and two.
func TestRecorder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		start := now
		r, err := NewRecorder(func() time.Time { return now }, noop.Meter{})
		if err != nil {
			t.Fatal(err)
		}
		type event struct {
			at   time.Time
			name quota.TopRow
			by   quota.TopBy
			n    int64
		}
		var all []event
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 20, 59, 60, 61, 600, 3599, 3600, 9000}).Draw(t, "seconds")) * time.Second)
			tenant := fmt.Sprintf("t%d", rapid.IntRange(0, 5).Draw(t, "tenant"))
			e := Event{Key: keyOf(tenant), Limits: limits, Which: rapid.Uint64Range(1, 3).Draw(t, "which"), Units: rapid.Int64Range(1, 9).Draw(t, "units"), By: quota.TopBy(rapid.IntRange(0, 1).Draw(t, "by"))}
			r.Record(e)
			for i, l := range limits {
				if e.Which&(1<<i) != 0 {
					all = append(all, event{now, quota.TopRow{Tenant: tenant, Policy: "standard", Limit: l.Name, Partition: "user:2.42:"}, e.By, e.Units})
				}
			}
			for _, by := range kinds {
				for _, window := range quota.TopWindows {
					l := r.list(by, window)
					if l.covers > 2*window || l.covers < min(window, now.Sub(start)) {
						t.Fatalf("a window of %v covers %v, %v after the start", window, l.covers, now.Sub(start))
					}
					exact := map[quota.TopRow]int64{}
					for _, e := range all {
						if e.by == by && now.Sub(e.at) <= l.covers {
							exact[e.name] += e.n
						}
					}
					if err := contain(l, exact); err != nil {
						t.Fatalf("%v in %v: %v", by, window, err)
					}
				}
			}
		}
	})
}

// TestCountsStop: what has more units than are counted has a row that says that there may be more.
func TestCountsStop(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, nil)
	var exact int64
	for range 3 * most / quota.MaxUnits {
		v := r.Report(quota.TopQuery{Window: time.Minute, By: quota.TopUsed, Rows: 9}, "eu")
		said := slices.Contains(v.Notes, "Counts of a process stop at 17592186044416 units: who has as many may have more.")
		if over := len(v.Rows) > 0 && v.Rows[0].AtMost < exact; over && !said || said && exact < most {
			t.Fatalf("of %d units it has %+v, and says %q", exact, v.Rows, v.Notes)
		}
		r.Record(Event{Key: keyOf("acme"), Limits: limits, Which: 1, Units: quota.MaxUnits, By: quota.TopUsed})
		exact += quota.MaxUnits
	}
}

// TestRecorderCrowded: of more events at once than there is room for none is counted twice, those
// that were lost widen the bounds, and they are counted.
func TestRecorderCrowded(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, nil)
	const writers, each = 8, 3 * queuePerProcessor
	exact := map[quota.TopRow]int64{}
	var wg sync.WaitGroup
	for w := range writers {
		tenant := fmt.Sprintf("t%d", w)
		exact[quota.TopRow{Tenant: tenant, Policy: "standard", Limit: "burst", Partition: "user:2.42:"}] = each * int64(w+1)
		wg.Go(func() {
			for range each {
				r.Record(Event{Key: keyOf(tenant), Limits: limits, Which: 1, Units: int64(w + 1), By: quota.TopUsed})
			}
		})
	}
	wg.Wait() // nobody read
	l := r.list(quota.TopUsed, time.Minute)
	if err := contain(l, exact); err != nil {
		t.Fatal(err)
	}
	if held := int64(cap(r.queue)); r.missed() != writers*each-held {
		t.Errorf("%d events lost of %d, with room for %d", r.missed(), writers*each, held)
	}
}

// TestRecorderRun: with a reader, writers that wait for it lose nothing, and all is counted when Run ends.
func TestRecorderRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		sent := int64(0)
		for range 20 {
			for range cap(r.queue) / 2 {
				r.Record(Event{Key: keyOf("acme"), Limits: limits, Which: 1, Units: 2})
				sent += 2
			}
			synctest.Wait()
		}
		time.Sleep(foldEvery) // of the bubble's clock
		synctest.Wait()
		r.mu.Lock()
		if total := r.series[quota.TopDenied].minute.total; total != sent || r.missed() != 0 {
			t.Errorf("%d units counted without being asked and %d events lost, %d units were sent", total, r.missed(), sent)
		}
		r.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkRecord is what the path of a request pays for one partition, and BenchmarkFold what
// counting two limits of it costs afterwards: of one tenant, and of ever new ones.
func BenchmarkRecord(b *testing.B) {
	r := newRecorder(b, nil)
	e := Event{Key: keyOf("acme"), Limits: limits, Which: 3, Units: 1}
	b.ReportAllocs()
	for b.Loop() {
		r.Record(e)
		<-r.queue
	}
}

func BenchmarkFold(b *testing.B) {
	for name, tenants := range map[string]int{"one": 1, "thousand": 1000, "million": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			r := newRecorder(b, nil)
			keys := make([]string, tenants)
			for i := range keys {
				keys[i] = keyOf(fmt.Sprintf("tenant-%d", i))
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				r.count(&Event{Key: keys[i%tenants], Limits: limits, Which: 3, Units: 1})
				i += 7919
			}
		})
	}
}
