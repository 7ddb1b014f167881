//go:build linux

package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// answers is a service that answers what a function says.
type answers struct {
	ratelimit.UnimplementedRateLimitServiceServer
	of func(*ratelimit.RateLimitRequest) *ratelimit.RateLimitResponse
}

func (a answers) ShouldRateLimit(_ context.Context, r *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return a.of(r), nil
}

// TestCallClient: the client counts calls by what their answers rest on, one or several at a time on a connection.
func TestCallClient(t *testing.T) {
	var served, decided atomic.Int64
	s := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(s, answers{of: func(r *ratelimit.RateLimitRequest) *ratelimit.RateLimitResponse {
		if v := r.GetDescriptors()[0].GetEntries()[0].GetValue(); r.GetDomain() != "bench" || !strings.HasPrefix(v, "t000") {
			t.Errorf("request %v", r)
		}
		basis := []string{"exact", "cached", "local", "open"}[served.Add(1)%4]
		if basis == "exact" || basis == "cached" {
			decided.Add(1)
		}
		return &ratelimit.RateLimitResponse{
			OverallCode: ratelimit.RateLimitResponse_OVER_LIMIT, Statuses: make([]*ratelimit.RateLimitResponse_DescriptorStatus, 1),
			DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"basis": structpb.NewStringValue(basis)}},
		}
	}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	for _, each := range []int{1, streams} {
		c := newCallClient(l.Addr().String(), 8, calls("tenant", 100*each), each, callDenied)
		served.Store(0)
		decided.Store(0)
		got := c.saturate(100 * time.Millisecond)
		c.close()
		if n, own := served.Load(), decided.Load(); got.decided != int(own) || got.other != int(n-own) || got.answers*each != int(n) || got.wrongs > 0 || n < 64 {
			t.Errorf("%d at a time: %d answers, %+v, %d wrong; of %d calls %d were decided", each, got.answers, got.tally, got.wrongs, n, own)
		}
		c = newCallClient(l.Addr().String(), 8, calls("tenant", 100*each), each, callAllowed)
		if got := c.saturate(10 * time.Millisecond); got.wrongs == 0 {
			t.Errorf("%d at a time: decisions that are not as expected are not wrong", each)
		}
		c.close()
	}
}
