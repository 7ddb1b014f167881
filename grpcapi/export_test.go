package grpcapi

import (
	"context"
	"fmt"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Answer answers a message as ShouldRateLimit does, without a connection.
func (s *Server) Answer(ctx context.Context, message []byte) (*ratelimit.RateLimitResponse, error) {
	r := &ratelimit.RateLimitRequest{}
	err := unmarshal(message, r)
	a, err := s.shouldRateLimit(ctx, r, err)
	return decoded(a, err, &ratelimit.RateLimitResponse{})
}

// Check answers a message as Authorization.Check does, without a connection.
func (s *Server) Check(ctx context.Context, message []byte) (*auth.CheckResponse, error) {
	r := &auth.CheckRequest{}
	err := unmarshal(message, r)
	a, err := s.check(ctx, r, err)
	return decoded(a, err, &auth.CheckResponse{})
}

// decoded decodes an answer into m, and holds it against how protobuf encodes m: the same but for the order in a Struct.
func decoded[M proto.Message](a message, err error, m M) (M, error) {
	if err != nil {
		return m, err
	}
	if err := proto.Unmarshal(a, m); err != nil {
		panic(fmt.Sprintf("%x: %v", a, err))
	}
	if want := proto.Size(m); want != len(a) {
		panic(fmt.Sprintf("%d bytes, protobuf needs %d: %v", len(a), want, m))
	}
	return m, protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if v, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok && len(v.GetUnknown()) > 0 {
			panic(fmt.Sprintf("%s has no fields %x", v.Descriptor().FullName(), v.GetUnknown()))
		}
		return nil
	})
}
