package grpcapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/regiond/regiond/grpcapi/internal/kuadrantpb"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// plansTopology has a policy for each plan, and all three places that say a plan.
const plansTopology = `
regions: [{name: local, http: 127.0.0.1:1}]
policies:
  - name: standard
    limits:
      - {name: all, units: 6, per: 1m}
      - {name: user, units: 2, per: 2h, by: [user]}
      - {name: login, units: 1, per: 7s, by: [user], when: {route: login}}
  - name: enterprise
    limits: [{name: all, units: 100, per: 1m}]
  - name: metered
    limits: [{name: monthly, units: 30, calendar: month}]
  - name: watched
    enforcement: observe
    limits: [{name: all, units: 1, per: 1m}]
  - name: free
    limits: [{name: login, units: 1, per: 7s, when: {route: login}}]
tenants: {acme: {policy: standard}, metered: {policy: metered}, moved: {policy: standard}, raised: {policy: standard}, suspended: {policy: standard}}
forward_auth:
  tenant: {header: X-Tenant}
  dimensions: {user: {header: X-User}}
  routes: [{name: login, path: /login}]
  policy_from: {header: X-Plan, policies: {gold: enterprise, silver: standard, watched: watched, free: free}}
rls:
  domains:
    edge:
      file: x
      tenant: [tenant]
      policy_from: {descriptor: plan, policies: {gold: enterprise, silver: standard, watched: watched, free: free}}
`

// overlay has overrides that stay as they are.
type overlay map[string]*quota.Override

func (o overlay) Of(_ context.Context, tenant string) (*quota.Override, error) { return o[tenant], nil }

func (o overlay) Read(_ context.Context, tenant string) (*quota.Override, error) {
	return o[tenant], nil
}

func (o overlay) Known(tenant string) bool { return o[tenant] != nil }

var plansOverlay = overlay{
	"moved":     {Tenant: "moved", Policy: "enterprise"},
	"raised":    {Tenant: "raised", Limits: []quota.OverrideLimit{{Name: "all", Units: 8}, {Name: "user", Units: 7}}},
	"suspended": {Tenant: "suspended", Limits: []quota.OverrideLimit{{Name: "all", Units: 0}}},
}

