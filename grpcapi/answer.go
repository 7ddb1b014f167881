package grpcapi

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

const (
	over = ratelimit.RateLimitResponse_OVER_LIMIT
	ok   = ratelimit.RateLimitResponse_OK
)

// reason is why a request is refused about which nothing was asked, and an error so that it reaches refuse.
type reason string

// Error implements error.
func (r reason) Error() string { return string(r) }

const (
	reasonBounds reason = "out_of_bounds"
	reasonTenant reason = "foreign_tenant"
	// reasonUnlisted is of a tenant that nobody serves: the topology neither lists it nor has a default.
	reasonUnlisted reason = "unlisted_tenant"
	// reasonTogether is of a reservation: see notTogether.
	reasonTogether reason = "not_together"
	// reasonNoRoom is of a reservation, whose answer does not say why.
	reasonNoRoom reason = "no_room"
)

// notTogether says what the descriptors of a reservation are not.
func notTogether() string {
	return fmt.Sprintf("its descriptors must be of one tenant, each under another limit, under at most %d limits", quota.MaxLimits)
}

// The fields of an envoy.service.ratelimit.v3.RateLimitResponse.
const (
	overallCode     = 1
	statuses        = 2
	headersToAdd    = 3
	dynamicMetadata = 6
)

// refuse answers a request that nothing was asked about. A method that only charges has no refusal: its answer is an error.
func (c *call) refuse(domain string, why reason) (message, error) {
	switch {
	case c.method != methodReport && c.method != methodCommit:
		c.refused = true
		return c.refusal(domain, why), nil
	case why == reasonTenant:
		return nil, status.Error(codes.PermissionDenied, "the token is held to other tenants than that of a descriptor")
	case why == reasonUnlisted:
		return nil, status.Error(codes.NotFound, "the tenant of a descriptor is not listed under tenants, and there is no default")
	case why == reasonBounds:
		return nil, status.Error(codes.InvalidArgument, "the message is larger than a request may be")
	case why == reasonTogether:
		return nil, status.Error(codes.NotFound, "no reservation has such descriptors: "+notTogether())
	}
	return nil, status.Error(codes.Unavailable, "nothing was charged: "+why.Error())
}

func (c *call) refusal(domain string, why reason) message {
	a := make(message, 0, room)
	if c.method == methodReserve {
		a.number(reserveCode, uint64(over))
		return a
	}
	a.number(overallCode, uint64(over))
	at := a.begin(statuses)
	a.number(statusCode, uint64(over))
	a.wholeSeconds(statusReset, unknownWait)
	a.end(at)
	a.header(headersToAdd, "Retry-After", "1")
	a.header(headersToAdd, answer.IDHeader, c.id.String())
	at = a.begin(dynamicMetadata)
	a.property("policy", domain)
	a.property("id", c.id.String())
	a.property("reason", why.Error())
	a.value("retry_after_ms", structpb.NewNumberValue(float64(unknownWait.Milliseconds())))
	a.end(at)
	return a
}

// answer is what Envoy gets. d is nil for an unknown domain.
func (c *call) answer(d *rls.Domain, r *ratelimit.RateLimitRequest, v *verdict) message {
	c.refused = v.refused
	a, code := make(message, 0, room), ok
	if v.refused {
		code = over
	}
	a.number(overallCode, uint64(code))
	merged := quota.Decision{Allowed: !v.refused, Basis: v.basis, Mode: v.mode, Reason: v.reason}
	for i := range v.cells {
		at := a.begin(statuses)
		v.cells[i].status(&a, v)
		a.end(at)
	}
	if v.ignored {
		c.metrics.ignored.Add(1)
	}
	if d != nil {
		merged.Policy = d.Policy().Name
	}
	headline := v.headline(&merged)
	fields := make(answer.Fields, 0, 4) // as many as most answers have
	fields.RateLimit(&merged, answer.Input{Headers: c.settings.Headers, Jitter: c.Jitter(), NowUS: c.start.UnixMicro(), Denied: v.refused})
	for _, f := range fields {
		a.header(headersToAdd, f.Name, f.Value)
	}
	merged.ID = c.id
	if v.refused {
		c.deny(&a, v, merged.Policy)
	}
	at := a.begin(dynamicMetadata)
	c.metadata(&a, d, r, v, &merged, headline)
	a.end(at)
	c.seen(&merged)
	return a
}

// headline gives the decision the limits of the request, and returns the cell of the one that sums them up; nil without any. Of
// several policies the limits are those of that cell's: header fields name one.
func (v *verdict) headline(d *quota.Decision) (headline *cell) {
	var all quota.Decision
	for i := range v.cells {
		own := &v.cells[i]
		if own.state.Limit == nil || own.rule.Shadow {
			continue
		}
		all.Limits = append(all.Limits, own.state)
		if headline == nil || all.Headline() == len(all.Limits)-1 {
			headline = own
		}
	}
	if headline == nil {
		return nil
	}
	if headline.claim != nil {
		d.Policy = headline.policy
	}
	for i := range v.cells {
		if own := &v.cells[i]; own.rule != nil && !own.rule.Shadow && own.policy == headline.policy {
			d.Limits = append(d.Limits, own.decidedBy()...)
		}
	}
	return headline
}

// seen adds a decision to the span of the call.
func (c *call) seen(d *quota.Decision) {
	if c.span != nil {
		c.span.SetAttributes(attribute.String("regiond.policy", d.Policy), attribute.String("regiond.decision", d.Label()),
			attribute.String("regiond.basis", d.Basis.String()), attribute.String("regiond.mode", d.Mode.String()))
	}
}

