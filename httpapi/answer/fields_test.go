package answer_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

func allowed() quota.Decision {
	return quota.Decision{Allowed: true, Policy: "standard", Cost: 1, Limits: []quota.LimitState{
		{Limit: &quota.Limit{Name: "burst", Units: 20, Window: time.Second}, Remaining: 19, ResetAfter: time.Second},
		{Limit: &quota.Limit{Name: "sustained", Units: 600, Window: time.Minute}, Remaining: 599, ResetAfter: 59_999_001 * time.Microsecond},
	}}
}

func denied() quota.Decision {
	d := allowed()
	d.Allowed = false
	d.Limits[1].Remaining, d.Limits[1].Denied, d.Limits[1].RetryAfter = 0, true, 12_000_001*time.Microsecond
	return d
}

// render returns the header fields of a decision.
func render(hs quota.Headers, d *quota.Decision, jitter float64, nowUS int64, denied bool) http.Header {
	var fs answer.Fields
	fs.RateLimit(d, answer.Input{Headers: hs, Jitter: jitter, NowUS: nowUS, Denied: denied})
	h := http.Header{}
	for _, f := range fs {
		h[f.Name] = []string{f.Value}
	}
	return h
}

func TestFieldFormats(t *testing.T) {
	const nowUS = 1_795_198_405_260_197
	d, no, used, stored := allowed(), denied(), denied(), denied()
	used.Limits[1].RetryAfter = 59_500 * time.Millisecond // with a tenth of jitter: 65 s
	stored.StoreUS = 1_000_000_000_000_001
	busy := quota.Decision{Policy: "standard", Basis: quota.BasisShed}
	pass := quota.Decision{Policy: "standard", Basis: quota.BasisShed, Allowed: true, Enforcement: quota.Observe}
	monthly := quota.Decision{Policy: "standard", Limits: []quota.LimitState{{
		Limit:  &quota.Limit{Name: "monthly", Units: 9, Algorithm: quota.CalendarPeriods, Calendar: &quota.Calendar{Unit: quota.CalendarMonth}, Window: quota.MaxWindow},
		Denied: true, RetryAfter: 50*time.Hour - time.Microsecond, ResetAfter: 50*time.Hour - time.Microsecond,
	}}}
	rows := []struct {
		name    string
		headers quota.Headers
		d       *quota.Decision
		jitter  float64
		want    string
	}{
		{"draft-11", quota.Headers{}, &d, 0, `RateLimit: "standard.burst";r=19;t=1, "standard.sustained";r=599;t=60 / RateLimit-Policy: "standard.burst";q=20;w=1, "standard.sustained";q=600;w=60`},
		{"draft-11 denied, jitter", quota.Headers{}, &no, 0.999, `RateLimit: "standard.burst";r=19;t=1, "standard.sustained";r=0;t=14 / RateLimit-Policy: "standard.burst";q=20;w=1, "standard.sustained";q=600;w=60 / Retry-After: 14`},
		{"jitter stays within a second of the window", quota.Headers{Format: quota.Triplet}, &used, 0.999, "RateLimit-Limit: 600 / RateLimit-Remaining: 0 / RateLimit-Reset: 61 / Retry-After: 61"},
		{"triplet", quota.Headers{Format: quota.Triplet}, &d, 0, "RateLimit-Limit: 20 / RateLimit-Remaining: 19 / RateLimit-Reset: 1"},
		{"triplet denied", quota.Headers{Format: quota.Triplet}, &no, 0, "RateLimit-Limit: 600 / RateLimit-Remaining: 0 / RateLimit-Reset: 13 / Retry-After: 13"},
		{"x delta", quota.Headers{Format: quota.XRateLimit}, &no, 0, "Retry-After: 13 / X-RateLimit-Limit: 600 / X-RateLimit-Remaining: 0 / X-RateLimit-Reset: 13"},
		{"x epoch, host's clock", quota.Headers{Format: quota.XRateLimit, XReset: quota.ResetEpoch}, &no, 0, "Retry-After: 13 / X-RateLimit-Limit: 600 / X-RateLimit-Remaining: 0 / X-RateLimit-Reset: 1795198419"},
		{"x epoch, store's clock", quota.Headers{Format: quota.XRateLimit, XReset: quota.ResetEpoch}, &stored, 0, "Retry-After: 13 / X-RateLimit-Limit: 600 / X-RateLimit-Remaining: 0 / X-RateLimit-Reset: 1000000014"},
		{"calendar: until it begins, and no window", quota.Headers{}, &monthly, 0.999, `RateLimit: "standard.monthly";r=0;t=180000 / RateLimit-Policy: "standard.monthly";q=9 / Retry-After: 180000`},
		{"draft-11 shed", quota.Headers{}, &busy, 0.999, "Retry-After: 1"},
		{"triplet shed", quota.Headers{Format: quota.Triplet}, &busy, 0, "Retry-After: 1"},
		{"draft-11 shed under observe", quota.Headers{}, &pass, 0, ""},
		{"off", quota.Headers{Format: quota.HeadersOff}, &d, 0, ""},
		{"off denied", quota.Headers{Format: quota.HeadersOff}, &no, 0, "Retry-After: 13"},
	}
	for _, row := range rows {
		h := render(row.headers, row.d, row.jitter, nowUS, !row.d.Allowed)
		var got []string
		for _, name := range []string{"RateLimit", "RateLimit-Limit", "RateLimit-Policy", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if v := h[name]; len(v) == 1 {
				got = append(got, name+": "+v[0])
			}
		}
		if g := strings.Join(got, " / "); g != row.want || len(h) != len(got) {
			t.Errorf("%s:\n got %s\nwant %s", row.name, g, row.want)
		}
	}
}

