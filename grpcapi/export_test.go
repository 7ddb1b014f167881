package grpcapi

import (
	"context"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Answer answers a message as ShouldRateLimit does, without a connection.
func (s *Server) Answer(ctx context.Context, message []byte) (*ratelimit.RateLimitResponse, error) {
	r := &ratelimit.RateLimitRequest{}
	err := unmarshal(message, r)
	return s.shouldRateLimit(ctx, r, err)
}

// Check answers a message as Authorization.Check does, without a connection.
func (s *Server) Check(ctx context.Context, message []byte) (*auth.CheckResponse, error) {
	r := &auth.CheckRequest{}
	err := unmarshal(message, r)
	return s.check(ctx, r, err)
}