const plansFile = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 1}}
`

// planned is a server of plansTopology, and the data listener beside it.
func planned(t *testing.T, change func(*region.Domain)) (*world, *httpapi.Handler) {
	t.Helper()
	top, _, err := region.Parse("topology.yaml", []byte(plansTopology))
	if err != nil {
		t.Fatal(err)
	}
	w := serve(t, plansFile, func(d *region.Domain) {
		*d = top.RLS.Domains[0]
		if change != nil {
			change(d)
		}
	})
	w.limiter = inMemory(t, func() int64 { return w.nowUS }, limiter.Config{
		Policies: top.Policies, Tenants: top.Tenants.Listed, Domains: w.domains(), Dimensions: []string{quota.RouteDimension},
	}, plansOverlay)
	return w, handlerOf(t, w.limiter, &httpapi.Settings{ForwardAuth: top.ForwardAuth, Headers: quota.Headers{Format: quota.Draft11}})
}

// TestOnePolicyFrom: whichever interface a plan comes by, one policy is in force and the customer is told the same: that of the
// override, else of the plan, else of the tenant.
func TestOnePolicyFrom(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ tenant, plan, policies string }{
		{"acme", "", `"standard.all";q=6;w=60, "standard.user";q=2;w=7200`},
		{"acme", "silver", `"standard.all";q=6;w=60, "standard.user";q=2;w=7200`},
		{"acme", "gold", `"enterprise.all";q=100;w=60`},
		{"acme", "enterprise", `"standard.all";q=6;w=60, "standard.user";q=2;w=7200`}, // no value of policy_from
		{"metered", "", `"metered.monthly";q=30`},
		{"moved", "silver", `"enterprise.all";q=100;w=60`},
		{"moved", "", `"enterprise.all";q=100;w=60`},
		{"raised", "", `"standard.all";q=8;w=60, "standard.user";q=7;w=7200`},
		{"raised", "gold", `"enterprise.all";q=8;w=60`},
		{"acme", "free", ""}, // of which no limit applies
	} {
		w, h := planned(t, nil)
		header := http.Header{"X-Tenant": {row.tenant}, "X-User": {"u"}}
		entries := []string{"tenant=" + row.tenant, "user=u"}
		if row.plan != "" {
			header["X-Plan"] = []string{row.plan}
			entries = append(entries, "plan="+row.plan)
		}
		limitsOf := func(o outcome) (policies string) {
			for _, f := range o.fields {
				if value, ok := strings.CutPrefix(f, "ratelimit-policy: "); ok {
					policies = value
				}
			}
			return policies
		}
		check := claiming(t, checkOf("GET", "/", header, map[string]string{"policy_from": "jwt/plan"}), map[string]any{"plan": row.plan})
		authorized, _ := overGRPC(t.Context(), t, serverOf(t, h, w.limiter, noop.Meter{}), check)
		for from, got := range map[string]string{
			"descriptor": headers(w.ask(t, descriptor(entries...)))["RateLimit-Policy"],
			"header":     limitsOf(overHTTP(h, "GET", "/", header)), "metadata": limitsOf(authorized),
		} {
			if got != row.policies {
				t.Errorf("%+v: by a %s %q", row, from, got)
			}
		}
	}
}

// TestPolicyFromDescriptors is a ledger of one server: what each request is answered.
func TestPolicyFromDescriptors(t *testing.T) {
	t.Parallel()
	w, _ := planned(t, func(d *region.Domain) { d.Overrides = true })
	limited := descriptor("tenant=acme", "plan=silver")
	limited.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 2}
	for i, row := range []struct {
		asks []*common.RateLimitDescriptor
		want string
	}{
		{ds("tenant=acme&user=a"), "ok: ok/1"},
		{ds("user=a&tenant=acme&generic_key=x&generic_key=y&Odd=z"), "ok: ok/0"}, // the same, in any order
		{ds("tenant=acme&user=a"), "over: over/0"},
		{ds("tenant=acme&user=b"), "ok: ok/1"},
		{[]*common.RateLimitDescriptor{costing(0, "tenant=acme", "user=b")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{costing(2, "tenant=acme", "user=b")}, "over: over/0"}, // charged whatever is left
		{ds("remote_address=::1"), "ok: ok/2"},
		// A refusal by the tenant's policy charges nothing of the file's limits, nor one by these of the policy.
		{ds("tenant=acme&user=b", "remote_address=::1"), "over: over/0 ok/2"},
		{[]*common.RateLimitDescriptor{costing(3, "tenant=acme", "plan=gold"), descriptor("remote_address=::1")}, "ok: ok/97 ok/1"},
		{ds("tenant=acme&plan=gold", "remote_address=::1"), "ok: ok/96 ok/0"},
		{ds("tenant=acme&plan=gold", "remote_address=::1"), "over: ok/96 over/0"},
		{ds("tenant=acme&plan=gold", "tenant=acme&plan=gold"), "ok: ok/94 ok/94"}, // equal ones add up
		{[]*common.RateLimitDescriptor{limited}, "ok: ok/4"},                      // a limit of the request's own
		{ds("tenant=acme&plan=watched"), "ok: ok/0"},
		{ds("tenant=acme&plan=watched"), "ok: ok/0"}, // enforcement: observe
		{[]*common.RateLimitDescriptor{costing(1, "tenant=acme", "plan=watched")}, "ok: ok/0"},
		{ds("tenant=acme&plan=free"), "ok: ok"}, // no limit applies
		{ds("tenant=acme&plan=free&route=login"), "ok: ok/0"},
		{ds("tenant=acme&plan=free&route=login"), "over: over/0"},
		{ds("tenant=suspended"), "over: over/0"},
		{ds("tenant=stranger&plan=gold"), "over: over"}, // nobody serves it
	} {
		if got := story(w.ask(t, row.asks...)); got != row.want {
			t.Errorf("%d: %s, want %s", i, got, row.want)
		}
	}
}

// TestTooManyAtOnce: what is turned away unread does not pass, whatever on_overload says, so a suspended tenant does not. It is said so.
func TestTooManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []quota.OverloadMode{quota.OverloadShed, quota.OverloadOpen} {
		w, _ := planned(t, func(d *region.Domain) { d.OnOverload = mode })
		w.server.MaxInFlight = 0
		a := w.ask(t, descriptor("tenant=suspended"))
		if got := story(a); got != "over: over" || headers(a)["Retry-After"] != "1" || a.GetDynamicMetadata().GetFields()["reason"].GetStringValue() != "overloaded" {
			t.Errorf("%v: %s %v", mode, got, a)
		}
	}
}

// TestPolicyFromAnswers: an answer names the policy and the limit that decided, per what the limit is, who refused and when to come back.
// A report is charged whatever is left, and its answer says what a check would have been told: nothing is refused by what only
// observes, a suspension has no end, and any other refusal ends no earlier than its limit frees.
func TestPolicyFromAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		charge region.Charge
		ask    *common.RateLimitDescriptor
		before uint64 // units
		want   string
	}{
		{region.ChargeWeighted, descriptor("tenant=acme", "user=a"), 0, "ok: ok/1 standard user 2/HOUR*2 by  retry "},
		{region.ChargeWeighted, descriptor("tenant=acme", "user=a"), 2, "over: over/0 standard user 2/HOUR*2 by user retry 7200"},
		{region.ChargeWeighted, descriptor("tenant=metered"), 0, "ok: ok/29 metered monthly 30/MONTH by  retry "},
		{region.ChargeWeighted, descriptor("tenant=metered"), 30, "over: over/0 metered monthly 30/MONTH by monthly retry 1440000"}, // to the first of the month
		{region.ChargeWeighted, descriptor("tenant=acme", "plan=free", "route=login"), 1, "over: over/0 free login 1/SECOND*7 by login retry 7"},
		{region.ChargeWeighted, descriptor("tenant=suspended"), 0, "over: over/0 standard all 0/MINUTE by all retry "},    // no end of it is known
		{region.ChargeWeighted, costing(5, "tenant=acme", "plan=watched"), 0, "ok: ok/0 watched all 1/MINUTE by  retry "}, // above the limit
		{region.ChargeWeighted, costing(3, "tenant=acme", "user=a"), 0, "over: over/0 standard user 2/HOUR*2 by user retry 7200"},
		{region.ChargeWeighted, costing(7, "tenant=acme", "plan=silver"), 0, "over: over/0 standard all 6/MINUTE by all retry 60"},
		{region.ChargeWeighted, costing(31, "tenant=metered"), 0, "over: over/0 metered monthly 30/MONTH by monthly retry 1440000"},
		{region.ChargeWeighted, costing(500, "tenant=suspended"), 0, "over: over/0 standard all 0/MINUTE by all retry "},
		{region.ChargeAdmitted, costing(5, "tenant=acme", "plan=watched"), 0, "ok: ok/0 watched all 1/MINUTE by  retry "},
	} {
		w, _ := planned(t, func(d *region.Domain) { d.Charge = row.charge })
		if row.before > 0 {
			w.ask(t, &common.RateLimitDescriptor{Entries: row.ask.GetEntries(), HitsAddend: costing(row.before).GetHitsAddend()})
		}
		a := w.ask(t, row.ask)
		m, l, h := a.GetDynamicMetadata().GetFields(), a.GetStatuses()[0].GetCurrentLimit(), headers(a)
		per := l.GetUnit().String()
		if n := l.GetUnitMultiplier().GetValue(); n > 1 {
			per += fmt.Sprint("*", n)
		}
		got := fmt.Sprintf("%s %s %s %d/%s by %s retry %s", story(a), m["policy"].GetStringValue(), m["limit"].GetStringValue(),
			l.GetRequestsPerUnit(), per, h["X-Regiond-Limit"], h["Retry-After"])
		if got != row.want || l.GetName() != m["limit"].GetStringValue() {
			t.Errorf("%v: %s, want %s", row.ask, got, row.want)
		}
		ends := a.GetStatuses()[0].GetDurationUntilReset()
		if (ends != nil) != (l.GetRequestsPerUnit() > 0) || h["Retry-After"] != "" && h["Retry-After"] != fmt.Sprint(ends.GetSeconds()) {
			t.Errorf("%v: it ends in %v", row.ask, ends)
		}
	}
	w, _ := planned(t, nil)
	if a := w.ask(t, descriptor("tenant=stranger")); a.GetDynamicMetadata().GetFields()["reason"].GetStringValue() != "unlisted_tenant" {
		t.Errorf("a tenant that nobody serves: %v", a)
	}
}

// TestPolicyFromCosts: a cost above a limit of the policy is refused by its name and charges nothing, neither of the policy nor of
// the file.
func TestPolicyFromCosts(t *testing.T) {
	t.Parallel()
	w, _ := planned(t, func(d *region.Domain) { d.Charge = region.ChargeAdmitted })
	a := w.ask(t, costing(101, "tenant=moved"), descriptor("remote_address=::1"))
	if got := story(a); got != "over: over/0 ok/3" || headers(a)["X-Regiond-Limit"] != "all" || headers(a)["RateLimit-Policy"] != `"enterprise.all";q=100;w=60` {
		t.Errorf("%s %v", got, headers(a))
	}
	if got := story(w.ask(t, costing(100, "tenant=moved"), descriptor("remote_address=::1"))); got != "ok: ok/0 ok/2" {
		t.Errorf("afterwards %s", got)
	}
}

// TestPolicyFromRules: what holds for who says a tenant holds for its policy: a token is held to its tenants, and no one takes back
// or reserves units of a policy in this way.
func TestPolicyFromRules(t *testing.T) {
	t.Parallel()
	w, _ := planned(t, func(d *region.Domain) { d.Refunds = true })
	if _, err := w.client.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{refund(1, "tenant=acme")},
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a refund: %v", err)
	}
	w.fails(t, codes.FailedPrecondition, &pb.ReserveRequest{Domain: "edge", Descriptors: ds("tenant=acme"), Amount: 1})
	w.fails(t, codes.NotFound, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds("tenant=stranger")})
	w.report(t, 95, descriptor("tenant=moved"))
	if got := story(w.ask(t, descriptor("tenant=moved"))); got != "ok: ok/4" {
		t.Errorf("after a report of 95 of 100: %s", got)
	}
	w.tokens = []access.Token{{Name: "held", SHA256: sha256.Sum256([]byte("held")), Scopes: access.Check, Tenants: []string{"other"}}}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer held")
	a, err := w.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds("tenant=acme&plan=gold")})
	if err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT || a.GetDynamicMetadata().GetFields()["reason"].GetStringValue() != "foreign_tenant" {
		t.Errorf("of another tenant: %v %v", a, err)
	}
}

// TestRoutesPolicy: a policy that the gateway's configuration names for a route is the route's, whatever the tenant's plan or override
// say. Beside policy_from it is what the tenant has without these.
func TestRoutesPolicy(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tenant string
		said   map[string]string
		want   string
	}{
		"a route's":              {"acme", map[string]string{"policy": "free"}, "free"},
		"a route's, overridden":  {"moved", map[string]string{"policy": "free"}, "free"},
		"by default":             {"acme", map[string]string{"policy": "free", "policy_from": "jwt/none"}, "free"},
		"by default, unknown":    {"acme", map[string]string{"policy": "free", "policy_from": "jwt/odd"}, "free"},
		"a plan":                 {"acme", map[string]string{"policy": "free", "policy_from": "jwt/plan"}, "watched"},
		"by default, overridden": {"moved", map[string]string{"policy": "free", "policy_from": "jwt/none"}, "enterprise"},
		"a plan, overridden":     {"moved", map[string]string{"policy": "free", "policy_from": "jwt/plan"}, "enterprise"},
	} {
		w, h := planned(t, nil)
		check := checkOf("GET", "/", http.Header{"X-Tenant": {row.tenant}, "X-Plan": {"gold"}}, row.said)
		claiming(t, check, map[string]any{"plan": "watched", "odd": "odd"})
		if _, a := overGRPC(t.Context(), t, serverOf(t, h, w.limiter, noop.Meter{}), check); policyOf(a) != row.want {
			t.Errorf("%s: policy %q, want %q", name, policyOf(a), row.want)
		}
	}
}

// TestCalendarsOverExtAuthz: total_limit says a calendar's period in Envoy's words; it has none for a week.
func TestCalendarsOverExtAuthz(t *testing.T) {
	t.Parallel()
	for calendar, want := range map[string]string{"hour": "HOUR", "day": "DAY", "week": "", "month": "MONTH"} {
		s := authorizerOf(t, strings.Replace(forwardTopology, "{name: all, units: 100, per: 1m}", "{name: all, units: 100, calendar: "+calendar+"}", 1))
		_, a := overGRPC(t.Context(), t, s, checkOf("GET", "/", http.Header{"X-Tenant": {"a"}}, map[string]string{"policy": "gold"}))
		total := a.GetDynamicMetadata().GetFields()["total_limit"].GetStructValue().GetFields()
		if got := total["unit"].GetStringValue(); got != want || want != "" && total["requests_per_unit"].GetNumberValue() != 100 {
			t.Errorf("calendar: %s is %v", calendar, total)
		}
	}
}

// TestPolicyFromRefusals: of several descriptors that refuse a request, the one that takes longest is named, and none that only observes.
func TestPolicyFromRefusals(t *testing.T) {
	t.Parallel()
	w, _ := planned(t, nil)
	address, user := descriptor("remote_address=::1"), descriptor("tenant=acme", "user=a")
	w.ask(t, costing(3, "remote_address=::1"))
	w.ask(t, costing(2, "tenant=acme", "user=a"))
	w.nowUS += 50_000_000
	watched := descriptor("tenant=acme", "plan=watched")
	w.ask(t, watched)
	for i, row := range []struct {
		asks []*common.RateLimitDescriptor
		want string
	}{
		{[]*common.RateLimitDescriptor{user, address}, "over: over/0 over/0 by user retry 7150"},
		{[]*common.RateLimitDescriptor{address, user}, "over: over/0 over/0 by user retry 7150"},
		{[]*common.RateLimitDescriptor{watched, address}, "over: ok/0 over/0 by remote_address retry 10"},
	} {
		a := w.ask(t, row.asks...)
		if got := fmt.Sprintf("%s by %s retry %s", story(a), headers(a)["X-Regiond-Limit"], headers(a)["Retry-After"]); got != row.want {
			t.Errorf("%d: %s, want %s", i, got, row.want)
		}
	}
}
