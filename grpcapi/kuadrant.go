package grpcapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/regiond/regiond/grpcapi/internal/kuadrantpb"
	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Kuadrant's rate limit service, over the same domains as Envoy's:
//
//	CheckRateLimit, Report ─▶ decided, with other prices than ShouldRateLimit has
//	Reserve, Commit ─▶ cells ─▶ held: one quota.Request with a charge for each limit ─▶ Limiter.Reserve, Limiter.Settle

// kuadrant describes the service to grpc.
func (s *Server) kuadrant() *grpc.ServiceDesc {
	file := pb.File_kuadrantrls_proto
	return &grpc.ServiceDesc{
		ServiceName: string(file.Services().Get(0).FullName()), Metadata: file.Path(),
		Streams: []grpc.StreamDesc{
			ofKuadrant(s, methodLook, access.Check, (*call).look), ofKuadrant(s, methodReport, access.Report, (*call).report),
			ofKuadrant(s, methodReserve, access.Check, (*call).reserve), ofKuadrant(s, methodCommit, access.Report, (*call).commit),
		},
	}
}

// ofKuadrant is a method of the service.
func ofKuadrant[T any, R interface {
	*T
	request
}](s *Server, method string, scope access.Scope, then func(*call, *access.Token, R) (message, error)) grpc.StreamDesc {
	return unary(method[strings.LastIndexByte(method, '/')+1:], MaxBytes, func(ctx context.Context, r R, unread error) (message, error) {
		return described(ctx, s, method, scope, r, unread, then)
	})
}

// look answers CheckRateLimit.
func (c *call) look(caller *access.Token, r *ratelimit.RateLimitRequest) (message, error) {
	return c.priced(c.settings.Domains[r.GetDomain()], caller, r, pricing{looks: true})
}

// report answers Report. It is not refused, so its answer names no limit.
func (c *call) report(caller *access.Token, r *ratelimit.RateLimitRequest) (message, error) {
	var a message
	a.number(overallCode, uint64(ok))
	return a, c.charge(caller, r, pricing{hits: uint64(r.GetHitsAddend())})
}

// charge charges the descriptors of a request whatever is left.
func (c *call) charge(caller *access.Token, r request, p pricing) error {
	p.charge, p.reports = region.ChargeAlways, true
	v, err := c.decided(c.settings.Domains[r.GetDomain()], caller, r, p)
	if err != nil {
		return err
	}
	for i := range v.cells {
		own := &v.cells[i]
		if own.counted() && own.undecided {
			return status.Errorf(codes.Unavailable, "descriptor %d was not charged: %v", i, v.reason)
		}
	}
	return nil
}

// The fields of a ReserveResponse and of a CommitResponse.
const (
	reserveCode    = 1
	reserveID      = 2
	commitReleased = 1
)

// reserve answers Reserve.
func (c *call) reserve(caller *access.Token, r *pb.ReserveRequest) (message, error) {
	ttl := r.GetTtl()
	if ttl != nil && (ttl.CheckValid() != nil || ttl.AsDuration() < 0) {
		return nil, status.Error(codes.InvalidArgument, "ttl must be at least 0s")
	}
	d := c.settings.Domains[r.GetDomain()]
	if err := c.unasked(d, r); err != nil {
		return nil, err
	}
	a := make(message, 0, room)
	a.number(reserveCode, uint64(ok))
	if d == nil {
		return a, nil
	}
	h, err := c.holding(d, caller, r)
	switch {
	case err != nil:
		return nil, err
	case h.never:
		return nil, reasonNoRoom
	case h.Charges == nil:
		return a, nil
	}
	if h.Reserve = true; ttl.AsDuration() > 0 { // 0 is as long as the policy says
		h.TTL = max(ttl.AsDuration(), time.Millisecond)
	}
	h.Cost = int64(min(r.GetAmount(), uint64(h.most))) //nolint:gosec // most is a limit's
	for i := range h.Charges {
		h.Charges[i].Cost = max(1, h.Cost)
	}
	ctx, cancel := inTime(c.ctx, c.start.Add(c.Deadline))
	defer cancel()
	o := &c.Limiter.Reserve(ctx, []quota.Request{h.Request})[0]
	if o.Err != nil {
		return nil, claimError(o.Err)
	}
	got := &o.Decision
	got.ID = c.id
	c.seen(got)
	if !got.Allowed {
		if c.Denied != nil {
			c.Denied(got)
		}
		return nil, reasonNoRoom
	}
	if got.Reservation != nil {
		a.text(reserveID, got.Reservation.ID)
	}
	return a, nil
}

