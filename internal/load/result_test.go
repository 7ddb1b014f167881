package load

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/regiond/regiond/test/golden"
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

// TestTally lists answers, what each counts as, and whether it has a latency.
func TestTally(t *testing.T) {
	decided := func(allowed bool, basis string) answer {
		return answer{Answer: Answer{Allowed: allowed, Basis: basis, Mode: "global", Reason: "overloaded"}}
	}
	observed := decided(true, "exact")
	observed.WouldDeny = true
	for _, row := range []struct {
		what  string
		a     answer
		took  time.Duration
		want  Counts
		timed bool
	}{
		{"allowed", decided(true, "exact"), 1, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1}, true},
		{"denied", decided(false, "cached"), 1, Counts{Sent: 1, Answered: 1, Decided: 1, Denied: 1}, true},
		{"observed", observed, 1, Counts{Sent: 1, Answered: 1, Decided: 1, Allowed: 1, WouldDeny: 1}, true},
		{"of a fail mode", decided(true, "local"), 1, Counts{Sent: 1, Answered: 1, Allowed: 1}, true},
		{"shed", decided(false, "shed"), 1, Counts{Sent: 1, Answered: 1, Shed: 1}, true},
		{"shed and observed", decided(true, "shed"), 1, Counts{Sent: 1, Answered: 1, Shed: 1}, true},
		{"timed out", failed(faultTimeout, ""), 1, Counts{Sent: 1, Failed: 1}, true},
		{"refused from afar", failed(faultRefused, ""), Prompt, Counts{Sent: 1, Failed: 1}, false},
		{"broken at once", failed(faultBroken, ""), Prompt - 1, Counts{Sent: 1, Failed: 1}, false},
		{"broken after a wait", failed(faultBroken, ""), Prompt, Counts{Sent: 1, Failed: 1}, true},
	} {
		got := newTally()
		got.add(&row.a, time.Millisecond, row.took)
		if got.Counts != row.want {
			t.Errorf("%s: %+v", row.what, got.Counts)
		}
		if timed := got.latency.Max == row.took+time.Millisecond && got.service.Max == row.took; timed != row.timed || got.late.Max != time.Millisecond {
			t.Errorf("%s: latency %v, service %v, late %v", row.what, got.latency.Max, got.service.Max, got.late.Max)
		}
		if got.answers[row.a.Basis+"/global"] != row.want.Answered || got.reasons["overloaded"] != row.want.Answered || got.faults[row.a.fault] != row.want.Failed {
			t.Errorf("%s: %v %v %v", row.what, got.answers, got.reasons, got.faults)
		}
	}
}

func goodResult() *Result {
	return &Result{
		Asked: Asked{Rate: 5000, ForMS: 20_000, WarmupMS: 2000, Tenants: 1000, Zipf: 1, Cost: "1", MaxInFlight: 1000, TimeoutMS: 2000},
		Due:   100_000, Counts: Counts{Sent: 100_000, Answered: 100_000, Decided: 100_000, Allowed: 61_234, Denied: 38_766}, Errors: []Error{},
		Answers: []Count{{"exact/global", 61_234}, {"cached/global", 38_766}}, Degraded: []Count{},
		SendingMS: 20_000, DecidedPerS: 5000, AchievedRatio: 1, KeptUp: true,
		Latency: Quantiles{0.214, 0.301, 0.522, 1.314, 13.45}, Service: Quantiles{0.2, 0.29, 0.51, 1.3, 13.4}, Late: Quantiles{0.014, 0.02, 0.09, 0.3, 0.5},
		Targets: []TargetResult{{
			URL: "http://127.0.0.1:8080", Counts: Counts{Sent: 100_000, Allowed: 61_234, Denied: 38_766},
			Latency: Quantiles{0.214, 0.301, 0.522, 1.314, 13.45}, Service: Quantiles{0.2, 0.29, 0.51, 1.3, 13.4},
		}},
	}
}

// badResult has one of everything that can go wrong.
func badResult() *Result {
	return &Result{
		Asked:      Asked{Rate: 0.5, ForMS: 60_000, Tenants: 1, Policy: "gold", Cost: "1-5", MaxInFlight: 2, TimeoutMS: 2000},
		EndedEarly: true, Due: 25, Unsent: Unsent{InFlight: 4, Late: 1},
		Counts:  Counts{Sent: 22, Answered: 19, Decided: 10, Allowed: 12, WouldDeny: 2, Denied: 5, Shed: 2, Failed: 3},
		Errors:  []Error{{Count{faultTimeout, 2}, "context deadline exceeded"}, {Count{"status 500", 1}, "Something broke: See the log."}},
		Answers: []Count{{"exact/global", 10}, {"local/local", 7}, {"shed/global", 2}}, Degraded: []Count{{"redis_down", 6}, {"overloaded", 2}, {"breaker_open", 1}},
		SendingMS: 50_000, DecidedPerS: 0.2, AchievedRatio: 0.4,
		Latency: Quantiles{2, 300, 2000, 2001, 2001}, Service: Quantiles{1, 12.3, 1999, 1999, 1999}, Late: Quantiles{0.5, 1, 45.6, 60, 123.4},
		Targets: []TargetResult{
			{URL: "http://eu:8080", Counts: Counts{Sent: 12, Allowed: 7, Denied: 2, Shed: 2, Failed: 1}, Unsent: 3, Latency: Quantiles{2, 300, 2000, 2001, 2001}},
			{URL: "https://us.example.net:8443", Counts: Counts{Sent: 10, Allowed: 5, Denied: 3, Failed: 2}, Unsent: 2},
		},
	}
}

func TestPrint(t *testing.T) {
	for name, r := range map[string]*Result{"good.golden": goodResult(), "bad.golden": badResult()} {
		var b bytes.Buffer
		r.Print(&b)
		golden.Compare(t, name, b.String())
	}
}

// TestJSON: the names that scripts read.
func TestJSON(t *testing.T) {
	text, err := json.MarshalIndent(badResult(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "bad.json", string(text)+"\n")
}
