package httpapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fake is a Limiter of funcs that records its calls. A func that is nil admits
// everything.
type fake struct {
	decide func(ctx context.Context, r quota.Request) (quota.Decision, error)
	reset  func(ctx context.Context, tenant string) error

	mu    sync.Mutex
	asked []string // "check acme cost=1 user=42"
	seen  []quota.Request
	sheds int // how many were turned away unread
}

// note records what the limiter, or another that an API has, was asked.
func (f *fake) note(asked string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, asked)
}

// describe is a request in a line.
func describe(r quota.Request) string {
	text := fmt.Sprintf("%s cost=%d", r.Tenant, r.Cost)
	for _, d := range r.Dimensions {
		text += " " + d.Name + "=" + d.Value
	}
	for _, part := range [][2]string{{" policy=", r.Policy}, {" tenant_policy=", r.TenantPolicy}, {" key=", r.IdempotencyKey}} {
		if part[1] != "" {
			text += part[0] + part[1]
		}
	}
	if r.Explain {
		text += " explain"
	}
	if r.Usage {
		text += " usage"
	}
	return text
}

// call validates like the limiter; what it refuses is not recorded.
func (f *fake) call(ctx context.Context, verb string, r quota.Request) (quota.Decision, error) {
	if errs := r.Validate(); len(errs) > 0 && verb != "reset" {
		return quota.Decision{}, &quota.Invalid{Fields: errs}
	}
	f.note(verb + " " + describe(r))
	f.mu.Lock()
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	if f.decide == nil {
		return allowed(r), nil
	}
	return f.decide(ctx, r)
}

func (f *fake) Decide(ctx context.Context, qs []quota.Question) []quota.Outcome {
	out := make([]quota.Outcome, len(qs))
	for i, q := range qs {
		verb := map[quota.Ask]string{quota.AskCheck: "check", quota.AskPeek: "peek", quota.AskReport: "report"}[q.Ask]
		out[i].Decision, out[i].Err = f.call(ctx, verb, q.Request)
	}
	return out
}

func (f *fake) Reserve(ctx context.Context, rs []quota.Request) []quota.Outcome {
	out := make([]quota.Outcome, len(rs))
	for i := range rs {
		out[i].Decision, out[i].Err = f.call(ctx, "reserve", rs[i])
		if d := &out[i].Decision; d.Allowed && rs[i].Cost > 0 {
			d.Reservation = &quota.Reservation{ID: "sealed-" + rs[i].Tenant, Amount: rs[i].Cost, ExpiresIn: min(cmp.Or(rs[i].TTL, time.Minute), 2*time.Minute), Clamped: rs[i].TTL > 2*time.Minute}
		}
	}
	return out
}

func (f *fake) Settle(ctx context.Context, cs []quota.Claim) []quota.Outcome {
	return f.claim(ctx, "settle", cs, func(c *quota.Claim, d *quota.Decision) {
		d.Settlement = &quota.Settlement{Charged: c.Actual, Overrun: max(0, c.Actual-100), Released: true}
		d.Replayed = c.Reservation == "sealed-again"
	})
}

func (f *fake) Extend(ctx context.Context, cs []quota.Claim) []quota.Outcome {
	return f.claim(ctx, "extend", cs, func(c *quota.Claim, d *quota.Decision) {
		d.Reservation = &quota.Reservation{ID: c.Reservation, Amount: 100, ExpiresIn: c.TTL}
	})
}

// claim knows the reservations that Reserve makes, and one that is over.
func (f *fake) claim(ctx context.Context, verb string, cs []quota.Claim, then func(*quota.Claim, *quota.Decision)) []quota.Outcome {
	out := make([]quota.Outcome, len(cs))
	for i := range cs {
		tenant, known := strings.CutPrefix(cs[i].Reservation, "sealed-")
		fault := quota.FaultUnknown
		switch {
		case tenant == "over":
			fault = quota.FaultOver
		case known && cs[i].May(tenant):
			if out[i].Decision, out[i].Err = f.call(ctx, verb, quota.Request{Tenant: tenant, Cost: max(1, cs[i].Actual)}); out[i].Decision.Allowed {
				then(&cs[i], &out[i].Decision)
			}
			continue
		}
		out[i].Err = &quota.Invalid{Fault: fault, Fields: []quota.FieldError{{Pointer: "/reservation", Detail: "is none"}}}
	}
	return out
}

func (f *fake) Reset(ctx context.Context, tenant string) error {
	_, _ = f.call(ctx, "reset", quota.Request{Tenant: tenant})
	if f.reset == nil {
		return nil
	}
	return f.reset(ctx, tenant)
}

func (f *fake) Shed(context.Context) quota.Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sheds++
	return quota.Decision{Basis: quota.BasisShed, Reason: quota.ReasonOverloaded}
}

