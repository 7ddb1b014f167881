package grpcapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

const forwardTopology = `
regions: [{name: local, http: 127.0.0.1:1}]
policies:
  - name: standard
    limits:
      - {name: all, units: 6, per: 1m}
      - {name: login, units: 2, per: 1h, by: [ip], when: {route: login}}
      - {name: user, units: 7, per: 90s, by: [user]}
  - name: metered
    limits: [{name: user, units: 3, per: 90s, by: [user]}]
  - name: gold
    limits: [{name: all, units: 100, per: 1m}]
tenants:
  default: {policy: standard}
forward_auth:
  tenant: {header: X-Tenant}
  dimensions: {ip: {client_ip: true}, user: {header: X-User}}
  trusted_proxies: [10.0.0.0/8]
  routes:
    - {name: login, methods: [POST], path: /login, cost: 2}
    - {name: assets, path: /assets/*, skip: true}
`

// newID gives all decisions without a trace one id.
func newID() quota.DecisionID { return quota.DecisionID{0xab, 15: 0xcd} }

// failer is a test of package testing or of rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// dataHandler is that of a data listener of its own, whose clock stands.
func dataHandler(t failer, topology string, access access.Access) (*httpapi.Handler, *limiter.Limiter) {
	t.Helper()
	top, _, err := region.Parse("topology.yaml", []byte(topology))
	if err != nil {
		t.Fatal(err)
	}
	l := inMemory(t, func() int64 { return 1_800_000_000_000_000 }, limiter.Config{
		Policies: top.Policies, Default: top.Tenants.Default, Dimensions: []string{"ip", "user", "route"},
	}, nil)
	return handlerOf(t, l, &httpapi.Settings{ForwardAuth: top.ForwardAuth, Access: access}), l
}

func handlerOf(t failer, l *limiter.Limiter, settings *httpapi.Settings) *httpapi.Handler {
	t.Helper()
	h, err := httpapi.NewData(httpapi.Options{
		Limiter: l, Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{}, Jitter: func() float64 { return 0 }, NewID: newID, Deadline: 10 * time.Second,
		Settings: func() *httpapi.Settings { return settings },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// authorizer answers checks without a connection.
func authorizer(t failer, topology string, access access.Access, meter metric.Meter) *grpcapi.Server {
	t.Helper()
	h, l := dataHandler(t, topology, access)
	return serverOf(t, h, l, meter)
}

// authorizerOf is an authorizer that everybody may call.
func authorizerOf(t failer, topology string) *grpcapi.Server {
	t.Helper()
	return authorizer(t, topology, access.Access{}, noop.Meter{})
}

func serverOf(t failer, h *httpapi.Handler, l *limiter.Limiter, meter metric.Meter) *grpcapi.Server {
	t.Helper()
	s, err := grpcapi.New(grpcapi.Options{
		Limiter: l, Authorize: h, Region: "local", Logger: slog.New(slog.DiscardHandler), Meter: meter,
		Settings: func() *grpcapi.Settings { return &grpcapi.Settings{} }, Ready: func() (bool, []string) { return true, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkOf is what Envoy asks about a request of the client 10.0.0.1.
func checkOf(method, path string, header http.Header, said map[string]string) *auth.CheckRequest {
	sent := map[string]string{":method": method, ":path": path, ":authority": "h"}
	for name, lines := range header {
		sent[strings.ToLower(name)] = strings.Join(lines, ",")
	}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
			Address: "10.0.0.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711},
		}}}},
		Request:           &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: method, Path: path, Headers: sent}},
		ContextExtensions: said,
	}}
}

// claiming has the gateway's metadata say something in namespace jwt.
func claiming(t failer, r *auth.CheckRequest, claims map[string]any) *auth.CheckRequest {
	t.Helper()
	own, err := structpb.NewStruct(claims)
	if err != nil {
		t.Fatal(err)
	}
	r.Attributes.MetadataContext = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"jwt": own}}
	return r
}

// policyOf is the policy that decided, as the metadata say.
func policyOf(a *auth.CheckResponse) string {
	return a.GetDynamicMetadata().GetFields()["policy"].GetStringValue()
}

// outcome is what the client of a gateway gets.
type outcome struct {
	status int
	body   string
	fields []string
}

