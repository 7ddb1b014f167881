package load

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestZipf: a million draws are as the definition says, by chi-square, for exponents that the standard library does not have too. The
// bound is that of one in a million for 99 degrees of freedom; the seed is fixed.
func TestZipf(t *testing.T) {
	const tenants, draws, most = 100, 1_000_000, 175
	for _, s := range []float64{0, 0.5, 1.3} {
		z, r, chi, sum := newZipf(tenants, s), rand.New(rand.NewPCG(7, 7)), 0.0, 0.0
		seen := make([]float64, tenants)
		for range draws {
			seen[z.draw(r)]++
		}
		for k := range tenants {
			sum += 1 / math.Pow(float64(k+1), s)
		}
		for k, n := range seen {
			want := draws / math.Pow(float64(k+1), s) / sum
			chi += (n - want) * (n - want) / want
		}
		if chi > most {
			t.Errorf("s=%v: chi-square is %v", s, chi)
		}
	}
}

func TestCosts(t *testing.T) {
	for _, row := range []struct {
		text string
		want Costs
	}{
		{"1", Costs{1, 1}},
		{"700", Costs{700, 700}},
		{"1-5", Costs{1, 5}},
		{"1099511627776", Costs{1 << 40, 1 << 40}},
	} {
		got, err := ParseCosts(row.text)
		if err != nil || got != row.want || got.String() != row.text {
			t.Errorf("%q is %v, %v", row.text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1-", "-", "1-5-9", "1.5", "1e3", "five", "99999999999999999999"} {
		if got, err := ParseCosts(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
	r, seen := rand.New(rand.NewPCG(1, 1)), map[int64]bool{}
	for range 300 {
		seen[Costs{3, 5}.draw(r)] = true
	}
	if len(seen) != 3 || !seen[3] || !seen[4] || !seen[5] {
		t.Errorf("costs of 3-5 are %v", seen)
	}
}

func TestValidate(t *testing.T) {
	good := options()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(o *Options){
		"target is needed":             func(o *Options) { o.Targets = nil },
		"target may be given 32 times": func(o *Options) { o.Targets = make([]string, 33) },
		"rate is above 0":              func(o *Options) { o.Rate = 0 },
		"rate is above 0 and":          func(o *Options) { o.Rate = math.NaN() },
		"at most 100000 requests":      func(o *Options) { o.Rate = math.Inf(1) },
		"for is above 0s":              func(o *Options) { o.For = 0 },
		"at most 1h0m0s":               func(o *Options) { o.For = time.Hour + 1 },
		"not one request is due":       func(o *Options) { o.Rate = 0.5 },
		"warmup is between":            func(o *Options) { o.Warmup = -1 },
		"tenants is between":           func(o *Options) { o.Tenants = 0 },
		"tenants is between 1 and":     func(o *Options) { o.Tenants = 1_000_001 },
		"zipf is between":              func(o *Options) { o.Zipf = -0.1 },
		"zipf is between 0 (":          func(o *Options) { o.Zipf = 11 },
		"max-in-flight is between":     func(o *Options) { o.MaxInFlight = 0 },
		"timeout is above":             func(o *Options) { o.Timeout = 0 },
		"timeout is above 0s and":      func(o *Options) { o.Timeout = time.Hour },
		"tenant-prefix makes a bad id": func(o *Options) { o.Prefix = "a b" },
		"cost is between":              func(o *Options) { o.Costs = Costs{0, 1} },
		"cost is between 1 and 10995":  func(o *Options) { o.Costs = Costs{1, 1<<40 + 1} },
	} {
		o := options()
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("Run takes what Validate refuses: %q", want)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:8080":           "http://127.0.0.1:8080",
		"http://127.0.0.1:8080/":   "http://127.0.0.1:8080",
		"https://eu.example.net/x": "https://eu.example.net/x",
		"[::1]:8080":               "http://[::1]:8080",
	} {
		if got, err := ParseTarget(text); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"ftp://x":               "scheme",
		"":                      "no host",
		"http://":               "no host",
		":8080":                 "no host",
		"http://a b":            "invalid character",
		"http://[::1":           "missing",
		"http://user:pass@host": "user",
		"http://host?x=1":       "query",
		"http://host#x":         "fragment",
	} {
		if got, err := ParseTarget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is taken as %q, %v", text, got, err)
		}
	}
}
