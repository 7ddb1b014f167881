package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

const (
	methodCheck = "Authorization/Check"
	// MaxCheckBytes is the size of a check, encoded: far above what gateways take of headers. What is beyond is refused.
	MaxCheckBytes = 1 << 20
	// from ends the names of context_extensions that say where a value is found, and not what it is.
	from = "_from"
)

// check answers auth.AuthorizationServer's only method, as /v1/authz of the data listener does: whatever is wrong is a refusal,
// since Envoy may let a request pass for which it gets an error.
func (s *Server) check(ctx context.Context, r *auth.CheckRequest, unread error) (answer message, err error) {
	start, code := time.Now(), codes.ResourceExhausted
	defer func() {
		if recover() != nil { // it is in the log
			answer, code = tooMany(), codes.ResourceExhausted
		}
		result := code.String()
		if code == codes.ResourceExhausted { // a denial, as that of the other method
			result = overLimit
		}
		s.metrics.record(ctx, methodCheck, result, start)
	}()
	ctx, cancel := inTime(ctx, start.Add(s.Deadline))
	defer cancel()
	f := forwarded(r)
	f.Unclear = cmp.Or(unread, f.Unclear)
	own := linkOf(ctx)
	f.Conn, f.Chains = own.conn, own.chains
	f.Token, _ = access.Shown{Header: header{ctx}}.Secret(true)
	a := s.Authorize.Forward(ctx, f)
	code, answer = codeOf(a), answerOf(a)
	if a.Decision != nil {
		s.whyForwarded(&answer, a)
	}
	return answer, nil
}

// forwarded is what a gateway asks.
func forwarded(r *auth.CheckRequest) *httpapi.Forwarded {
	sent := r.GetAttributes().GetRequest().GetHttp()
	f := &httpapi.Forwarded{Method: sent.GetMethod(), Path: sent.GetPath(), Header: map[string][]string{}}
	f.Metadata = func(place string) (string, error) { return find(f, r.GetAttributes().GetMetadataContext(), place) }
	for name, value := range sent.GetHeaders() {
		f.Header[strings.ToLower(name)] = append(f.Header[strings.ToLower(name)], value)
	}
	for _, h := range sent.GetHeaderMap().GetHeaders() {
		name := strings.ToLower(h.GetKey())
		f.Header[name] = append(f.Header[name], cmp.Or(h.GetValue(), string(h.GetRawValue())))
	}
	if at := r.GetAttributes().GetSource().GetAddress().GetSocketAddress(); at != nil {
		f.Remote = net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPortValue())))
	}
	if f.Unclear = configure(f, r); f.Unclear != nil {
		f.Unclear = fmt.Errorf("context_extensions: %w", f.Unclear)
	}
	return f
}

