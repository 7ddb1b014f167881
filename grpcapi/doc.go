// Package grpcapi answers Envoy's rate limit service (envoy.service.ratelimit.v3) and its external authorization
// (envoy.service.auth.v3), and Kuadrant's rate limit service (kuadrant.service.ratelimit.v1), over gRPC, with health checks and
// reflection beside them. Package rls reads what limits there are.
//
// It decides nothing: descriptors become questions to a Limiter, and decisions become statuses, headers and metadata; a request
// to authorize is answered by the handler of the data listener.
package grpcapi
