package grpcapi_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestHealthWatch: health is that of a check, each change is sent, and a watch does not hold up the end of the server.
func TestHealthWatch(t *testing.T) {
	w := serve(t, basics, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	watch := func(service string) grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
		s, err := grpc_health_v1.NewHealthClient(w.conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := watch("ratelimit")
	expect := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := s.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("%v %v, want %v", got, err, want)
		}
	}
	expect(grpc_health_v1.HealthCheckResponse_SERVING)
	if got, err := grpc_health_v1.NewHealthClient(w.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", got, err)
	}
	w.unready.Store(true)
	expect(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	w.unready.Store(false)
	expect(grpc_health_v1.HealthCheckResponse_SERVING)
	if got, err := watch("other").Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("%v %v", got, err)
	}
	if err := w.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	expect(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