func overHTTP(h http.Handler, method, path string, header http.Header) outcome {
	r := httptest.NewRequest(http.MethodGet, "http://h/", nil)
	r.Method, r.RequestURI, r.RemoteAddr, r.Header = method, "/v1/authz"+path, "10.0.0.1:4711", header.Clone()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	got := outcome{status: w.Code, body: w.Body.String()}
	for name, lines := range w.Header() {
		if name := http.CanonicalHeaderKey(name); strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" || name == "X-Regiond-Limit" || name == "X-Regiond-Decision-Id" && w.Code != http.StatusOK {
			got.fields = append(got.fields, strings.ToLower(name)+": "+lines[0])
		}
	}
	slices.Sort(got.fields)
	return got
}

func overGRPC(ctx context.Context, t interface{ Fatal(...any) }, s *grpcapi.Server, r *auth.CheckRequest) (outcome, *auth.CheckResponse) {
	message, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Check(ctx, message)
	if err != nil {
		t.Fatal(err)
	}
	got, fields := outcome{status: 200}, a.GetOkResponse().GetResponseHeadersToAdd()
	if d := a.GetDeniedResponse(); d != nil {
		got.status, got.body, fields = int(d.GetStatus().GetCode()), d.GetBody(), d.GetHeaders()
	}
	if (got.status == 200) != (a.GetStatus().GetCode() == int32(codes.OK)) {
		t.Fatal("status", got.status, "with code", a.GetStatus().GetCode())
	}
	for _, f := range fields {
		if name := strings.ToLower(f.GetHeader().GetKey()); strings.Contains(name, "ratelimit") || name == "retry-after" || strings.HasPrefix(name, "x-regiond-") && name != "x-regiond-decision" {
			got.fields = append(got.fields, name+": "+f.GetHeader().GetValue())
		}
	}
	slices.Sort(got.fields)
	return got, a
}

// TestWhatEnvoyTakes: a request as large as Envoy takes by default, 60 KiB of header fields, is decided.
func TestWhatEnvoyTakes(t *testing.T) {
	t.Parallel()
	const most = 60 << 10
	many := http.Header{"X-Tenant": {"acme"}}
	for i := range most / 100 {
		many.Set(fmt.Sprintf("X-%d", i), strings.Repeat("a", 90))
	}
	for name, header := range map[string]http.Header{
		"one field": {"X-Tenant": {"acme"}, "Cookie": {strings.Repeat("a", most)}}, "many fields": many,
	} {
		s := authorizerOf(t, forwardTopology)
		if got, _ := overGRPC(t.Context(), t, s, checkOf("GET", "/x", header, nil)); got.status != http.StatusOK {
			t.Errorf("%s: %+v", name, got)
		}
		header.Set("X-Tenant", "not valid")
		if got, _ := overGRPC(t.Context(), t, s, checkOf("GET", "/x", header, nil)); got.status != http.StatusForbidden {
			t.Errorf("%s, without a tenant: %+v", name, got)
		}
	}
}

// TestAsForwardAuth: whatever a gateway asks, the answer is that of forward-auth over HTTP.
func TestAsForwardAuth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, _ := dataHandler(t, forwardTopology, access.Access{})
		s := authorizerOf(t, forwardTopology)
		for i := range 10 {
			method := rapid.SampledFrom([]string{"GET", "POST", "post", "HEAD", "PO ST", ""}).Draw(t, "method")
			path := rapid.SampledFrom([]string{"/", "/login", "/LOGIN", "/x/../login", "/lo%67in", "/assets/a.js", "/assets/..%2flogin", "/a?b=/login", "/login;v=1", "/%zz", "/a\\b"}).Draw(t, "path")
			header := http.Header{}
			for _, row := range [][]string{
				{"X-Tenant", "", "acme", "globex", "a,b", "not valid", "\xff"},
				{"X-User", "", "42", "7", "a b"},
				{"X_tenant", "", "", "", "acme"},
				{"X-Forwarded-For", "", "192.0.2.1", "192.0.2.1, 10.0.0.9", "2001:db8::1", "nonsense"},
			} {
				if value := rapid.SampledFrom(row[1:]).Draw(t, row[0]); value != "" {
					header[row[0]] = []string{value}
				}
			}
			if rapid.Bool().Draw(t, "twice") {
				header.Add("X-Tenant", "acme")
			}
			r := checkOf(method, path, header, nil)
			sent := r.GetAttributes().GetRequest().GetHttp()
			if rapid.Bool().Draw(t, "raw") || header.Get("X-Tenant") == "\xff" || len(header["X-Tenant"]) > 1 {
				sent.Headers, sent.HeaderMap = nil, &core.HeaderMap{}
				for name, lines := range header {
					for _, line := range lines {
						sent.HeaderMap.Headers = append(sent.HeaderMap.Headers, &core.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(line)})
					}
				}
			}
			want := overHTTP(h, method, path, header)
			got, _ := overGRPC(t.Context(), t, s, r)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%d: %s %q %v:\n%v\nover HTTP:\n%v", i, method, path, header, got, want)
			}
		}
	})
}

