package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// completions is a policy of a token-metered API: 10 requests and 1000 tokens a minute, 3 at once.
func completions() quota.Policy {
	return quota.Policy{Name: "llm", EnforcePercent: -1, MaxTTL: 2 * time.Minute, MaxHold: 60, Limits: []quota.Limit{
		{Name: "requests", Units: 10, Window: time.Minute},
		{Name: "tokens", Units: 1000, Window: time.Minute, Counts: quota.CountsTokens},
		{Name: "inflight", Units: 3, Window: 30 * time.Second, Algorithm: quota.Concurrent},
	}}
}

// reserve asks for an amount on behalf of a tenant.
func (r *rig) reserve(t testing.TB, tenant string, amount int64) quota.Decision {
	t.Helper()
	o := r.Reserve(t.Context(), []quota.Request{{Tenant: tenant, Reserve: true, Cost: amount}})
	if o[0].Err != nil {
		t.Fatalf("reserve %d: %v", amount, o[0].Err)
	}
	return o[0].Decision
}

func (r *rig) settle(t testing.TB, d quota.Decision, actual int64) quota.Decision {
	t.Helper()
	o := r.Settle(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, Actual: actual}})
	if o[0].Err != nil {
		t.Fatalf("settle %d: %v", actual, o[0].Err)
	}
	return o[0].Decision
}

// fault is what is wrong with the only outcome.
func fault(t testing.TB, all []quota.Outcome) quota.Fault {
	t.Helper()
	var bad *quota.Invalid
	if !errors.As(all[0].Err, &bad) {
		t.Fatalf("%v is no *quota.Invalid; the decision is %+v", all[0].Err, all[0].Decision)
	}
	return bad.Fault
}