// TestProviderFields: counts says which fields a limit has. Of several of a kind it is the headline.
func TestProviderFields(t *testing.T) {
	const nowUS = 1_795_198_405_260_197 // 2026-11-20T18:13:25.26Z
	limit := func(name string, units, left int64, counts quota.Counts, reset time.Duration) quota.LimitState {
		return quota.LimitState{Limit: &quota.Limit{Name: name, Units: units, Window: time.Hour, Counts: counts}, Remaining: left, ResetAfter: reset}
	}
	inflight := limit("inflight", 4, 0, quota.CountsRequests, time.Second)
	inflight.Limit.Algorithm = quota.Concurrent
	no := limit("burst", 5, 0, quota.CountsRequests, 30*time.Second)
	no.Denied, no.RetryAfter = true, 1500*time.Millisecond
	for _, row := range []struct {
		limits            []quota.LimitState
		openai, anthropic string
	}{
		{
			[]quota.LimitState{
				inflight, limit("burst", 20, 19, 0, 120*time.Millisecond), limit("day", 600, 599, 0, time.Hour),
				limit("tokens", 90_000, 4000, quota.CountsTokens, 6*time.Minute-time.Microsecond),
			},
			"x-ratelimit-limit-requests: 20 / x-ratelimit-limit-tokens: 90000 / x-ratelimit-remaining-requests: 19 / " +
				"x-ratelimit-remaining-tokens: 4000 / x-ratelimit-reset-requests: 120ms / x-ratelimit-reset-tokens: 6m0s",
			"anthropic-ratelimit-requests-limit: 20 / anthropic-ratelimit-requests-remaining: 19 / anthropic-ratelimit-requests-reset: 2026-11-20T18:13:27Z / " +
				"anthropic-ratelimit-tokens-limit: 90000 / anthropic-ratelimit-tokens-remaining: 4000 / anthropic-ratelimit-tokens-reset: 2026-11-20T18:19:26Z",
		},
		{
			[]quota.LimitState{no, limit("input", 100, 100, quota.CountsTokens, 0), limit("output", 50, 1, quota.CountsTokens, time.Second)},
			"retry-after: 2 / x-ratelimit-limit-requests: 5 / x-ratelimit-limit-tokens: 50 / x-ratelimit-remaining-requests: 0 / " +
				"x-ratelimit-remaining-tokens: 1 / x-ratelimit-reset-requests: 2s / x-ratelimit-reset-tokens: 1s",
			"anthropic-ratelimit-input-tokens-limit: 100 / anthropic-ratelimit-input-tokens-remaining: 100 / anthropic-ratelimit-input-tokens-reset: 2026-11-20T18:13:26Z / " +
				"anthropic-ratelimit-output-tokens-limit: 50 / anthropic-ratelimit-output-tokens-remaining: 1 / anthropic-ratelimit-output-tokens-reset: 2026-11-20T18:13:27Z / " +
				"anthropic-ratelimit-requests-limit: 5 / anthropic-ratelimit-requests-remaining: 0 / anthropic-ratelimit-requests-reset: 2026-11-20T18:13:28Z / " +
				"anthropic-ratelimit-tokens-limit: 50 / anthropic-ratelimit-tokens-remaining: 1 / anthropic-ratelimit-tokens-reset: 2026-11-20T18:13:27Z / retry-after: 2",
		},
		{[]quota.LimitState{inflight}, "", ""},
	} {
		d := quota.Decision{Policy: "llm", Limits: row.limits, Allowed: !row.limits[0].Denied}
		for format, want := range map[quota.HeaderFormat]string{quota.OpenAI: row.openai, quota.Anthropic: row.anthropic} {
			var lines []string
			for name, v := range render(quota.Headers{Format: format}, &d, 0, nowUS, !d.Allowed) {
				lines = append(lines, strings.ToLower(name)+": "+v[0])
			}
			slices.Sort(lines)
			if got := strings.Join(lines, " / "); got != want {
				t.Errorf("%s:\n got %s\nwant %s", format, got, want)
			}
		}
	}
}