// TestWhatAGatewaySays: context_extensions, and what they find elsewhere, win over the request's headers.
func TestWhatAGatewaySays(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		said   map[string]string
		header http.Header
		want   string
	}{
		"nothing":           {nil, http.Header{"X-Tenant": {"acme"}}, "200 all 6 5 MINUTE"},
		"no tenant":         {nil, nil, "403"},
		"tenant":            {map[string]string{"tenant": "acme"}, nil, "200 all 6 5 MINUTE"},
		"tenant wins":       {map[string]string{"tenant": "acme"}, http.Header{"X-Tenant": {"a,b"}}, "200 all 6 5 MINUTE"},
		"an odd tenant":     {map[string]string{"tenant": "a b"}, nil, "403"},
		"claim":             {map[string]string{"tenant_from": "jwt/payload/sub"}, nil, "200 all 6 5 MINUTE"},
		"a number":          {map[string]string{"tenant": "a", "policy": "metered", "dim.user_from": "jwt/payload/n"}, nil, "200 user 3 2"},
		"no claim":          {map[string]string{"tenant_from": "jwt/payload/other"}, nil, "403"},
		"no claim, header":  {map[string]string{"tenant_from": "none/x"}, http.Header{"X-Tenant": {"acme"}}, "403"},
		"no user, header":   {map[string]string{"tenant": "a", "policy": "metered", "dim.user_from": "none/x"}, http.Header{"X-User": {"a b"}}, "200 user 3 2"},
		"no claim, default": {map[string]string{"tenant": "a", "tenant_from": "none/x", "policy": "gold", "policy_from": "none/x"}, nil, "200 all 100 99 MINUTE"},
		"no cost there":     {map[string]string{"tenant": "a", "cost_from": "none/x"}, nil, "200 all 6 5 MINUTE"},
		"no text":           {map[string]string{"tenant_from": "jwt/payload/list"}, nil, "403"},
		"no place":          {map[string]string{"tenant_from": "x"}, nil, "403"},
		"from a header":     {map[string]string{"tenant": "a", "policy_from": "header/X-Plan"}, http.Header{"X-Plan": {"gold"}}, "200 all 100 99 MINUTE"},
		"an unknown plan":   {map[string]string{"tenant": "a", "policy_from": "header/X-Plan"}, http.Header{"X-Plan": {"silver"}}, "200 all 6 5 MINUTE"},
		"unknown, default":  {map[string]string{"tenant": "a", "policy_from": "header/X-Plan", "policy": "gold"}, http.Header{"X-Plan": {"silver"}}, "200 all 100 99 MINUTE"},
		"known, default":    {map[string]string{"tenant": "a", "policy_from": "header/X-Plan", "policy": "standard"}, http.Header{"X-Plan": {"gold"}}, "200 all 100 99 MINUTE"},
		"from two":          {map[string]string{"tenant": "a", "policy_from": "header/X-Plan"}, http.Header{"X-Plan": {"gold", "standard"}}, "403"},
		"policy":            {map[string]string{"tenant": "a", "policy": "gold"}, nil, "200 all 100 99 MINUTE"},
		"unknown policy":    {map[string]string{"tenant": "a", "policy": "silver"}, nil, "403"},
		"cost":              {map[string]string{"tenant": "a", "cost": "4"}, nil, "200 all 6 2 MINUTE"},
		"too much":          {map[string]string{"tenant": "a", "cost": "7"}, nil, "429"},
		"no cost":           {map[string]string{"tenant": "a", "cost": "0"}, nil, "403"},
		"route":             {map[string]string{"tenant": "a", "route": "login"}, nil, "200 login 2 0 HOUR"},
		"cost of route":     {map[string]string{"tenant": "a", "route": "login", "cost": "1"}, nil, "200 login 2 1 HOUR"},
		"skip":              {map[string]string{"tenant": "a", "route": "assets"}, nil, "200"},
		"another route":     {map[string]string{"tenant": "a", "route": "other-api"}, nil, "200 all 6 5 MINUTE"},
		"an odd route":      {map[string]string{"tenant": "a", "route": "a b"}, nil, "403"},
		"route twice":       {map[string]string{"tenant": "a", "dim.route": "login"}, nil, "403"},
		"dimension":         {map[string]string{"tenant": "a", "policy": "metered", "dim.user": "1"}, http.Header{"X-User": {"a b"}}, "200 user 3 2"},
		"both":              {map[string]string{"tenant": "a", "dim.user": "1", "dim.user_from": "header/X-User"}, http.Header{"X-User": {"1"}}, "403"},
		"what others read":  {map[string]string{"tenant": "a", "virtual_host": "x"}, nil, "200 all 6 5 MINUTE"},
		"a path of no kind": {map[string]string{"tenant": "a", "PATH": "*"}, nil, "403"},
	} {
		r := checkOf("GET", "/", row.header, row.said)
		if path := row.said["PATH"]; path != "" {
			r.Attributes.Request.Http.Path = path
		}
		claiming(t, r, map[string]any{"payload": map[string]any{"sub": "claimed", "n": 7.0, "list": []any{"a"}}})
		got, a := overGRPC(t.Context(), t, authorizerOf(t, forwardTopology), r)
		text := fmt.Sprint(got.status)
		if m := a.GetDynamicMetadata().GetFields(); got.status == 200 && m != nil {
			total := m["total_limit"].GetStructValue().GetFields()
			left := ""
			for _, f := range got.fields {
				if state, ok := strings.CutPrefix(f, "ratelimit: "); ok {
					for member := range strings.SplitSeq(state, ", ") {
						if strings.Contains(member, "."+m["limit"].GetStringValue()+`"`) {
							left = strings.TrimPrefix(strings.Split(member, ";")[1], "r=")
						}
					}
				}
			}
			text += " " + m["limit"].GetStringValue()
			if total == nil {
				text += " 3 " + left
			} else {
				text += fmt.Sprint(" ", total["requests_per_unit"].GetNumberValue(), " ", left, " ", total["unit"].GetStringValue())
			}
			if m["region"].GetStringValue() != "local" || m["mode"].GetStringValue() != "global" {
				t.Errorf("%s: %v", name, m)
			}
		}
		if text != row.want {
			t.Errorf("%s: %s, want %s\n%s", name, text, row.want, got.body)
		}
	}
}

