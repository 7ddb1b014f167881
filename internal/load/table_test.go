package load

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", file, diff)
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
		golden(t, name, b.String())
	}
}

// TestJSON: the names that scripts read.
func TestJSON(t *testing.T) {
	text, err := json.MarshalIndent(badResult(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "bad.json", string(text)+"\n")
}
