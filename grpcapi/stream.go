package grpcapi

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/quota"
)

// maxField bounds the lines of a header field that are kept, in bytes.
const maxField = 8 << 10

// forget drops what nobody reads of a request's metadata, which it holds as long as it is under way. HPACK makes a megabyte of
// 3 KB: before, 500 requests held 495 MiB.
func forget(ctx context.Context, about *tap.Info) (context.Context, error) {
	for name, lines := range about.Header {
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
		delete(about.Header, name)
	}
	return ctx, nil
}

// statusWriter is implemented by the streams of grpc's servers.
type statusWriter interface {
	// WriteStatus ends a call, which is cancelled.
	WriteStatus(s *status.Status) error
}

// unfinished ends a request that has not arrived in time.
var unfinished = status.New(codes.DeadlineExceeded, "the request has not arrived in time")

// admitted gives a request its place among all that are under way, and the time that a request over HTTP has to arrive, and calls
// its handler. One that finds no place is refused unread, as what is overloaded: with an error Envoy would let it pass.
func (s *Server) admitted(service any, stream grpc.ServerStream, about *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	place := conn.Of(linkOf(ctx).conn)
	if !place.BeginStream() {
		return s.turnAway(stream, about.FullMethod)
	}
	defer place.EndStream()
	call, ok := grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	if !ok {
		return errHidden
	}
	timer := time.AfterFunc(httpapi.ReadTimeout, func() { _ = call.WriteStatus(unfinished) }) // fails where the caller has gone
	defer timer.Stop()
	return handler(service, pieces{stream, timer})
}

// turnAway answers a request without reading it.
func (s *Server) turnAway(stream grpc.ServerStream, method string) error {
	switch name := method[strings.LastIndexByte(method, '.')+1:]; name {
	case methodRateLimit, methodLook, methodReserve:
		c := s.begin(stream.Context(), name)
		a, err := c.refuse("", reason(quota.ReasonOverloaded.String()))
		c.end(err)
		return stream.SendMsg(a)
	case methodCheck:
		s.metrics.record(stream.Context(), methodCheck, overLimit, time.Now())
		return stream.SendMsg(tooMany())
	}
	return status.Error(codes.Unavailable, "too many requests are under way: see --max-connections")
}

// pieces reads messages as read does.
type pieces struct {
	grpc.ServerStream
	timer *time.Timer // ends the call
}

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