// TestPolicyFromMetadata: policy_from of forward_auth finds the policy in the gateway's metadata, or in a header, and nowhere else.
// What the gateway's configuration says of the policy wins over it. Where that says where the policy is, the header does not stand in
// for one that is not there: this gateway need not overwrite that header, and a client could forge it.
func TestPolicyFromMetadata(t *testing.T) {
	t.Parallel()
	const metadata, header = "{metadata: jwt/payload/plan}", "{header: X-Plan}" // which is always gold
	for name, row := range map[string]struct {
		from string
		plan any
		said map[string]string
		want string // "" for a refusal
	}{
		"gold":                     {metadata, "gold", nil, "gold"},
		"another":                  {metadata, "silver", nil, "standard"},
		"no plan":                  {metadata, nil, nil, "standard"},
		"odd text":                 {metadata, "a b", nil, "standard"},
		"no text":                  {metadata, []any{"gold"}, nil, ""},
		"said":                     {metadata, "gold", map[string]string{"policy": "metered"}, "metered"},
		"elsewhere":                {metadata, "metered", map[string]string{"policy_from": "header/x-plan"}, "gold"},
		"not there":                {metadata, "metered", map[string]string{"policy_from": "header/x-none"}, "metered"},
		"the tenant":               {metadata, "gold", map[string]string{"tenant": "b"}, "gold"},
		"the header":               {header, nil, nil, "gold"},
		"the header, not there":    {header, nil, map[string]string{"policy_from": "jwt/payload/plan"}, "standard"},
		"another header":           {header, nil, map[string]string{"policy_from": "header/X-None"}, "standard"},
		"another header, defaults": {header, nil, map[string]string{"policy_from": "header/X-None", "policy": "metered"}, "metered"},
	} {
		r := checkOf("GET", "/", http.Header{"X-Tenant": {"acme"}, "X-User": {"u"}, "X-Plan": {"gold"}}, row.said)
		claiming(t, r, map[string]any{"payload": map[string]any{"plan": row.plan}})
		s := authorizerOf(t, strings.Replace(forwardTopology, "{header: X-Tenant}", "{header: X-Tenant}\n  policy_from: "+row.from, 1))
		if got, a := overGRPC(t.Context(), t, s, r); policyOf(a) != row.want || (got.status == 200) != (row.want != "") {
			t.Errorf("%s: %d under policy %q, want %q", name, got.status, policyOf(a), row.want)
		}
	}
}

