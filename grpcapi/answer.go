package grpcapi

import (
	"math"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

const (
	over = ratelimit.RateLimitResponse_OVER_LIMIT
	ok   = ratelimit.RateLimitResponse_OK
)

// Why a request is refused about which nothing was asked, beside quota's reasons.
const (
	reasonBounds = "out_of_bounds"
	reasonTenant = "foreign_tenant"
)

// refusal is the answer to a request that nothing was asked about.
func (c *call) refusal(r *ratelimit.RateLimitRequest, reason string) *ratelimit.RateLimitResponse {
	return &ratelimit.RateLimitResponse{
		OverallCode:          over,
		Statuses:             []*ratelimit.RateLimitResponse_DescriptorStatus{{Code: over, DurationUntilReset: wholeSeconds(unknownWait)}},
		ResponseHeadersToAdd: []*core.HeaderValue{{Key: "Retry-After", Value: "1"}, {Key: answer.IDHeader, Value: c.id.String()}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"policy": domainName(r), "id": structpb.NewStringValue(c.id.String()), "reason": structpb.NewStringValue(reason),
			"retry_after_ms": structpb.NewNumberValue(float64(unknownWait.Milliseconds())),
		}},
	}
}

// domainName is the domain of a request as text, which it need not be.
func domainName(r *ratelimit.RateLimitRequest) *structpb.Value {
	return structpb.NewStringValue(strings.ToValidUTF8(r.GetDomain(), "\uFFFD"))
}

// answer is what Envoy gets. d is nil for an unknown domain.
func (c *call) answer(d *rls.Domain, r *ratelimit.RateLimitRequest, v *verdict) *ratelimit.RateLimitResponse {
	a := &ratelimit.RateLimitResponse{OverallCode: ok, Statuses: make([]*ratelimit.RateLimitResponse_DescriptorStatus, len(v.cells))}
	if v.refused {
		a.OverallCode = over
	}
	merged := quota.Decision{Allowed: !v.refused, Basis: v.basis, Mode: v.mode, Reason: v.reason}
	var headline *cell
	for i := range v.cells {
		own := &v.cells[i]
		a.Statuses[i] = own.status(v)
		if own.free {
			c.metrics.refunds.Add(1)
		}
		if own.state.Limit == nil || own.rule.Shadow {
			continue
		}
		merged.Limits = append(merged.Limits, own.state)
		if headline == nil || merged.Headline() == len(merged.Limits)-1 {
			headline = own
		}
	}
	if v.ignored {
		c.metrics.ignored.Add(1)
	}
	if d != nil {
		merged.Policy = d.Policy().Name
	}
	var fields answer.Fields
	fields.RateLimit(&merged, answer.Input{Headers: c.settings.Headers, Jitter: c.Jitter(), NowUS: c.start.UnixMicro(), Denied: v.refused})
	for _, f := range fields {
		a.ResponseHeadersToAdd = append(a.ResponseHeadersToAdd, &core.HeaderValue{Key: f.Name, Value: f.Value})
	}
	merged.ID = c.id
	if v.refused {
		c.deny(a, v, merged.Policy)
	}
	a.DynamicMetadata = c.metadata(d, r, v, &merged, headline)
	if c.span != nil {
		c.span.SetAttributes(attribute.String("regiond.policy", merged.Policy), attribute.String("regiond.decision", merged.Label()),
			attribute.String("regiond.basis", v.basis.String()), attribute.String("regiond.mode", v.mode.String()))
	}
	return a
}

// deny adds to a refusal who refused, and passes it on to Options.Denied.
func (c *call) deny(a *ratelimit.RateLimitResponse, v *verdict, policy string) {
	d := v.denial()
	d.ID, d.Policy = c.id, policy
	a.ResponseHeadersToAdd = append(a.ResponseHeadersToAdd, &core.HeaderValue{Key: answer.IDHeader, Value: c.id.String()})
	if s := d.DeniedBy(); s != nil {
		a.ResponseHeadersToAdd = append(a.ResponseHeadersToAdd, &core.HeaderValue{Key: answer.LimitHeader, Value: s.Limit.Name})
	}
	if c.Denied != nil {
		c.Denied(&d)
	}
}

// status is that of one descriptor, of which Envoy makes its own header fields.
func (c *cell) status(v *verdict) *ratelimit.RateLimitResponse_DescriptorStatus {
	s := &ratelimit.RateLimitResponse_DescriptorStatus{Code: ok}
	switch {
	case c.rule == nil:
		return s
	case c.rule.Unlimited:
		s.LimitRemaining = math.MaxUint32
		return s
	}
	s.CurrentLimit = &ratelimit.RateLimitResponse_RateLimit{
		RequestsPerUnit: c.rule.PerUnit, Unit: ratelimit.RateLimitResponse_RateLimit_Unit(c.rule.Unit), Name: c.rule.Name,
	}
	if c.rule.Multiplier > 1 {
		s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(c.rule.Multiplier)
	}
	if v.refuses(c) {
		s.Code = over
	}
	if c.over {
		s.DurationUntilReset = wholeSeconds(max(c.state.RetryAfter, 1))
		return s
	}
	s.LimitRemaining = clip32(c.state.Remaining)
	s.DurationUntilReset = wholeSeconds(c.state.ResetAfter)
	return s
}