// TestReservationLedger: what a reservation holds nobody else gets; what it is settled with stays charged, the rest is free.
func TestReservationLedger(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := memoryRig(t, onePolicy(completions()), func() time.Time { return now })
	left := func(requests, tokens, held, inflight int64) {
		t.Helper()
		d := r.reserve(t, "acme", 0)
		if d.Reservation != nil {
			t.Errorf("a look makes a reservation")
		}
		for i, want := range []int64{requests, tokens, 3 - inflight} {
			if got := d.Limits[i].Remaining; got != want {
				t.Errorf("%d left of %s, want %d", got, d.Limits[i].Limit.Name, want)
			}
		}
		if d.Limits[1].Held != held || d.Limits[2].Held != inflight {
			t.Errorf("held %d and %d in flight, want %d and %d", d.Limits[1].Held, d.Limits[2].Held, held, inflight)
		}
	}
	left(10, 1000, 0, 0)
	first := r.reserve(t, "acme", 600)
	if x := first.Reservation; x == nil || x.Amount != 600 || x.ExpiresIn != 30*time.Second || x.Clamped {
		t.Errorf("reservation %+v", x)
	}
	left(9, 400, 600, 1)
	if d := r.reserve(t, "acme", 401); d.Allowed || d.Reservation != nil || !d.Limits[1].Denied || d.Limits[0].Denied {
		t.Errorf("401 of 400: %+v", d)
	}
	left(9, 400, 600, 1) // a refusal takes nothing
	second := r.reserve(t, "acme", 400)
	left(8, 0, 1000, 2)
	if d := r.settle(t, first, 250); *d.Settlement != (quota.Settlement{Charged: 250, Released: true}) || d.Replayed {
		t.Errorf("settled: %+v", d.Settlement)
	}
	left(8, 350, 400, 1)
	if d := r.settle(t, first, 9); *d.Settlement != (quota.Settlement{Charged: 250, Released: true}) || !d.Replayed {
		t.Errorf("settled again: %+v, replayed %v", d.Settlement, d.Replayed)
	}
	left(8, 350, 400, 1)
	if d := r.settle(t, second, 0); *d.Settlement != (quota.Settlement{Released: true}) {
		t.Errorf("cancelled: %+v", d.Settlement)
	}
	left(8, 750, 0, 0)
	third := r.reserve(t, "acme", 100)
	if d := r.settle(t, third, 130); *d.Settlement != (quota.Settlement{Charged: 130, Overrun: 30, Released: true}) {
		t.Errorf("overrun: %+v", d.Settlement)
	}
	left(7, 620, 0, 0)
	fourth := r.reserve(t, "acme", 100)
	if open := r.count(t, "regiond.reservations.open", "policy=llm"); open != 1 {
		t.Errorf("%d are open, want 1", open)
	}
	now = now.Add(31 * time.Second) // it has ended by itself
	if d := r.settle(t, fourth, 40); *d.Settlement != (quota.Settlement{Charged: 40}) {
		t.Errorf("late: %+v", d.Settlement)
	}
	left(6, 580, 0, 0)
	r.reserve(t, "acme", 7)
	now = now.Add(20 * time.Minute)
	if f := fault(t, r.Settle(t.Context(), []quota.Claim{{Reservation: fourth.Reservation.ID, Actual: 40}})); f != quota.FaultOver {
		t.Errorf("forgotten: fault %d", f)
	}
	r.count(t, "regiond.reservations.open", "policy=llm") // a look at this one finds what has expired
	for name, want := range map[string]int64{"reserved": 600 + 400 + 100 + 100 + 7, "settled": 250 + 130 + 40, "overrun": 30, "late": 1, "expired": 7, "open": 0} {
		if got := r.count(t, "regiond.reservations."+name, "policy=llm"); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// TestReservationsExtend: a reservation lasts from now on for as long as it is given, at most max_ttl.
func TestReservationsExtend(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := memoryRig(t, onePolicy(completions()), func() time.Time { return now })
	d := r.reserve(t, "acme", 100)
	extend := func(ttl time.Duration) []quota.Outcome {
		return r.Extend(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, TTL: ttl}})
	}
	now = now.Add(29 * time.Second)
	for ttl, want := range map[time.Duration]quota.Reservation{
		time.Minute: {ExpiresIn: time.Minute},
		time.Hour:   {ExpiresIn: 2 * time.Minute, Clamped: true},
	} {
		want.ID, want.Amount = d.Reservation.ID, 100
		if o := extend(ttl); o[0].Err != nil || *o[0].Decision.Reservation != want {
			t.Errorf("extended by %v: %v, %+v", ttl, o[0].Err, o[0].Decision.Reservation)
		}
	}
	now = now.Add(59 * time.Second)
	if r.reserve(t, "acme", 0).Limits[1].Held != 100 {
		t.Error("it has ended")
	}
	r.settle(t, d, 1)
	if f := fault(t, extend(time.Minute)); f != quota.FaultOver {
		t.Errorf("extending what is settled: fault %d", f)
	}
	asked := r.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 1, TTL: time.Hour}})[0].Decision
	if x := asked.Reservation; x.ExpiresIn != 2*time.Minute || !x.Clamped {
		t.Errorf("an hour: %+v", x)
	}
}

// TestReservationsRefused: what no wait would admit is an error, and says which.
func TestReservationsRefused(t *testing.T) {
	plain := quota.Policy{Name: "plain", EnforcePercent: -1, Limits: perMinute(5)}
	c := onePolicy(completions())
	c.Policies = append(c.Policies, plain)
	r := memoryRig(t, c, nil)
	reserve := func(q quota.Request) quota.Fault {
		t.Helper()
		q.Tenant, q.Reserve = "acme", true
		return fault(t, r.Reserve(t.Context(), []quota.Request{q}))
	}
	if f := reserve(quota.Request{Cost: 601}); f != quota.FaultCost { // max_hold is 60 % of 1000
		t.Errorf("above max_hold: fault %d", f)
	}
	if f := reserve(quota.Request{Policy: "plain", Cost: 1}); f != quota.FaultNoHolds {
		t.Errorf("a policy without tokens: fault %d", f)
	}
	for _, cost := range []int64{-1, quota.MaxUnits + 1} {
		if f := reserve(quota.Request{Cost: cost}); f != quota.FaultInput {
			t.Errorf("%d: fault %d", cost, f)
		}
	}
	d := r.reserve(t, "acme", 1)
	stranger := memoryRig(t, c, nil)
	claim := quota.Claim{Reservation: d.Reservation.ID, Actual: 1}
	if f := fault(t, stranger.Settle(t.Context(), []quota.Claim{claim})); f != quota.FaultUnknown {
		t.Errorf("of another deployment: fault %d", f)
	}
	claim.May = func(tenant string) bool { return tenant != "acme" }
	if f := fault(t, r.Settle(t.Context(), []quota.Claim{claim})); f != quota.FaultUnknown {
		t.Errorf("of another tenant: fault %d", f)
	}
	claim.May = func(tenant string) bool { return tenant == "acme" }
	if o := r.Settle(t.Context(), []quota.Claim{claim}); o[0].Err != nil || !o[0].Decision.Settlement.Released {
		t.Errorf("its own tenant: %v", o[0].Err)
	}
}

