package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQuantiles: those of the histogram are those of the sorted list, to three digits.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(1, int64(3*time.Minute/time.Microsecond)), 1, 300).Draw(t, "µs")
		all := newTally()
		for _, us := range times {
			record(all.latency, time.Duration(us)*time.Microsecond)
		}
		sorted := slices.Sorted(slices.Values(times))
		got := quantiles(all.latency)
		for _, q := range []struct {
			part float64
			got  float64
		}{{0.5, got.P50}, {0.9, got.P90}, {0.99, got.P99}, {0.999, got.P999}, {1, got.Max}} {
			rank := max(1, min(len(sorted), int(math.Round(q.part*float64(len(sorted))))))
			want := float64(sorted[rank-1]) / 1000
			if q.got < want || q.got > want*1.001+0.001 {
				t.Fatalf("%v of all took at most %v ms, want %v: %v", q.part, q.got, want, sorted)
			}
		}
	})
}

// TestTally lists answers, and what each counts as.
func TestTally(t *testing.T) {
	const quick = 2 * time.Millisecond
	for _, row := range []struct {
		what  string
		a     Answer
		took  time.Duration
		want  Counts
		timed int64
	}{
		{"allowed", Answer{Allowed: true, Basis: "exact", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1}, 1},
		{"denied", Answer{Basis: "cached", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Denied: 1}, 1},
		{"observed", Answer{Allowed: true, WouldDeny: true, Basis: "exact", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1, WouldDeny: 1}, 1},
		{"degraded", Answer{Allowed: true, Basis: "local", Mode: "local", Reason: "redis_down"}, quick, Counts{Sent: 1, Answered: 1, Allowed: 1}, 1},
		{"shed", Answer{Basis: "shed", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Shed: 1}, 1},
		{"shed and observed", Answer{Allowed: true, Basis: "shed", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Shed: 1}, 1},
		{"overloaded and open", Answer{Allowed: true, Basis: "open", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Allowed: 1}, 1},
		{"timed out", Answer{Fault: FaultTimeout}, quick, Counts{Sent: 1, Failed: 1}, 1},
		{"refused", Answer{Fault: FaultRefused}, quick, Counts{Sent: 1, Failed: 1}, 0},
		{"refused from afar", Answer{Fault: FaultRefused}, Prompt, Counts{Sent: 1, Failed: 1}, 0},
		{"broken at once", Answer{Fault: FaultBroken}, Prompt - 1, Counts{Sent: 1, Failed: 1}, 0},
		{"broken after a wait", Answer{Fault: FaultBroken}, Prompt, Counts{Sent: 1, Failed: 1}, 1},
		{"a 503 after a wait", Answer{Fault: "status 503"}, time.Second, Counts{Sent: 1, Failed: 1}, 1},
	} {
		got := newTally()
		got.add(&row.a, time.Millisecond, row.took)
		if got.Counts != row.want {
			t.Errorf("%s: %+v", row.what, got.Counts)
		}
		if got.latency.TotalCount() != row.timed || got.service.TotalCount() != row.timed || got.late.TotalCount() != 1 {
			t.Errorf("%s: %d latencies, %d service times", row.what, got.latency.TotalCount(), got.service.TotalCount())
		}
		if got.answers[row.a.Basis+"/"+row.a.Mode] != row.want.Answered || row.a.Reason != "" && got.reasons[row.a.Reason] != 1 || row.a.Fault != "" && got.faults[row.a.Fault] != 1 {
			t.Errorf("%s: %v %v %v", row.what, got.answers, got.reasons, got.faults)
		}
	}
}