// wholeSeconds rounds up: Envoy cuts the fraction.
func wholeSeconds(d time.Duration) *durationpb.Duration {
	return durationpb.New((max(d, 0) + time.Second - 1).Truncate(time.Second))
}

// why says what was decided, for the gateway's access log and its next filters. limit is "" where none was asked.
func (s *Server) why(d *quota.Decision, limit string, id trace.TraceID) map[string]*structpb.Value {
	fields := map[string]*structpb.Value{
		"policy": structpb.NewStringValue(d.Policy),
		"region": structpb.NewStringValue(s.Region),
		"mode":   structpb.NewStringValue(d.Mode.String()),
		"basis":  structpb.NewStringValue(d.Basis.String()),
	}
	if limit != "" {
		fields["limit"] = structpb.NewStringValue(limit)
	}
	if d.Reason != quota.ReasonNone {
		fields["reason"] = structpb.NewStringValue(d.Reason.String())
	}
	if !d.Allowed {
		fields["retry_after_ms"] = structpb.NewNumberValue(float64(max(1, (d.RetryAfter() + time.Millisecond - 1).Milliseconds())))
	}
	if d.ID != (quota.DecisionID{}) {
		fields["id"] = structpb.NewStringValue(d.ID.String())
	}
	if id.IsValid() {
		fields["trace_id"] = structpb.NewStringValue(id.String())
	}
	return fields
}

// metadata is why, and what only a request of descriptors has.
func (c *call) metadata(d *rls.Domain, r *ratelimit.RateLimitRequest, v *verdict, merged *quota.Decision, headline *cell) *structpb.Struct {
	limit := ""
	if headline != nil {
		limit = headline.rule.Path
	}
	fields := c.why(merged, limit, c.trace)
	fields["policy"] = domainName(r)
	if v.apart {
		fields["apart"] = structpb.NewBoolValue(true)
	}
	if v.ignored {
		fields["ignored_limit"] = structpb.NewBoolValue(true)
	}
	if d != nil && d.Metadata {
		request(fields, r, v)
	}
	if more := v.metadata(); more != nil {
		fields["metadata"] = structpb.NewStructValue(more)
	}
	var violations []*structpb.Value
	for i := range v.cells {
		if own := &v.cells[i]; own.over && own.ofQuota() {
			violations = append(violations, structpb.NewNumberValue(float64(i)))
		}
	}
	if violations != nil {
		fields["quotaModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: violations})
	}
	return &structpb.Struct{Fields: fields}
}

// request adds what envoyproxy/ratelimit's RESPONSE_DYNAMIC_METADATA repeats of a request.
func request(fields map[string]*structpb.Value, r *ratelimit.RateLimitRequest, v *verdict) {
	text := func(s string) *structpb.Value { return structpb.NewStringValue(strings.ToValidUTF8(s, "\uFFFD")) }
	list := func(values []*structpb.Value) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: values})
	}
	descriptors := make([]*structpb.Value, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		entries := make([]*structpb.Value, len(d.GetEntries()))
		for n, e := range d.GetEntries() {
			entries[n] = text(e.GetKey() + "=" + e.GetValue())
		}
		own := map[string]*structpb.Value{"entries": list(entries)}
		if l := d.GetLimit(); l != nil {
			own["limit"] = text(l.String())
		}
		if hits := d.GetHitsAddend(); hits != nil {
			own["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
		}
		descriptors[i] = structpb.NewStructValue(&structpb.Struct{Fields: own})
	}
	fields["domain"], fields["descriptors"] = fields["policy"], list(descriptors)
	if hits := r.GetHitsAddend(); hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits))
	}
	fields["quotaModeEnabled"] = structpb.NewBoolValue(slices.ContainsFunc(v.cells, func(c cell) bool {
		return c.rule != nil && c.rule.Quota && !c.rule.Unlimited
	}))
}

// metadata is that of the rules with room for their cells, nil for none. Of rules that say the same differently the first counts.
func (v *verdict) metadata() *structpb.Struct {
	var all *structpb.Struct
	for i := range v.cells {
		c := &v.cells[i]
		switch {
		case c.rule == nil || c.rule.Metadata == nil || c.rule.Unlimited || c.over && !c.rule.Shadow:
		case all == nil:
			all = proto.CloneOf(c.rule.Metadata)
		default:
			merge(all, c.rule.Metadata)
		}
	}
	return all
}

// merge adds what into lacks.
func merge(into, from *structpb.Struct) {
	for name, value := range from.GetFields() {
		known, ok := into.GetFields()[name]
		switch {
		case !ok && into.Fields == nil:
			into.Fields = map[string]*structpb.Value{name: proto.CloneOf(value)}
		case !ok:
			into.Fields[name] = proto.CloneOf(value)
		case known.GetStructValue() != nil && value.GetStructValue() != nil:
			merge(known.GetStructValue(), value.GetStructValue())
		}
	}
}