// turnedAway is how many requests were turned away unread.
func (f *fake) turnedAway() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sheds
}

// calls is the number of calls that were valid.
func (f *fake) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

func (f *fake) last(t *testing.T) quota.Request {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 {
		t.Fatal("the limiter was not called")
	}
	return f.seen[len(f.seen)-1]
}

func burst() *quota.Limit { return &quota.Limit{Name: "burst", Units: 20, Window: time.Second} }

func sustained() *quota.Limit {
	return &quota.Limit{Name: "sustained", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal}
}

func allowed(r quota.Request) quota.Decision {
	return quota.Decision{
		Allowed: true, Tenant: r.Tenant, Policy: "standard", Cost: r.Cost,
		Limits: []quota.LimitState{
			{Limit: burst(), Ceiling: 20, Remaining: 19, ResetAfter: time.Second},
			{Limit: sustained(), Ceiling: 600, Remaining: 599, ResetAfter: 59_999_001 * time.Microsecond},
		},
	}
}

func denied(r quota.Request) quota.Decision {
	d := allowed(r)
	d.Allowed = false
	d.Limits[1].Remaining, d.Limits[1].Denied = 0, true
	d.Limits[1].RetryAfter = 12_000_001 * time.Microsecond
	return d
}

func deny(context.Context, quota.Request) (quota.Decision, error) {
	return denied(quota.Request{Tenant: "acme", Cost: 1}), nil
}

// spent is what the limiter returns for a report that leaves nothing.
func spent(_ context.Context, r quota.Request) (quota.Decision, error) {
	d := allowed(r)
	d.Limits[1].Remaining = 0
	return d, nil
}

func observed(_ context.Context, r quota.Request) (quota.Decision, error) {
	d := denied(r)
	d.Allowed, d.WouldDeny, d.Enforcement = true, true, quota.Observe
	return d, nil
}

func closed(context.Context, quota.Request) (quota.Decision, error) {
	return quota.Decision{Policy: "standard", Basis: quota.BasisClosed, Mode: quota.ModeLocal, Reason: quota.ReasonRedisDown}, nil
}

// shed is what the limiter returns for a request that Redis was too busy to decide.
func shed(_ context.Context, r quota.Request) (quota.Decision, error) {
	return quota.Decision{
		Tenant: r.Tenant, Policy: "standard", Cost: r.Cost, Basis: quota.BasisShed, Reason: quota.ReasonOverloaded,
	}, nil
}

// passed is shed under observe.
func passed(ctx context.Context, r quota.Request) (quota.Decision, error) {
	d, err := shed(ctx, r)
	d.Allowed, d.Enforcement = true, quota.Observe
	return d, err
}

// opened is the same load under on_overload: open.
func opened(_ context.Context, r quota.Request) (quota.Decision, error) {
	d := allowed(r)
	d.Basis, d.Reason = quota.BasisOpen, quota.ReasonOverloaded
	return d, nil
}

// wantShed checks the answer to a request that was turned away unread: it is a decision like any other that was shed, of no
// policy. To a client that lets requests pass during an outage, 503 without a decision would be one.
func wantShed(t *testing.T, got reply) {
	t.Helper()
	want := []string{`"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"`, `"violated-policies":[]`, `"id":"`}
	if got.status == http.StatusServiceUnavailable {
		want = append(want, `"allowed":false`, `"policy":""`, `"retry_after_ms":1000`, `"basis":"shed"`, `"mode":"global"`, `"reason":"overloaded"`)
	}
	for _, member := range want {
		if !strings.Contains(got.body, member) {
			t.Errorf("no %s in the answer %s", member, got.body)
		}
	}
	if got.header.Get("Retry-After") != "1" || got.header.Get("X-Regiond-Decision-Id") == "" {
		t.Errorf("the header of what was turned away is %v", got.header)
	}
}

func fails(context.Context, quota.Request) (quota.Decision, error) {
	return quota.Decision{}, errors.New("no store")
}

func refuses(f quota.Fault, pointer, detail string) func(context.Context, quota.Request) (quota.Decision, error) {
	return func(context.Context, quota.Request) (quota.Decision, error) {
		return quota.Decision{}, fmt.Errorf("decide: %w", &quota.Invalid{Fault: f, Fields: []quota.FieldError{{Pointer: pointer, Detail: detail}}})
	}
}

func tooCostly(context.Context, quota.Request) (quota.Decision, error) {
	return quota.Decision{}, &quota.Invalid{Fault: quota.FaultCost, Limit: &quota.Limit{Name: "burst"}, Fields: []quota.FieldError{{Pointer: "/cost", Detail: "is at most 20"}}}
}

// told is the sentence of an explanation.
const told = "Region eu lets tenant acme spend 1 unit."

