package load

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestQuantiles: each is near its place in the sorted list, the nearer the rarer; the worst is exact.
func TestQuantiles(t *testing.T) {
	const n = 10_000
	var l vegeta.LatencyMetrics
	for _, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		l.Add(time.Duration(k+1) * time.Millisecond)
	}
	got := quantiles(&l)
	for _, q := range []struct{ got, want, within float64 }{{got.P50, 5000, 25}, {got.P90, 9000, 25}, {got.P99, 9900, 5}, {got.P999, 9990, 2}, {got.Max, n, 0}} {
		if math.Abs(q.got-q.want) > q.within {
			t.Errorf("%v ms, want %v ± %v: %+v", q.got, q.want, q.within, got)
		}
	}
	if got := quantiles(&vegeta.LatencyMetrics{}); got != (Quantiles{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// TestTally lists answers, and what each counts as.
func TestTally(t *testing.T) {
	const quick = 2 * time.Millisecond
	for _, row := range []struct {
		what  string
		a     answer
		took  time.Duration
		want  Counts
		timed bool
	}{
		{"allowed", answer{Allowed: true, Basis: "exact", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1}, true},
		{"denied", answer{Basis: "cached", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Denied: 1}, true},
		{"observed", answer{Allowed: true, WouldDeny: true, Basis: "exact", Mode: "global"}, quick, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1, WouldDeny: 1}, true},
		{"degraded", answer{Allowed: true, Basis: "local", Mode: "local", Reason: "redis_down"}, quick, Counts{Sent: 1, Answered: 1, Allowed: 1}, true},
		{"shed", answer{Basis: "shed", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Shed: 1}, true},
		{"shed and observed", answer{Allowed: true, Basis: "shed", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Shed: 1}, true},
		{"overloaded and open", answer{Allowed: true, Basis: "open", Mode: "global", Reason: "overloaded"}, quick, Counts{Sent: 1, Answered: 1, Allowed: 1}, true},
		{"timed out", answer{fault: faultTimeout}, quick, Counts{Sent: 1, Failed: 1}, true},
		{"refused", answer{fault: faultRefused}, quick, Counts{Sent: 1, Failed: 1}, false},
		{"refused from afar", answer{fault: faultRefused}, Prompt, Counts{Sent: 1, Failed: 1}, false},
		{"broken at once", answer{fault: faultBroken}, Prompt - 1, Counts{Sent: 1, Failed: 1}, false},
		{"broken after a wait", answer{fault: faultBroken}, Prompt, Counts{Sent: 1, Failed: 1}, true},
		{"a 503 after a wait", answer{fault: "status 503"}, time.Second, Counts{Sent: 1, Failed: 1}, true},
	} {
		got := newTally()
		got.add(&row.a, time.Millisecond, row.took)
		if got.Counts != row.want {
			t.Errorf("%s: %+v", row.what, got.Counts)
		}
		if (got.latency.Max == row.took+time.Millisecond) != row.timed || (got.service.Max == row.took) != row.timed || got.late.Max != time.Millisecond {
			t.Errorf("%s: latency %v, service %v, late %v", row.what, got.latency.Max, got.service.Max, got.late.Max)
		}
		if got.answers[row.a.Basis+"/"+row.a.Mode] != row.want.Answered || row.a.Reason != "" && got.reasons[row.a.Reason] != 1 || row.a.fault != "" && got.faults[row.a.fault] != 1 {
			t.Errorf("%s: %v %v %v", row.what, got.answers, got.reasons, got.faults)
		}
	}
}
