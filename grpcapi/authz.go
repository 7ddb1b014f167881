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
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regiond/regiond/httpapi"
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
func (s *Server) check(ctx context.Context, r *auth.CheckRequest, unread error) (answer *auth.CheckResponse, err error) {
	start := time.Now()
	defer func() {
		if recover() != nil { // it is in the log
			answer = answerOf(&httpapi.ForwardedAnswer{Response: httpapi.Response{Status: http.StatusTooManyRequests}})
		}
		code := codes.Code(answer.GetStatus().GetCode())
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
	f.Conn, f.Chains, f.Token = own.conn, own.chains, token(header{ctx})
	a := s.Authorize.Forward(ctx, f)
	answer = answerOf(a)
	if a.Decision != nil {
		answer.DynamicMetadata = s.whyForwarded(a)
	}
	return answer, nil
}

// token is the gateway's: X-Regiond-Token, or the one that grpc's own authorization has.
func token(h header) string {
	if lines := h.Values("X-Regiond-Token"); len(lines) == 1 {
		return lines[0]
	}
	if lines := h.Values("Authorization"); len(lines) == 1 {
		if scheme, secret, ok := strings.Cut(lines[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
			return strings.TrimLeft(secret, " ")
		}
	}
	return ""
}

// forwarded is what a gateway asks.
func forwarded(r *auth.CheckRequest) *httpapi.Forwarded {
	sent := r.GetAttributes().GetRequest().GetHttp()
	f := &httpapi.Forwarded{Method: sent.GetMethod(), Path: sent.GetPath(), Header: map[string][]string{}}
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
// is said without _from holds where there is none. Headers never stand in for a tenant or dimension that is not there: a client
// could forge them.
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
	case nil:
		return "", nil
	case *structpb.Value_StringValue:
		return v.StringValue, nil
	case *structpb.Value_NumberValue:
		return strconv.FormatFloat(v.NumberValue, 'f', -1, 64), nil
	default:
		return "", errors.New("the metadata has neither text nor a number there")
	}
}

// answerOf is what Envoy gets.
func answerOf(a *httpapi.ForwardedAnswer) *auth.CheckResponse {
	var fields []*core.HeaderValueOption
	for _, f := range a.ForClient() {
		fields = append(fields, &core.HeaderValueOption{
			Header: &core.HeaderValue{Key: f.Name, Value: f.Value}, AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	switch a.Status {
	case http.StatusOK:
		return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}, HttpResponse: &auth.CheckResponse_OkResponse{
			OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: fields},
		}}
	case http.StatusTooManyRequests:
		return deniedBy(codes.ResourceExhausted, a, fields)
	}
	return deniedBy(codes.PermissionDenied, a, fields)
}

func deniedBy(code codes.Code, a *httpapi.ForwardedAnswer, fields []*core.HeaderValueOption) *auth.CheckResponse {
	return &auth.CheckResponse{Status: &status.Status{Code: int32(code)}, HttpResponse: &auth.CheckResponse_DeniedResponse{
		DeniedResponse: &auth.DeniedHttpResponse{
			Status: &kind.HttpStatus{Code: kind.StatusCode(a.Status)}, Headers: fields, Body: string(a.Body),
		},
	}}
}

// units are the windows that Envoy has a word for.
var units = map[time.Duration]string{
	time.Second: "SECOND", time.Minute: "MINUTE", time.Hour: "HOUR", 24 * time.Hour: "DAY", 30 * 24 * time.Hour: "MONTH",
}

// whyForwarded is why, and total_limit in the form in which Envoy's rate limit filter takes a limit from metadata.
func (s *Server) whyForwarded(a *httpapi.ForwardedAnswer) *structpb.Struct {
	d := a.Decision
	i := d.Headline()
	if i < 0 {
		return &structpb.Struct{Fields: s.why(d, "", a.Trace)}
	}
	l := d.Limits[i].Limit
	fields := s.why(d, l.Name, a.Trace)
	if unit := units[l.Window]; unit != "" {
		fields["total_limit"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"requests_per_unit": structpb.NewNumberValue(float64(l.Units)), "unit": structpb.NewStringValue(unit),
		}})
	}
	return &structpb.Struct{Fields: fields}
}