// commit answers Commit.
func (c *call) commit(caller *access.Token, r *pb.CommitRequest) (message, error) {
	a := message{}
	d := c.settings.Domains[r.GetDomain()]
	switch {
	case r.GetActualAmount() > uint64(quota.MaxUnits):
		return nil, status.Errorf(codes.InvalidArgument, "actual_amount must be at most %d", quota.MaxUnits)
	case d != nil && r.GetReservationId() != "" && d.Policy().Reserves():
	case r.GetActualAmount() == 0:
		return a, nil
	default:
		return a, c.charge(caller, r, pricing{hits: r.GetActualAmount(), alone: true})
	}
	if !within(r.GetDescriptors()) {
		return nil, reasonBounds
	}
	h, err := c.holding(d, caller, r)
	switch {
	case err != nil:
		return nil, err
	case h.Charges == nil:
		return a, nil
	}
	ctx, cancel := inTime(c.ctx, c.start.Add(c.Deadline))
	defer cancel()
	o := &c.Limiter.Settle(ctx, []quota.Claim{{
		Reservation: r.GetReservationId(), Actual: int64(r.GetActualAmount()), May: caller.MayName, Of: &h.Request, //nolint:gosec // MaxUnits fits
	}})[0]
	switch {
	case o.Err != nil:
		return nil, claimError(o.Err)
	case o.Decision.Settlement == nil:
		return nil, status.Errorf(codes.Unavailable, "nothing was charged, send it again: %v", o.Decision.Reason)
	}
	c.seen(&o.Decision)
	if o.Decision.Settlement.Released {
		a.number(commitReleased, 1)
	}
	return a, nil
}

// held is what descriptors reserve.
type held struct {
	quota.Request       // without Charges where no limit applies
	most          int64 // that it may hold of each limit
	never         bool  // a limit of 0 refuses it
}

// holding reads the descriptors of a reservation: they are of one tenant, and each is under a limit of its own, so that one
// step of the store holds all or nothing. What an end user sends decides that, as in user=a beside user=b, so others are refused.
// Limits in shadow mode refuse nothing: beside others they are left out.
func (c *call) holding(d *rls.Domain, caller *access.Token, r request) (h held, err error) {
	cells, _ := c.cells(d, r.GetDescriptors(), pricing{looks: true})
	if c.foreign(caller, cells) {
		return h, reasonTenant
	}
	h = held{Request: quota.Request{Policy: d.Policy().Name, Observe: true}, most: quota.MaxUnits}
	for i := range cells {
		own := &cells[i]
		if own.counted() && !own.rule.Shadow {
			h.Observe = false
		}
		h.never = h.never || own.never() && !own.rule.Shadow
	}
	for i := range cells {
		own := &cells[i]
		if !own.counted() || own.first != i || own.rule.Shadow && !h.Observe {
			continue
		}
		switch {
		case own.claim != nil:
			return h, status.Errorf(codes.FailedPrecondition, "descriptor %d is decided by its tenant's policy: reserve it over HTTP", i)
		case d.Policy().Reserves() && !own.rule.Limit.Holds():
			return h, status.Errorf(codes.InvalidArgument, "descriptor %d: a limit that comes with a request takes no reservation", i)
		case h.Charges != nil && own.tenant != h.Tenant, len(h.Charges) == quota.MaxLimits,
			slices.ContainsFunc(h.Charges, func(o quota.Charge) bool { return o.Limit == own.rule.Limit }):
			c.refusals.Warn("a reservation was refused: "+notTogether(), "domain", d.Name, "descriptor", i, "limit", own.rule.Path)
			return h, reasonTogether
		}
		h.Tenant, h.most = own.tenant, min(h.most, d.Policy().MostHeld(own.rule.Limit))
		h.Charges = append(h.Charges, quota.Charge{Limit: own.rule.Limit, Dimensions: own.dims})
	}
	slices.SortFunc(h.Charges, func(a, b quota.Charge) int { return strings.Compare(a.Limit.Name, b.Limit.Name) }) // an id knows them by their places
	return h, nil
}

// claimError is the status of a reservation that cannot be made, or not be settled.
func claimError(err error) error {
	code := codes.InvalidArgument
	if bad := (*quota.Invalid)(nil); errors.As(err, &bad) {
		switch bad.Fault {
		case quota.FaultUnknown:
			code = codes.NotFound
		case quota.FaultOver, quota.FaultNoHolds:
			code = codes.FailedPrecondition
		}
	}
	return status.Error(code, err.Error())
}
