package grpcapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// world is a server over a limiter in memory, whose clock the test moves.
type world struct {
	client  ratelimit.RateLimitServiceClient
	conn    *grpc.ClientConn
	nowUS   int64
	domain  *rls.Domain
	tokens  []access.Token // of the callers; nil: everybody may call
	limiter *limiter.Limiter
	server  *grpcapi.Server
	unready atomic.Bool
	busy    bool          // what is asked is shed
	block   chan struct{} // no decision is made before it is closed; nil: at once
	blocked atomic.Int64  // those that wait for that
}

// Decide implements grpcapi.Limiter.
func (w *world) Decide(ctx context.Context, qs []quota.Question) []quota.Outcome {
	if w.block != nil {
		w.blocked.Add(1)
		<-w.block
	}
	if w.busy {
		return slices.Repeat([]quota.Outcome{{Decision: quota.Decision{Basis: quota.BasisShed, Reason: quota.ReasonOverloaded}}}, len(qs))
	}
	return w.limiter.Decide(ctx, qs)
}

// Reserve implements grpcapi.Limiter.
func (w *world) Reserve(ctx context.Context, rs []quota.Request) []quota.Outcome {
	return w.limiter.Reserve(ctx, rs)
}

// Settle implements grpcapi.Limiter.
func (w *world) Settle(ctx context.Context, cs []quota.Claim) []quota.Outcome {
	return w.limiter.Settle(ctx, cs)
}

// load makes a file that of domain "edge", of which nothing is used.
func (w *world) load(t interface{ Fatal(...any) }, file string, change func(*region.Domain)) {
	settings := region.Domain{Name: "edge", Files: region.Files{"x"}}
	if change != nil {
		change(&settings)
	}
	d, mistakes, _ := rls.Compile(&settings, rls.Source{Text: []byte(file)})
	if d == nil {
		t.Fatal(mistakes, file)
	}
	w.domain = d
	w.limiter = inMemory(t, func() int64 { return w.nowUS }, limiter.Config{Domains: w.domains()}, nil)
}

// domains are what a limiter knows of the world's domain.
func (w *world) domains() []quota.Domain {
	return []quota.Domain{{Policy: w.domain.Policy(), Tenant: w.domain.Tenant}}
}