// microseconds draws durations; windows are whole microseconds.
func microseconds(least, most int64) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(least, most), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond })
}

func drawDecision(t *rapid.T) quota.Decision {
	name := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}`)
	wait := func(label string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(quota.MaxWindow)).Draw(t, label))
	}
	d := quota.Decision{Allowed: true, Policy: name.Draw(t, "policy")}
	for range rapid.IntRange(1, 4).Draw(t, "limits") {
		s := quota.LimitState{
			Limit: &quota.Limit{
				Name: name.Draw(t, "name"), Units: rapid.Int64Range(1, quota.MaxUnits).Draw(t, "units"),
				Window: rapid.OneOf(microseconds(1e3, 2e6), microseconds(1e3, quota.MaxWindow.Microseconds())).Draw(t, "window"),
			},
			Remaining: rapid.Int64Range(0, quota.MaxUnits).Draw(t, "remaining"), ResetAfter: wait("reset"),
			Denied: rapid.Bool().Draw(t, "denied"),
		}
		if s.Denied {
			s.RetryAfter = wait("retry")
			d.Allowed = false
		}
		d.Limits = append(d.Limits, s)
	}
	return d
}

// Whatever the decision, both fields parse as structured lists with its values;
// waits are never below the exact value, at most a tenth above it, and by jitter never
// more than a second above the window.
func TestFieldsParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecision(t)
		jitter := rapid.Float64Range(0, 0.999999).Draw(t, "jitter")
		h := render(quota.Headers{}, &d, jitter, 0, !d.Allowed)
		policies, states := parseList(t, h, "RateLimit-Policy"), parseList(t, h, "RateLimit")
		if len(policies) != len(d.Limits) || len(states) != len(d.Limits) {
			t.Fatalf("%d and %d members for %d limits", len(policies), len(states), len(d.Limits))
		}
		for i := range d.Limits {
			s := &d.Limits[i]
			wait := s.ResetAfter
			if s.Denied {
				wait = max(s.RetryAfter, 1)
			}
			want := d.Policy + "." + s.Limit.Name
			if policies[i].Value != want || states[i].Value != want || integer(t, policies[i], "q") != s.Limit.Units || integer(t, states[i], "r") != s.Remaining {
				t.Fatalf("%v", h)
			}
			boundSeconds(t, integer(t, states[i], "t"), wait)
			exact, window := math.Ceil(wait.Seconds()), math.Ceil(s.Limit.Window.Seconds())
			if most := int64(max(exact, window+1)); integer(t, states[i], "t") > most {
				t.Fatalf("t=%d for %v of a window of %v, want at most %d", integer(t, states[i], "t"), wait, s.Limit.Window, most)
			}
			if w := integer(t, policies[i], "w"); w != windowSeconds(s.Limit.Window) {
				t.Fatalf("w=%d for %v", w, s.Limit.Window)
			}
		}
		for _, format := range []quota.HeaderFormat{quota.Triplet, quota.XRateLimit, quota.HeadersOff} {
			other := render(quota.Headers{Format: format}, &d, jitter, 0, !d.Allowed)
			for name := range other {
				parseList(t, other, name)
			}
		}
		if d.Allowed {
			return
		}
		retry, ok := states[d.Headline()].Params.Get("t")
		item, err := httpsfv.UnmarshalItem(h["Retry-After"])
		if !ok || err != nil || item.Value != retry || retry.(int64) < 1 { //nolint:forcetypeassert // t is an Integer
			t.Fatalf("Retry-After %q beside %v", h["Retry-After"], states)
		}
	})
}

func parseList(t *rapid.T, h http.Header, name string) (items []httpsfv.Item) {
	list, err := httpsfv.UnmarshalList(h[name])
	if err != nil {
		t.Fatalf("%s: %q: %v", name, h[name], err)
	}
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %q has a member that is no item", name, h[name])
		}
		items = append(items, item)
	}
	return items
}

func integer(t *rapid.T, item httpsfv.Item, name string) int64 {
	v, ok := item.Params.Get(name)
	if !ok {
		return -1
	}
	n, ok := v.(int64)
	if !ok {
		t.Fatalf("%s is %T", name, v)
	}
	return n
}

// windowSeconds is −1 for windows that w leaves out.
func windowSeconds(w time.Duration) int64 {
	if w < time.Second {
		return -1
	}
	return roundedUp(w)
}

func roundedUp(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

func boundSeconds(t *rapid.T, got int64, exact time.Duration) {
	if up := roundedUp(exact); got < up || got*10 > up*11 {
		t.Fatalf("%d s for %v", got, exact)
	}
}