// TestReservationsOfOtherRegions: a region that takes over charges what another one has held, once, and frees nothing there.
func TestReservationsOfOtherRegions(t *testing.T) {
	seal := limiter.NewSeal()
	region := func(name string) *rig {
		c := onePolicy(completions())
		c.Region = name
		return newRig(t, limiter.Options{Config: c, Seal: seal})
	}
	here, there := region("eu-west"), region("us-east")
	d := here.reserve(t, "acme", 100)
	for _, replayed := range []bool{false, true} {
		if s := there.settle(t, d, 70); *s.Settlement != (quota.Settlement{Charged: 70}) || s.Replayed != replayed {
			t.Errorf("settled there: %+v, replayed %v", s.Settlement, s.Replayed)
		}
	}
	if left := there.reserve(t, "acme", 0).Limits[1].Remaining; left != 930 {
		t.Errorf("%d left there, want 930", left)
	}
	if f := fault(t, there.Extend(t.Context(), []quota.Claim{{Reservation: d.Reservation.ID, TTL: time.Minute}})); f != quota.FaultOver {
		t.Errorf("extended there: fault %d", f)
	}
	if held := here.reserve(t, "acme", 0).Limits[1].Held; held != 100 {
		t.Errorf("%d held here, want 100 until it ends", held)
	}
}

// TestReservationsUnderObserve: one that would be denied passes, and is charged nothing: the figures are those of a canary.
func TestReservationsUnderObserve(t *testing.T) {
	p := completions()
	p.Enforcement = quota.Observe
	r := memoryRig(t, onePolicy(p), nil)
	r.reserve(t, "acme", 600)
	d := r.reserve(t, "acme", 600)
	if !d.Allowed || !d.WouldDeny || d.Reservation == nil {
		t.Fatalf("observed: %+v", d)
	}
	if s := r.settle(t, d, 600); *s.Settlement != (quota.Settlement{}) {
		t.Errorf("what would have been denied is charged: %+v", s.Settlement)
	}
	if look := r.reserve(t, "acme", 0); look.Limits[1].Remaining != 400 || look.Limits[0].Remaining != 9 {
		t.Errorf("left: %+v", look.Limits)
	}
}

// TestReservationsReplay: an Idempotency-Key gives the same reservation again, and another ttl is another request.
func TestReservationsReplay(t *testing.T) {
	r := memoryRig(t, onePolicy(completions()), nil)
	ask := func(ttl time.Duration) quota.Outcome {
		return r.Reserve(context.Background(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 100, TTL: ttl, IdempotencyKey: "k"}})[0]
	}
	first, again := ask(time.Minute), ask(time.Minute)
	if first.Err != nil || again.Err != nil || !again.Decision.Replayed || first.Decision.Reservation.ID != again.Decision.Reservation.ID {
		t.Errorf("%+v\nthen %+v", first, again)
	}
	if f := fault(t, []quota.Outcome{ask(time.Second)}); f != quota.FaultReuse {
		t.Errorf("another ttl: fault %d", f)
	}
	if held := r.reserve(t, "acme", 0).Limits[1].Held; held != 100 {
		t.Errorf("%d held", held)
	}
}