// deny adds to a refusal who refused, and passes it on to Options.Denied.
func (c *call) deny(a *message, v *verdict, policy string) {
	d := v.denial()
	d.ID, d.Policy = c.id, cmp.Or(d.Policy, policy)
	a.header(headersToAdd, answer.IDHeader, c.id.String())
	if s := d.DeniedBy(); s != nil {
		a.header(headersToAdd, answer.LimitHeader, s.Limit.Name)
	}
	if c.Denied != nil {
		c.Denied(&d)
	}
}

// The fields of a RateLimitResponse.DescriptorStatus, and of its RateLimit.
const (
	statusCode      = 1
	statusLimit     = 2
	statusRemaining = 3
	statusReset     = 4

	limitPerUnit    = 1
	limitUnit       = 2
	limitName       = 3
	limitMultiplier = 4
)

// status appends that of one descriptor, of which Envoy makes its own header fields.
func (c *cell) status(m *message, v *verdict) {
	switch {
	case c.rule == nil:
		m.number(statusCode, uint64(ok))
		return
	case c.rule.Unlimited:
		m.number(statusCode, uint64(ok))
		m.number(statusRemaining, math.MaxUint32)
		return
	case v.refuses(c):
		m.number(statusCode, uint64(over))
	default:
		m.number(statusCode, uint64(ok))
	}
	rule := c.rule
	switch l := c.state.Limit; {
	case c.claim == nil:
	case l == nil && !c.over: // no limit of the policy applies
		return
	case l != nil:
		own := rls.RuleOf(l)
		rule = &own
	}
	if rule.Unit > 0 {
		at := m.begin(statusLimit)
		m.number(limitPerUnit, uint64(rule.PerUnit))
		m.number(limitUnit, uint64(rule.Unit)) //nolint:gosec // an enumeration's
		m.text(limitName, rule.Name)
		if rule.Multiplier > 1 {
			within := m.begin(limitMultiplier)
			m.number(1, uint64(rule.Multiplier))
			m.end(within)
		}
		m.end(at)
	}
	if c.over && c.state.Reason == quota.ReasonSuspended { // of which no end is known
		return
	}
	if c.over {
		m.wholeSeconds(statusReset, max(c.state.RetryAfter, 1))
		return
	}
	m.number(statusRemaining, min(uint64(max(c.state.Remaining, 0)), math.MaxUint32))
	m.wholeSeconds(statusReset, c.state.ResetAfter)
}

// wholeSeconds appends a google.protobuf.Duration, rounded up: Envoy cuts the fraction.
func (m *message) wholeSeconds(field protowire.Number, d time.Duration) {
	at := m.begin(field)
	m.number(1, uint64((max(d, 0)+time.Second-1)/time.Second))
	m.end(at)
}

// why appends what was decided to a Struct, for the gateway's access log and its next filters. limit is "" where none was asked.
func (s *Server) why(m *message, d *quota.Decision, policy, limit string, id trace.TraceID) {
	m.property("policy", policy)
	m.property("region", s.Region)
	m.property("mode", d.Mode.String())
	m.property("basis", d.Basis.String())
	if limit != "" {
		m.property("limit", limit)
	}
	if d.Reason != quota.ReasonNone {
		m.property("reason", d.Reason.String())
	}
	if !d.Allowed && d.Reason != quota.ReasonSuspended {
		m.value("retry_after_ms", structpb.NewNumberValue(float64(max(1, (d.RetryAfter()+time.Millisecond-1).Milliseconds()))))
	}
	if d.ID != (quota.DecisionID{}) {
		m.property("id", d.ID.String())
	}
	if id.IsValid() {
		m.property("trace_id", id.String())
	}
}

// metadata is why, and what only a request of descriptors has.
func (c *call) metadata(a *message, d *rls.Domain, r *ratelimit.RateLimitRequest, v *verdict, merged *quota.Decision, headline *cell) {
	limit := ""
	if headline != nil {
		limit = headline.rule.Path
	}
	policy := r.GetDomain()
	if headline != nil && headline.claim != nil {
		policy, limit = headline.policy, headline.state.Limit.Name
	}
	c.why(a, merged, policy, limit, c.trace)
	if v.apart {
		a.value("apart", structpb.NewBoolValue(true))
	}
	if v.ignored {
		a.value("ignored_limit", structpb.NewBoolValue(true))
	}
	if d != nil && d.Metadata {
		a.request(r, v)
	}
	if more := v.metadata(); more != nil {
		a.value("metadata", structpb.NewStructValue(more))
	}
	var violations []*structpb.Value
	for i := range v.cells {
		if own := &v.cells[i]; own.over && own.ofQuota() {
			violations = append(violations, structpb.NewNumberValue(float64(i)))
		}
	}
	if violations != nil {
		a.value("quotaModeViolations", structpb.NewListValue(&structpb.ListValue{Values: violations}))
	}
}

// request appends what envoyproxy/ratelimit's RESPONSE_DYNAMIC_METADATA repeats of a request.
func (m *message) request(r *ratelimit.RateLimitRequest, v *verdict) {
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
	m.property("domain", r.GetDomain())
	m.value("descriptors", list(descriptors))
	if hits := r.GetHitsAddend(); hits != 0 {
		m.value("hitsAddend", structpb.NewNumberValue(float64(hits)))
	}
	m.value("quotaModeEnabled", structpb.NewBoolValue(slices.ContainsFunc(v.cells, func(c cell) bool {
		return c.rule != nil && c.rule.Quota && !c.rule.Unlimited
	})))
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