// inMemory is a limiter of region local, at a time.
func inMemory(t interface{ Fatal(...any) }, nowUS func() int64, c limiter.Config, o limiter.Overrides) *limiter.Limiter {
	c.Region, c.MaxUnknown, c.MaxValues = "local", 1000, 1000
	l, err := limiter.New(limiter.Options{
		Store: memstore.New(memstore.Options{Now: nowUS}), Logger: slog.New(slog.DiscardHandler), Overrides: o, Config: c,
		Now: func() time.Time { return time.UnixMicro(nowUS()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listen serves on a listener, which over makes of one on loopback, until the test ends.
func (w *world) listen(t testing.TB, over func(net.Listener) net.Listener) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(over(l)) }()
	t.Cleanup(func() {
		_ = w.server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// serve starts a server for one domain "edge" of the given file.
func serve(t testing.TB, file string, change func(*region.Domain)) *world {
	t.Helper()
	w := &world{nowUS: 1_800_000_000_000_000}
	w.load(t, file, change)
	s, err := grpcapi.New(grpcapi.Options{
		Limiter: w, Region: "local", Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
		Settings: func() *grpcapi.Settings {
			return &grpcapi.Settings{Domains: map[string]*rls.Domain{"edge": w.domain}, Headers: quota.Headers{Format: quota.Draft11}, Access: access.Access{Tokens: w.tokens}}
		},
		Ready: func() (bool, []string) { return !w.unready.Load(), nil }, Jitter: func() float64 { return 0 }, NewID: newID, Deadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.server = s
	w.conn = connect(t, w.listen(t, func(l net.Listener) net.Listener { return l }))
	w.client = ratelimit.NewRateLimitServiceClient(w.conn)
	return w
}

// descriptor is made of "key=value" entries.
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// costing has a cost of its own.
func costing(hits uint64, entries ...string) *common.RateLimitDescriptor {
	d := descriptor(entries...)
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// ds are descriptors, the entries of one with a & between them.
func ds(texts ...string) (all []*common.RateLimitDescriptor) {
	for _, text := range texts {
		all = append(all, descriptor(strings.Split(text, "&")...))
	}
	return all
}

func (w *world) ask(t *testing.T, ds ...*common.RateLimitDescriptor) *ratelimit.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	a, err := w.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// headers are the fields that an answer adds.
func headers(a *ratelimit.RateLimitResponse) map[string]string {
	all := map[string]string{}
	for _, h := range a.GetResponseHeadersToAdd() {
		all[h.GetKey()] = h.GetValue()
	}
	return all
}

// story is what a request is answered: the overall code, and for each descriptor its code and what remains.
func story(a *ratelimit.RateLimitResponse) string {
	letter := map[ratelimit.RateLimitResponse_Code]string{ratelimit.RateLimitResponse_OK: "ok", ratelimit.RateLimitResponse_OVER_LIMIT: "over"}
	text := letter[a.GetOverallCode()] + ":"
	for _, s := range a.GetStatuses() {
		text += " " + letter[s.GetCode()]
		if s.GetCurrentLimit() != nil {
			text += fmt.Sprint("/", s.GetLimitRemaining())
		}
	}
	return text
}

const basics = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: all, value: yes, rate_limit: {unit: hour, requests_per_unit: 5, name: everything}}
  - {key: none, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: vip, rate_limit: {unlimited: true}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: small, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
  - {key: large, rate_limit: {unit: minute, requests_per_unit: 10, replaces: [{name: small}]}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// TestAnswers is a ledger: each row starts where the one before it ended. What TestModel draws is not in it.
func TestAnswers(t *testing.T) {
	w := serve(t, basics, nil)
	var many []*common.RateLimitDescriptor
	for i := range grpcapi.MaxDescriptors {
		many = append(many, descriptor(fmt.Sprint("user=m", i)))
	}
	for i, row := range []struct {
		descriptors []*common.RateLimitDescriptor
		want        string
	}{
		{ds("user=a"), "ok: ok/2"},
		{ds("user=a", "all=yes"), "ok: ok/1 ok/4"},
		{ds("user=a", "all=yes"), "ok: ok/0 ok/3"},
		{ds("user=a", "all=yes"), "over: over/0 ok/3"}, // a refusal charges nothing
		{ds("user=b", "user=a"), "over: ok/3 over/0"},
		// What no rule knows, and what is deeper than the rule, is not limited.
		{ds("other=1", "all=no"), "ok: ok ok"},
		{ds("user=b&x=y"), "ok: ok"},
		{ds("none=1", "all=yes"), "over: over/0 ok/3"},
		// An odd value is counted by its hash, an empty one too.
		{ds("user=Ünï {x}"), "ok: ok/2"},
		{ds("user=Ünï {x}"), "ok: ok/1"},
		{ds("user="), "ok: ok/2"},
		// As many as there may be.
		{many, "ok:" + strings.Repeat(" ok/2", len(many))},
		{append(many, descriptor("user=a"))[1:], "over:" + strings.Repeat(" ok/2", len(many)-1) + " over/0"},
	} {
		a := w.ask(t, row.descriptors...)
		if got := story(a); got != row.want {
			t.Fatalf("row %d, %v: %s, want %s", i, row.descriptors, got, row.want)
		}
		if refused := strings.HasPrefix(row.want, "over:"); refused != (headers(a)["X-Regiond-Limit"] != "") {
			t.Errorf("row %d, %v: header fields %v", i, row.descriptors, headers(a))
		}
	}
	w.nowUS += time.Minute.Microseconds()
	if got := story(w.ask(t, descriptor("user=a"))); got != "ok: ok/2" {
		t.Errorf("a minute later: %s", got)
	}
}

// TestRefusalSaysWhy: what Envoy makes its header fields of, and what its access log shows.
func TestRefusalSaysWhy(t *testing.T) {
	w := serve(t, basics, nil)
	for range 3 {
		w.ask(t, descriptor("user=a"))
	}
	w.nowUS += 1_500_000
	a := w.ask(t, descriptor("user=a"))
	s := a.GetStatuses()[0]
	if got := s.GetDurationUntilReset(); got.GetSeconds() != 59 || got.GetNanos() != 0 {
		t.Errorf("until reset: %v, want 58.5 s rounded up", got)
	}
	if l := s.GetCurrentLimit(); l.GetRequestsPerUnit() != 3 || l.GetUnit() != ratelimit.RateLimitResponse_RateLimit_MINUTE {
		t.Errorf("limit %v", l)
	}
	if h := headers(a); h["Retry-After"] != "59" || h["RateLimit"] != `"rls-edge.user";r=0;t=59` || h["RateLimit-Policy"] != `"rls-edge.user";q=3;w=60` || h["X-Regiond-Limit"] != "user" {
		t.Errorf("headers %v", h)
	}
	got := a.GetDynamicMetadata().AsMap()
	for key, want := range map[string]any{"policy": "edge", "limit": "user", "region": "local", "mode": "global", "retry_after_ms": 58500.0, "id": newID().String(), "trace_id": nil} {
		if got[key] != want {
			t.Errorf("metadata %s is %v, want %v", key, got[key], want)
		}
	}
	if id := headers(a)["X-Regiond-Decision-Id"]; id != newID().String() {
		t.Errorf("the header has id %q", id)
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	for _, value := range []string{"a", "other"} { // one is denied, one is not
		a, err := w.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{descriptor("user=" + value)}})
		if got := a.GetDynamicMetadata().AsMap(); err != nil || got["id"] != trace || got["trace_id"] != trace {
			t.Errorf("%v, %v: want the id of the trace", got, err)
		}
	}
	// Of two fields, neither is the caller's.
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-1"+trace[1:]+"-00f067aa0ba902b7-01")
	r := &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds("user=a")}
	a, err := w.client.ShouldRateLimit(ctx, r)
	if got := a.GetDynamicMetadata().AsMap(); err != nil || got["id"] != newID().String() || got["trace_id"] != nil {
		t.Errorf("two traceparent fields: %v, %v: want a new id", got, err)
	}
}

// TestStatusNamesItsLimit: all that a rule says of its limit.
func TestStatusNamesItsLimit(t *testing.T) {
	t.Parallel()
	w := serve(t, `
domain: edge
descriptors: [{key: user, rate_limit: {unit: hour, unit_multiplier: 6, requests_per_unit: 2, name: slow}}]
`, nil)
	want := &ratelimit.RateLimitResponse_DescriptorStatus{
		Code: ratelimit.RateLimitResponse_OK,
		CurrentLimit: &ratelimit.RateLimitResponse_RateLimit{
			RequestsPerUnit: 2, Unit: ratelimit.RateLimitResponse_RateLimit_HOUR, UnitMultiplier: wrapperspb.UInt32(6), Name: "slow",
		},
		LimitRemaining: 1, DurationUntilReset: durationpb.New(6 * time.Hour),
	}
	if got := w.ask(t, descriptor("user=a")).GetStatuses()[0]; !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestMetadata: that of rules with room, and what is asked for, as envoyproxy/ratelimit has them.
func TestMetadata(t *testing.T) {
	w := serve(t, `
domain: edge
descriptors:
  - {key: m, value: large, quota_mode: true, metadata: {model: large, cost: {in: 2}, tags: [a, true, ~]}, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: m, value: small, quota_mode: true, metadata: {model: small, cost: {in: 1, out: 0.5}}, rate_limit: {unit: day, requests_per_unit: 2}}
`, func(d *region.Domain) { d.Metadata = true })
	for i, want := range []string{
		`{"cost":{"in":2,"out":0.5},"model":"large","tags":["a",true,null]}`, `{"cost":{"in":1,"out":0.5},"model":"small"}`, `null`,
	} {
		got := w.ask(t, descriptor("m=large", "x=y"), descriptor("m=large"), costing(1, "m=small")).GetDynamicMetadata().AsMap()
		if text, err := json.Marshal(got["metadata"]); err != nil || string(text) != want {
			t.Errorf("%d: %s %v, want %s", i, text, err, want)
		}
		text, err := json.Marshal([]any{got["domain"], got["descriptors"], got["hitsAddend"], got["quotaModeEnabled"]})
		if want := `["edge",[{"entries":["m=large","x=y"]},{"entries":["m=large"]},{"entries":["m=small"],"hitsAddend":1}],null,true]`; err != nil || string(text) != want {
			t.Errorf("%s %v, want %s", text, err, want)
		}
	}
	w = serve(t, `
domain: edge
descriptors:
  - {key: free, quota_mode: true, rate_limit: {unlimited: true}}
  - {key: shadow, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
`, func(d *region.Domain) { d.Metadata = true })
	if got := w.ask(t, descriptor("free=x")).GetDynamicMetadata().AsMap(); got["quotaModeEnabled"] != false {
		t.Errorf("what is unlimited has no quota: %v", got)
	}
	got := w.ask(t, descriptor("shadow=x")).GetDynamicMetadata().AsMap()
	if got["quotaModeEnabled"] != true || got["quotaModeViolations"] != nil {
		t.Errorf("shadow mode is no violation: %v", got)
	}
	w = serve(t, basics, nil)
	if got := w.ask(t, descriptor("user=a")).GetDynamicMetadata().AsMap(); got["descriptors"] != nil || got["metadata"] != nil {
		t.Errorf("%v", got)
	}
}

// TestTenants: descriptors of two tenants are decided apart, and the answer says so. One that refuses the request has the other
// charge nothing.
func TestTenants(t *testing.T) {
	w := serve(t, basics, func(d *region.Domain) { d.Charge, d.Tenant = region.ChargeAdmitted, []string{"user"} })
	for i, row := range []struct {
		ds    []*common.RateLimitDescriptor
		want  string
		apart any
	}{
		{ds("user=a", "all=yes"), "ok: ok/2 ok/4", true},
		{ds("user=a"), "ok: ok/1", nil},
		{[]*common.RateLimitDescriptor{costing(3, "user=full")}, "ok: ok/0", nil},
		{ds("user=a", "user=full"), "over: ok/1 over/0", true},
		{ds("user=a", "user=full"), "over: ok/1 over/0", true},
		{ds("user=a"), "ok: ok/0", nil},
	} {
		if a := w.ask(t, row.ds...); story(a) != row.want || a.GetDynamicMetadata().AsMap()["apart"] != row.apart {
			t.Errorf("%d: %s %v", i, story(a), a.GetDynamicMetadata())
		}
	}
}

// TestTurnedAway: where no limit refused, none is named.
func TestTurnedAway(t *testing.T) {
	w := serve(t, basics, nil)
	w.busy = true
	a := w.ask(t, descriptor("user=a"))
	if limit, named := headers(a)["X-Regiond-Limit"]; story(a) != "over: over/0" || named {
		t.Errorf("%s, by %q", story(a), limit)
	}
}

// TestOverrides: a limit in a request counts where the domain says so.
func TestOverrides(t *testing.T) {
	own := descriptor("user=a")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 2}
	w := serve(t, basics, func(d *region.Domain) { d.Overrides = true })
	for _, want := range []string{"ok: ok/0", "over: over/0"} {
		if got := story(w.ask(t, own)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	// Each window is counted by itself, whatever other limits come with the same entries.
	hourly, minutely := descriptor("user=b"), descriptor("user=b")
	hourly.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 2, Unit: 3}
	minutely.Limit = own.Limit
	for i, row := range []struct {
		*common.RateLimitDescriptor
		want string
	}{{hourly, "ok: ok/1"}, {minutely, "ok: ok/0"}, {hourly, "ok: ok/0"}, {minutely, "over: over/0"}} {
		if got := story(w.ask(t, row.RateLimitDescriptor)); got != row.want {
			t.Errorf("%d: %s, want %s", i, got, row.want)
		}
	}
	w.nowUS += (2 * time.Minute).Microseconds()
	if got := story(w.ask(t, minutely)) + story(w.ask(t, hourly)); got != "ok: ok/0over: over/0" {
		t.Errorf("two minutes later: %s", got)
	}
	w = serve(t, basics, nil)
	if a := w.ask(t, own); story(a) != "ok: ok/2" || a.GetDynamicMetadata().AsMap()["ignored_limit"] != true {
		t.Errorf("%s %v", story(a), a.GetDynamicMetadata())
	}
}

// A server that was told to stop before it has begun does not begin, and that is no error.
func TestStoppedBeforeItServes(t *testing.T) {
	s := authorizerOf(t, forwardTopology)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
