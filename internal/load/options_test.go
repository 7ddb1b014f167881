package load

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	good := options()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(o *Options){
		"target is needed":               func(o *Options) { o.Targets = nil },
		"target may be given 32 times":   func(o *Options) { o.Targets = make([]string, 33) },
		"rate is above 0":                func(o *Options) { o.Rate = 0 },
		"rate is above 0 ":               func(o *Options) { o.Rate = -1 },
		"rate is above 0 and":            func(o *Options) { o.Rate = math.NaN() },
		"at most 100000 requests":        func(o *Options) { o.Rate = math.Inf(1) },
		"rate is above 0 and at most":    func(o *Options) { o.Rate = 100_001 },
		"for is above 0s":                func(o *Options) { o.For = 0 },
		"at most 1h0m0s":                 func(o *Options) { o.For = time.Hour + 1 },
		"not one request is due":         func(o *Options) { o.Rate = 0.5 },
		"warmup is between":              func(o *Options) { o.Warmup = -1 },
		"warmup is between 0s and 10m0s": func(o *Options) { o.Warmup = time.Hour },
		"tenants is between":             func(o *Options) { o.Tenants = 0 },
		"tenants is between 1 and":       func(o *Options) { o.Tenants = 1_000_001 },
		"zipf is between":                func(o *Options) { o.Zipf = -0.1 },
		"zipf is between 0":              func(o *Options) { o.Zipf = math.NaN() },
		"zipf is between 0 (":            func(o *Options) { o.Zipf = 11 },
		"max-in-flight is between":       func(o *Options) { o.MaxInFlight = 0 },
		"max-in-flight is between 1":     func(o *Options) { o.MaxInFlight = 65_001 },
		"timeout is above":               func(o *Options) { o.Timeout = 0 },
		"timeout is above 0s and":        func(o *Options) { o.Timeout = time.Hour },
		"tenant-prefix makes a bad id":   func(o *Options) { o.Prefix = "a b" },
		"tenant-prefix makes":            func(o *Options) { o.Prefix = strings.Repeat("a", 255) },
		"cost is between":                func(o *Options) { o.Costs = Costs{0, 1} },
		"cost is between 1 and":          func(o *Options) { o.Costs = Costs{5, 1} },
		"cost is between 1 and 10995":    func(o *Options) { o.Costs = Costs{1, 1<<40 + 1} },
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
