package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// Bounds of a request. What is beyond is refused, since Envoy lets a request pass for which it gets an error.
const (
	// MaxDescriptors is that of one request.
	MaxDescriptors = 100
	// MaxEntries is that of one descriptor.
	MaxEntries = 64
	// MaxBytes is that of a request, encoded.
	MaxBytes = 64 << 10
)

// margin is left of a caller's deadline for the way back.
const margin = 3 * time.Millisecond

// request is a message that asks about descriptors of a domain.
type request interface {
	proto.Message
	GetDomain() string
	GetDescriptors() []*common.RateLimitDescriptor
}

// described answers a message by what then makes of it; unread is what is wrong with the message. An error of
// a method that refuses is a mistake of the gateway's configuration: nothing that an end user sends makes one.
func described[R request](
	ctx context.Context, s *Server, method string, scope access.Scope, r R, unread error, then func(*call, *access.Token, R) (message, error),
) (answer message, err error) {
	c := s.begin(ctx, method)
	defer func() {
		if p := recover(); p != nil {
			s.Logger.Error("panic in a rate limit request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, err = c.refuse(r.GetDomain(), reasonBounds)
		}
		c.end(err)
	}()
	caller, err := c.settings.admit(ctx, scope)
	if err != nil {
		return nil, err
	}
	switch {
	case errors.Is(unread, errTooLarge):
		err = reasonBounds
	case unread != nil:
		return nil, status.Errorf(codes.InvalidArgument, "the message is no %s: %v", r.ProtoReflect().Descriptor().Name(), unread)
	case r.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "the request has no domain")
	case len(r.GetDescriptors()) == 0:
		return nil, status.Error(codes.InvalidArgument, "the request has no descriptors")
	}
	if err == nil {
		answer, err = then(c, caller, r)
	}
	if why := reason(""); errors.As(err, &why) {
		return c.refuse(r.GetDomain(), why)
	}
	return answer, err
}

// shouldRateLimit answers ratelimit.RateLimitServiceServer's only method.
func (s *Server) shouldRateLimit(ctx context.Context, r *ratelimit.RateLimitRequest, unread error) (message, error) {
	return described(ctx, s, methodRateLimit, access.Check, r, unread, (*call).rateLimit)
}

func (c *call) rateLimit(caller *access.Token, r *ratelimit.RateLimitRequest) (message, error) {
	d := c.settings.Domains[r.GetDomain()]
	p := pricing{hits: uint64(r.GetHitsAddend()), reports: caller.Scopes&access.Report != 0}
	if d != nil {
		p.charge = d.Charge
	}
	return c.priced(d, caller, r, p)
}

// priced answers a request whose descriptors are asked about at their prices.
func (c *call) priced(d *rls.Domain, caller *access.Token, r *ratelimit.RateLimitRequest, p pricing) (message, error) {
	v, err := c.decided(d, caller, r, p)
	if err != nil {
		return nil, err
	}
	return c.answer(d, r, v), nil
}

// decided asks about the descriptors of a request at their prices. d is nil for an unknown domain; an error is why
// nothing was asked.
func (c *call) decided(d *rls.Domain, caller *access.Token, r request, p pricing) (*verdict, error) {
	if err := c.unasked(d, r); err != nil {
		return nil, err
	}
	v := &verdict{}
	if d == nil {
		v.cells = make([]cell, len(r.GetDescriptors()))
		return v, nil
	}
	v.cells, v.ignored = c.cells(d, r.GetDescriptors(), p)
	if c.foreign(caller, v.cells) {
		return nil, reasonTenant
	}
	if err := refundable(v.cells, d, p); err != nil {
		return nil, err
	}
	deadline, cancel := inTime(c.ctx, c.start.Add(c.Deadline))
	defer cancel()
	c.decide(deadline, d, v)
	if slices.ContainsFunc(v.cells, func(o cell) bool { return o.unserved }) {
		return nil, reasonUnlisted
	}
	return v, nil
}

// refundable is what is wrong with the cells that take units back.
func refundable(cells []cell, d *rls.Domain, p pricing) error {
	for i := range cells {
		switch c := &cells[i]; {
		case !c.free || !c.counted():
		case !d.Refunds:
			return status.Errorf(codes.InvalidArgument,
				"descriptor %d has is_negative_hits, and domain %s takes no refunds: set refunds: true of it in topology.yaml", i, d.Name)
		case c.claim != nil:
			return status.Errorf(codes.InvalidArgument, "descriptor %d has is_negative_hits: the policy of a tenant takes no refunds", i)
		case !c.rule.Limit.Refundable:
			return status.Errorf(codes.InvalidArgument, "descriptor %d has is_negative_hits: a limit that comes with a request takes no refunds", i)
		case !p.reports:
			return status.Errorf(codes.PermissionDenied, "descriptor %d has is_negative_hits, which needs a token with scope report", i)
		}
	}
	return nil
}

// unasked is why nothing is asked about a request, nil for no reason. One too many at once is turned away as over HTTP, whatever
// on_overload says: nobody has looked whose it is, so to let it pass would let suspended tenants pass.
func (c *call) unasked(d *rls.Domain, r request) error {
	switch {
	case d == nil:
	case !within(r.GetDescriptors()):
		return reasonBounds
	case c.inFlight.Load() > int64(c.MaxInFlight):
		return reason(quota.ReasonOverloaded.String())
	}
	return nil
}

// foreign reports whether a cell is of a tenant that the caller may not name.
func (c *call) foreign(caller *access.Token, cells []cell) bool {
	for i := range cells {
		if counted := &cells[i]; counted.rule != nil && !caller.MayName(counted.tenant) {
			c.refusals.Warn("the token is held to other tenants than that of a descriptor", "token", caller.Name, "tenant", counted.tenant)
			return true // with an error Envoy would let pass who names another tenant
		}
	}
	return false
}

// within reports whether the descriptors of a request are within bounds.
func within(ds []*common.RateLimitDescriptor) bool {
	return len(ds) <= MaxDescriptors && !slices.ContainsFunc(ds, func(d *common.RateLimitDescriptor) bool {
		return len(d.GetEntries()) > MaxEntries
	})
}