// TestDenialOverGRPC: a denial is a 429 with its fields and problem, and metadata that say why.
func TestDenialOverGRPC(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	s := authorizer(t, forwardTopology, access.Access{}, sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	r := checkOf("GET", "/", http.Header{"X-Tenant": {"acme"}}, nil)
	for range 6 {
		if got, _ := overGRPC(t.Context(), t, s, r); got.status != 200 {
			t.Fatal(got)
		}
	}
	got, a := overGRPC(t.Context(), t, s, r)
	m := a.GetDynamicMetadata().GetFields()
	if got.status != 429 || a.GetStatus().GetCode() != int32(codes.ResourceExhausted) || !strings.Contains(got.body, "Limit all of policy standard is 6 per 1m") ||
		!slices.Contains(got.fields, "x-regiond-limit: all") || !slices.Contains(got.fields, "x-regiond-decision-id: "+newID().String()) {
		t.Errorf("%v", got)
	}
	if m["policy"].GetStringValue() != "standard" || m["limit"].GetStringValue() != "all" || m["id"].GetStringValue() != newID().String() || m["retry_after_ms"].GetNumberValue() != 60_000 {
		t.Errorf("%v", m)
	}
	// What is no message is refused too.
	if a, err := s.Check(t.Context(), []byte{0xff}); err != nil || a.GetDeniedResponse().GetStatus().GetCode() != 403 {
		t.Errorf("%v %v", a, err)
	}
	if got, want := codesOf(t, reader), map[string]int64{"OK": 6, "OVER_LIMIT": 1, "PermissionDenied": 1}; !maps.Equal(got, want) {
		t.Errorf("calls are counted as %v, want %v", got, want)
	}
}

// codesOf is how many calls were counted under each code.
func codesOf(t *testing.T, reader sdk.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "regiond.grpc.requests" {
			for _, p := range sum.DataPoints {
				code, _ := p.Attributes.Value("code")
				counted[code.AsString()] += p.Value
			}
		}
	}
	return counted
}

// TestGatewayMustShowItsToken: the gateway's, not one that its client sends.
func TestGatewayMustShowItsToken(t *testing.T) {
	t.Parallel()
	tokens, err := access.ParseTokens(strings.NewReader("envoy "+"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"), access.DefaultScopes) // of "password"
	if err != nil {
		t.Fatal(err)
	}
	s := authorizer(t, forwardTopology, access.Access{Tokens: tokens}, noop.Meter{})
	client := http.Header{"X-Tenant": {"acme"}, "X-Regiond-Token": {"password"}, "Authorization": {"Bearer password"}}
	for shown, want := range map[string]int{"": 403, "x-regiond-token password": 200, "authorization Bearer password": 200, "x-regiond-token other": 403, "authorization Basic password": 403} {
		ctx := t.Context()
		if name, value, ok := strings.Cut(shown, " "); ok {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(name, value))
		}
		if got, _ := overGRPC(ctx, t, s, checkOf("GET", "/", client, nil)); got.status != want {
			t.Errorf("%q: %d, want %d", shown, got.status, want)
		}
	}
}
