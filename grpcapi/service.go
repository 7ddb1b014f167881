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

// shouldRateLimit answers ratelimit.RateLimitServiceServer's only method; unread is what is wrong with the message. An error
// is a mistake of the gateway's configuration: nothing that an end user sends makes one.
func (s *Server) shouldRateLimit(ctx context.Context, r *ratelimit.RateLimitRequest, unread error) (answer message, err error) {
	c := s.begin(ctx, methodRateLimit)
	defer func() {
		if p := recover(); p != nil {
			s.Logger.Error("panic in a rate limit request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, err = c.refusal(r, reasonBounds), nil
		}
		c.end(err)
	}()
	caller, err := c.settings.admit(ctx, access.Check)
	if err != nil {
		return nil, err
	}
	switch {
	case errors.Is(unread, errTooLarge):
		return c.refusal(r, reasonBounds), nil
	case unread != nil:
		return nil, status.Errorf(codes.InvalidArgument, "the message is no RateLimitRequest: %v", unread)
	case r.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "the request has no domain")
	case len(r.GetDescriptors()) == 0:
		return nil, status.Error(codes.InvalidArgument, "the request has no descriptors")
	}
	d := c.settings.Domains[r.GetDomain()]
	v := &verdict{}
	switch {
	case d == nil:
		v.cells = make([]cell, len(r.GetDescriptors()))
	case !within(r):
		return c.refusal(r, reasonBounds), nil
	case s.inFlight.Load() > int64(s.MaxInFlight) && d.Policy().OnOverload == quota.OverloadShed:
		return c.refusal(r, quota.ReasonOverloaded.String()), nil
	case s.inFlight.Load() > int64(s.MaxInFlight):
		v.cells, v.basis, v.reason = make([]cell, len(r.GetDescriptors())), quota.BasisOpen, quota.ReasonOverloaded
	default:
		v.cells, v.ignored = s.cells(d, r, caller.Scopes&access.Report != 0)
		for i := range v.cells {
			if counted := &v.cells[i]; counted.rule != nil && !caller.MayName(counted.tenant) {
				s.refusals.Warn("the token is held to other tenants than that of a descriptor", "token", caller.Name, "tenant", counted.tenant)
				return c.refusal(r, reasonTenant), nil // with an error Envoy would let pass who names another tenant
			}
		}
		deadline, cancel := inTime(c.ctx, c.start.Add(s.Deadline))
		defer cancel()
		s.decide(deadline, d, v)
	}
	return c.answer(d, r, v), nil
}

// within reports whether a request is within bounds.
func within(r *ratelimit.RateLimitRequest) bool {
	return len(r.GetDescriptors()) <= MaxDescriptors && !slices.ContainsFunc(r.GetDescriptors(), func(d *common.RateLimitDescriptor) bool {
		return len(d.GetEntries()) > MaxEntries
	})
}
