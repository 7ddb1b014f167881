package grpcapi

import (
	"context"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	// watchEvery is how late a watch learns of a change at most.
	watchEvery = time.Second
	// maxWatches bounds the watches of a server. They last as long as their connections, and need no token.
	maxWatches = 256
)

// state is the health of a service, those of service "ratelimit" too: of all of them it is the same.
func (s *Server) state(service string) health.HealthCheckResponse_ServingStatus {
	switch service {
	case "", "ratelimit", ratelimit.RateLimitService_ServiceDesc.ServiceName, auth.Authorization_ServiceDesc.ServiceName:
	default:
		return health.HealthCheckResponse_SERVICE_UNKNOWN
	}
	select {
	case <-s.stopping:
		return health.HealthCheckResponse_NOT_SERVING
	default:
	}
	if ok, _ := s.Ready(); !ok {
		return health.HealthCheckResponse_NOT_SERVING
	}
	return health.HealthCheckResponse_SERVING
}

// health answers health checks.
func (s *Server) health(_ context.Context, r *health.HealthCheckRequest, unread error) (message, error) {
	if unread != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the message is no HealthCheckRequest: %v", unread)
	}
	state := s.state(r.GetService())
	if state == health.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, "no such service")
	}
	var a message
	a.number(1, uint64(state))
	return a, nil
}

// watch sends the health of a service, and again when it changes. A client takes an error for bad health, but that there is
// no such method for good health.
func (s *Server) watch(_ any, stream grpc.ServerStream) error {
	defer s.watches.Add(-1)
	if s.watches.Add(1) > maxWatches {
		return status.Errorf(codes.Unimplemented, "more than %d watches: use Check", maxWatches)
	}
	var r health.HealthCheckRequest
	if err := stream.RecvMsg(&r); err != nil {
		return err
	}
	if p, ok := stream.(pieces); ok {
		p.timer.Stop()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	sent := health.HealthCheckResponse_UNKNOWN
	for {
		if state := s.state(r.GetService()); state != sent {
			if err := stream.SendMsg(&health.HealthCheckResponse{Status: state}); err != nil {
				return err
			}
			sent = state
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopping:
			if sent == health.HealthCheckResponse_SERVING {
				continue // it sends the last state first
			}
			return status.Error(codes.Unavailable, "the server stops")
		case <-tick.C:
		}
	}
}
