package grpcapi

import (
	"context"
	"net/http"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/quota"
)

// noRoom marks the context of a request for which there is no place.
type noRoom struct{}

// admitStream gives a request its place among all that are under way, and the time that a request over HTTP has to arrive.
//
// A request without a place is refused by admitted: the timer of a deadline of its own would stay for good if it were refused here
// (310 bytes for each, measured with 200,000).
func admitStream(ctx context.Context, about *tap.Info) (context.Context, error) {
	forget(about.Header)
	end := func() {}
	if own := linkOf(ctx); own.conn != nil {
		if end = conn.Of(own.conn).BeginStream(); end == nil {
			return context.WithValue(ctx, noRoom{}, true), nil
		}
	}
	within, cancel := context.WithTimeout(ctx, httpapi.ReadTimeout)
	if about.FullMethodName == health.Health_Watch_FullMethodName {
		within, cancel = context.WithCancel(ctx)
		within = context.WithValue(within, arrival{}, time.AfterFunc(httpapi.ReadTimeout, cancel))
	}
	context.AfterFunc(ctx, func() {
		cancel()
		end()
	})
	return within, nil
}

// maxField bounds the lines of a header field that are kept, in bytes.
const maxField = 8 << 10

// forget drops what nobody reads of a request's metadata, which it holds as long as it is under way. HPACK makes a megabyte of
// 3 KB: before, 500 requests held 495 MiB.
func forget(md metadata.MD) {
	for name, lines := range md {
		size := 0
		for _, line := range lines {
			size += len(line)
		}
		switch name {
		case "authorization", "x-regiond-token", "traceparent", "tracestate":
			if size <= maxField {
				continue
			}
		}
		delete(md, name)
	}
}

// admitted calls the handler of a request that has a place. One that has none is refused unread, as what is overloaded: with an
// error Envoy would let it pass.
func (s *Server) admitted(service any, stream grpc.ServerStream, about *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if stream.Context().Value(noRoom{}) == nil {
		return handler(service, pieces{stream})
	}
	switch about.FullMethod {
	case ratelimit.RateLimitService_ShouldRateLimit_FullMethodName:
		c := s.begin(stream.Context(), methodRateLimit)
		a := c.refusal(nil, quota.ReasonOverloaded.String())
		c.end(a, nil)
		return stream.SendMsg(a)
	case auth.Authorization_Check_FullMethodName:
		s.metrics.record(stream.Context(), methodCheck, overLimit, time.Now())
		return stream.SendMsg(answerOf(&httpapi.ForwardedAnswer{Response: httpapi.Response{Status: http.StatusTooManyRequests}}))
	}
	return status.Error(codes.Unavailable, "too many requests are under way: see --max-connections")
}

// pieces reads messages as read does.
type pieces struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (p pieces) RecvMsg(m any) error {
	data, err := read(p.Context(), MaxBytes)
	if err != nil {
		return err
	}
	into, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is no message", m)
	}
	return unmarshal(data, into)
}