// configure reads what the gateway's configuration says of this route, its context_extensions: tenant, policy, route, cost and
// dim.NAME. With _from behind the name it says where the value is: NAMESPACE/KEY/KEY of metadata_context, or header/NAME, and what
// is said without _from holds where there is none, or none that a policy has. Headers never stand in for a tenant, policy or
// dimension that is not there: a client could forge them.
func configure(f *httpapi.Forwarded, r *auth.CheckRequest) error {
	said := r.GetAttributes().GetContextExtensions()
	for _, key := range slices.Sorted(maps.Keys(said)) {
		value := said[key]
		name, elsewhere := strings.CutSuffix(key, from)
		if elsewhere {
			var err error
			if value, err = find(f, r.GetAttributes().GetMetadataContext(), value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		f.NoTenant = f.NoTenant || elsewhere && name == "tenant" && value == ""
		dimension, isDimension := strings.CutPrefix(name, "dim.")
		switch {
		case name == "tenant":
			f.Tenant = cmp.Or(value, f.Tenant)
		case name == "policy" && elsewhere:
			f.TenantPolicy, f.NoPolicy = value, true
		case name == "policy":
			f.Policy = cmp.Or(value, f.Policy)
		case name == "route":
			f.Route = cmp.Or(value, f.Route)
		case name == "cost" && (value != "" || !elsewhere):
			cost, err := strconv.ParseInt(value, 10, 64)
			if err != nil || cost < 1 {
				return errors.New("the cost must be a whole number above 0")
			}
			f.Cost = cost
		case isDimension && said[name] != "" && elsewhere:
			return fmt.Errorf("%s and %s are both set", name, key)
		case isDimension:
			f.Dimensions = append(f.Dimensions, quota.Dimension{Name: dimension, Value: value})
		}
	}
	return nil
}

// find returns the value at a place, "" where there is none.
func find(f *httpapi.Forwarded, all *core.Metadata, place string) (string, error) {
	namespace, path, ok := strings.Cut(place, "/")
	if !ok {
		return "", errors.New("want header/NAME, or NAMESPACE/KEY of the metadata")
	}
	if namespace == "header" {
		lines := f.Header[strings.ToLower(path)]
		if len(lines) > 1 || len(lines) == 1 && strings.Contains(lines[0], ",") {
			return "", fmt.Errorf("header %s was sent more than once: the gateway must overwrite it", path)
		}
		return strings.Join(lines, ""), nil
	}
	value := structpb.NewStructValue(all.GetFilterMetadata()[namespace])
	for key := range strings.SplitSeq(path, "/") {
		value = value.GetStructValue().GetFields()[key]
	}
	switch v := value.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return "", nil
	case *structpb.Value_StringValue:
		return v.StringValue, nil
	case *structpb.Value_NumberValue:
		return strconv.FormatFloat(v.NumberValue, 'f', -1, 64), nil
	default:
		return "", errors.New("the metadata has neither text nor a number there")
	}
}

// codeOf is what Envoy is told to do with a request.
func codeOf(a *httpapi.ForwardedAnswer) codes.Code {
	switch a.Status {
	case http.StatusOK:
		return codes.OK
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	}
	return codes.PermissionDenied
}

// The fields of an envoy.service.auth.v3.CheckResponse, and of what it consists of.
const (
	checkStatus   = 1
	checkDenied   = 2
	checkOK       = 3
	checkMetadata = 4

	deniedStatus = 1
	deniedHeader = 2
	deniedBody   = 3
	okHeader     = 6

	optionHeader = 1
	optionAction = 3
)

// answerOf is what Envoy gets.
func answerOf(a *httpapi.ForwardedAnswer) message {
	m, code := make(message, 0, room), codeOf(a)
	at := m.begin(checkStatus)
	m.number(1, uint64(code))
	m.end(at)
	if code == codes.OK {
		at = m.begin(checkOK)
		m.forClient(okHeader, a)
		m.end(at)
		return m
	}
	at = m.begin(checkDenied)
	within := m.begin(deniedStatus)
	m.number(1, uint64(a.Status)) //nolint:gosec // a status of HTTP
	m.end(within)
	m.forClient(deniedHeader, a)
	m.text(deniedBody, string(a.Body))
	m.end(at)
	return m
}

// forClient appends the header fields for the client, each as an envoy.config.core.v3.HeaderValueOption.
func (m *message) forClient(field protowire.Number, a *httpapi.ForwardedAnswer) {
	for _, f := range a.ForClient() {
		at := m.begin(field)
		m.header(optionHeader, f.Name, f.Value)
		m.number(optionAction, uint64(core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
		m.end(at)
	}
}

// tooMany is the answer to a request that nothing was asked about.
func tooMany() message {
	return answerOf(&httpapi.ForwardedAnswer{Response: httpapi.Response{Status: http.StatusTooManyRequests}})
}

// whyForwarded appends why, and total_limit in the form in which Envoy's rate limit filter takes a limit from metadata, where it has
// a word for the unit. It has none for a week.
func (s *Server) whyForwarded(m *message, a *httpapi.ForwardedAnswer) {
	d, limit := a.Decision, new(quota.Limit)
	if i := d.Headline(); i >= 0 {
		limit = d.Limits[i].Limit
	}
	at := m.begin(checkMetadata)
	s.why(m, d, d.Policy, limit.Name, a.Trace)
	if in := rls.RuleOf(limit); in.Multiplier == 1 && in.Unit > 0 && in.Unit != int32(ratelimit.RateLimitResponse_RateLimit_WEEK) {
		m.value("total_limit", structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"requests_per_unit": structpb.NewNumberValue(float64(limit.Units)), "unit": structpb.NewStringValue(ratelimit.RateLimitResponse_RateLimit_Unit(in.Unit).String()),
		}}))
	}
	m.end(at)
}