// byTenant decides as a tenant is called.
func byTenant(ctx context.Context, r quota.Request) (quota.Decision, error) {
	switch r.Tenant {
	case "full":
		return denied(r), nil
	case "closed":
		return closed(ctx, r)
	case "busy":
		return shed(ctx, r)
	case "lost":
		return fails(ctx, r)
	case "dear":
		return refuses(quota.FaultCost, "/cost", "is at most 600")(ctx, r)
	case "reused":
		return refuses(quota.FaultReuse, "/cost", "is at most 600")(ctx, r)
	case "refused":
		return refuses(quota.FaultInput, "/cost", "is at most 600")(ctx, r)
	case "none":
		return quota.Decision{Allowed: true, Policy: "standard"}, nil
	case "observed":
		return observed(ctx, r)
	}
	d := allowed(r)
	if r.Explain {
		d.Explanation = &quota.Explanation{Region: "local", ConfigHash: "x", Sentences: []string{told}, Limits: []quota.LimitExplanation{{Name: "burst"}}}
	}
	return d, nil
}

// options log nothing, draw no jitter, and give all decisions one id.
func options(l httpapi.Limiter) httpapi.Options {
	f, _ := l.(*fake)
	return httpapi.Options{
		Limiter: l,
		Ready:   func() (bool, []string) { return true, nil },
		Regions: func() any { return map[string]string{"region": "local"} },
		Top: func(q quota.TopQuery) (quota.TopReport, error) {
			if f.note(fmt.Sprint("top ", q)); q.Policy == "refused" {
				return quota.TopReport{}, &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/policy", Detail: `"refused" is not a policy`}}}
			}
			return quota.TopReport{WindowMS: 60_000, Region: "local", Regions: []string{"local"}, Processes: 1, Rows: []quota.TopRow{{Tenant: "a", Policy: "p", Limit: "l", Partition: "::"}}}, nil
		},
		Usage: func(_ context.Context, u quota.UsageQuery) (quota.UsagePage, error) {
			f.note(fmt.Sprint("usage ", u))
			switch u.Cursor {
			case "refused":
				return quota.UsagePage{}, &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/cursor", Detail: "must be another"}}}
			case "away":
				return quota.UsagePage{}, errors.New("redis is away")
			}
			return quota.UsagePage{Region: "local", Next: "9", Rows: []quota.UsageRow{{
				Tenant: "a", Policy: "standard", Limit: "user", Dimensions: map[string]string{"user": "42"}, Units: 60, WindowMS: 60_000,
				Used: 7, EndsAt: "2027-01-01T00:00:00Z",
			}}}, nil
		},
		Reopen: func(_ context.Context, region string) (string, error) {
			switch f.note("reopen " + region); region {
			case "us":
				return "nothing was lost", nil
			case "lost":
				return "", errors.New("redis is away")
			}
			return "", nil
		},
		Overrides: &fakeOverrides{},
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures 1\n") }),
		Page:      http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page\n") }),
		Events: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: state\ndata: {}\n\n")
		}),
		Logger: slog.New(slog.DiscardHandler),
		Meter:  noop.Meter{},
		Jitter: func() float64 { return 0 },
		NewID:  func() quota.DecisionID { return quota.DecisionID{0xab, 15: 0xcd} },
	}
}

func with(s *httpapi.Settings) func() *httpapi.Settings {
	return func() *httpapi.Settings { return s }
}

func data(t testing.TB, o httpapi.Options) http.Handler { return handler(t, o) }

func admin(t testing.TB, o httpapi.Options) http.Handler {
	t.Helper()
	h, err := httpapi.NewAdmin(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// request makes a request of "Name: value" header lines.
func request(method, target, body string, header ...string) *http.Request {
	return bareRequest(method, target, body, append([]string{"X-Requested-With: test"}, header...)...)
}

// bareRequest has no header field but header, as where a web page of another origin has a browser send it.
func bareRequest(method, target, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header[http.CanonicalHeaderKey(name)] = append(r.Header[http.CanonicalHeaderKey(name)], value)
	}
	return r
}

type reply struct {
	status int
	header http.Header // exactly as set, RateLimit and not Ratelimit
	body   string
}

func serve(h http.Handler, r *http.Request) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.String()}
}

// field is a header field under its exact spelling.
func (r reply) field(name string) string { return strings.Join(r.header[name], " | ") }

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	return m
}

// errors are those of a problem document, "#/cost: must be…".
func (r reply) errors(t *testing.T) []string {
	t.Helper()
	var p struct {
		Errors []struct{ Pointer, Detail string }
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	var out []string
	for _, e := range p.Errors {
		out = append(out, e.Pointer+": "+e.Detail)
	}
	return out
}