// TestChecksAmongReservations: a check counts what is held as used, and is never asked about what is in flight. Its denial ends
// when something is settled, however long it was to last.
func TestChecksAmongReservations(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := memoryRig(t, onePolicy(completions()), func() time.Time { return now })
	for range 3 {
		r.reserve(t, "acme", 300)
	}
	if d := r.reserve(t, "acme", 1); d.Allowed || !d.Limits[2].Denied || d.Limits[1].Denied {
		t.Errorf("a fourth at once: %+v", d)
	}
	if d := r.check(t, "acme", 7); !d.Allowed || len(d.Limits) != 2 { // 10 requests − 3
		t.Errorf("a check: %+v", d)
	}
	p := completions()
	p.Limits = p.Limits[1:]
	r = memoryRig(t, onePolicy(p), func() time.Time { return now })
	other := r.reserve(t, "globex", 600)
	if d := r.check(t, "globex", 401); d.Allowed {
		t.Errorf("401 of 400: %+v", d)
	}
	r.settle(t, other, 0)
	now = now.Add(50 * time.Millisecond)
	if d := r.check(t, "globex", 401); !d.Allowed {
		t.Errorf("a denial outlives what was settled: %+v", d)
	}
}

// TestSettleLinksItsReserve: by the id of the reservation alone, so in another process too; not to one that is not sampled.
func TestSettleLinksItsReserve(t *testing.T) {
	seal := limiter.NewSeal()
	o := limiter.Options{Config: onePolicy(completions()), Seal: seal}
	one, other := newRig(t, o), newRig(t, o)
	spans := tracetest.NewSpanRecorder()
	tracer := func(s sdktrace.Sampler) trace.Tracer {
		return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(s)).Tracer("test")
	}
	for _, row := range []struct {
		sampler sdktrace.Sampler
		links   int
	}{{sdktrace.AlwaysSample(), 1}, {sdktrace.NeverSample(), 0}} {
		ctx, reserve := tracer(row.sampler).Start(t.Context(), "reserve")
		o := one.Reserve(ctx, []quota.Request{{Tenant: "acme", Reserve: true, Cost: 10}})
		reserve.End()
		id := o[0].Decision.Reservation.ID
		for name, claim := range map[string]func(context.Context, []quota.Claim) []quota.Outcome{
			"settle": other.Settle, "extend": one.Extend,
		} {
			ctx, span := tracer(sdktrace.AlwaysSample()).Start(t.Context(), name)
			if o := claim(ctx, []quota.Claim{{Reservation: id, Actual: 5, TTL: time.Minute}}); o[0].Err != nil {
				t.Fatal(name, o[0].Err)
			}
			span.End()
			all := spans.Ended()
			links := all[len(all)-1].Links()
			if len(links) != row.links || row.links == 1 && !links[0].SpanContext.Equal(reserve.SpanContext().WithRemote(true)) {
				t.Errorf("%s links to %v, want %v", name, links, reserve.SpanContext())
			}
		}
	}
}

// TestOpenReservationsOfDomains: the gauge shows those of a domain of Envoy's too.
func TestOpenReservationsOfDomains(t *testing.T) {
	p := &quota.Policy{Name: "rls-edge", EnforcePercent: -1, MaxTTL: time.Minute, MaxHold: 100, Limits: []quota.Limit{
		{Name: "user", Units: 10, Window: time.Minute, Counts: quota.CountsTokens},
	}}
	r := newWeather(t, limiter.Config{Domains: []quota.Domain{{Policy: p, Tenant: "edge"}}, MaxValues: 1})
	if o := r.Reserve(t.Context(), []quota.Request{{
		Tenant: "edge", Policy: p.Name, Reserve: true, Cost: 3, Charges: []quota.Charge{{Limit: &p.Limits[0], Cost: 3}},
	}}); o[0].Err != nil || o[0].Decision.Reservation == nil {
		t.Fatalf("%+v", o[0])
	}
	if open := r.count(t, "regiond.reservations.open", "policy=rls-edge"); open != 1 {
		t.Errorf("%d are open, want 1", open)
	}
}
