package grpcapi_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/capture"
)

// raw sends bytes as they are, and decodes answers as protobuf.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// send puts the bytes of a message to the service.
func (w *world) send(ctx context.Context, message []byte) (*ratelimit.RateLimitResponse, error) {
	a := &ratelimit.RateLimitResponse{}
	err := w.conn.Invoke(ctx, ratelimit.RateLimitService_ShouldRateLimit_FullMethodName, message, a,
		grpc.ForceCodecV2(raw{}), grpc.MaxCallSendMsgSize(math.MaxInt32))
	return a, err
}

// field is one of a message, of the kind that has a length.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// encoded is the message of a request. Unlike proto.Marshal it takes any bytes for text.
func encoded(domain string, ds ...*common.RateLimitDescriptor) (message []byte) {
	message = field(1, []byte(domain))
	for _, d := range ds {
		var own []byte
		for _, e := range d.GetEntries() {
			own = append(own, field(1, append(field(1, []byte(e.GetKey())), field(2, []byte(e.GetValue()))...))...)
		}
		rest := proto.CloneOf(d)
		rest.Entries = nil
		others, err := proto.Marshal(rest)
		if err != nil {
			panic(err)
		}
		message = append(message, field(2, append(own, others...))...)
	}
	return message
}

// TestNoUTF8: values that protobuf refuses are counted like all others, each apart, and a tenant may be any bytes too.
func TestNoUTF8(t *testing.T) {
	t.Parallel()
	own := descriptor("user=z\xff")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 77}
	for _, tenants := range [][]string{nil, {"user"}} {
		w := serve(t, basics+`
  - {key: one, value: "b*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: outer, descriptors: [{key: inner, rate_limit: {unit: minute, requests_per_unit: 2}}]}
`, func(d *region.Domain) { d.Tenant = tenants })
		for i, row := range []struct {
			descriptors []*common.RateLimitDescriptor
			want        string
		}{
			{ds("user=\xff"), "ok: ok/2"},
			{ds("user=\xff", "all=yes"), "ok: ok/1 ok/4"},
			{ds("user=\xfe"), "ok: ok/2"},
			{ds("user=\uFFFD"), "ok: ok/2"},
			{ds("user=" + rls.ID("\xff")), "ok: ok/2"},
			{ds("one=b\xff"), "ok: ok/1"},
			{ds("one=b\xfe"), "ok: ok/0"},
			{ds("outer=\xf0\x28&inner=\x80"), "ok: ok/1"},
			{ds("outer=\xf0\x29&inner=\x80"), "ok: ok/1"},
			{ds("us\xffer=a"), "ok: ok"},
			// What else the message says is read too: a cost, and a limit of a unit that nobody knows.
			{[]*common.RateLimitDescriptor{costing(2, "user=y\xff")}, "ok: ok/1"},
			{[]*common.RateLimitDescriptor{own}, "ok: ok/2"},
		} {
			if a, err := w.send(t.Context(), encoded("edge", row.descriptors...)); err != nil || story(a) != row.want {
				t.Fatalf("row %d, %v: %s %v, want %s", i, row.descriptors, story(a), err, row.want)
			}
		}
		if a, err := w.send(t.Context(), encoded("\xff", ds("user=\xff")...)); err != nil || story(a) != "ok: ok" {
			t.Errorf("a domain that is no UTF-8: %v %v", a, err)
		}
	}
}

// TestTooLarge: Envoy lets a request pass for which it gets an error, so what is too large to be read is refused.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	for _, size := range []int{grpcapi.MaxBytes, grpcapi.MaxBytes + 1, 1 << 20, 20 << 20} {
		message := encoded("edge", descriptor("pad="+strings.Repeat("x", size)))
		message = encoded("edge", descriptor("pad="+strings.Repeat("x", 2*size-len(message))))
		want := ratelimit.RateLimitResponse_OK
		if size > grpcapi.MaxBytes {
			want = ratelimit.RateLimitResponse_OVER_LIMIT
		}
		a, err := w.send(t.Context(), message)
		if len(message) != size || err != nil || a.GetOverallCode() != want {
			t.Errorf("%d of %d bytes: %v %v, want %v", len(message), size, a, err, want)
		}
	}
	for _, many := range [][]*common.RateLimitDescriptor{
		{descriptor(slices.Repeat([]string{"user=a"}, grpcapi.MaxEntries+1)...)}, slices.Repeat(ds("user=a"), grpcapi.MaxDescriptors+1),
	} {
		if a, err := w.send(t.Context(), encoded("edge", many...)); err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
			t.Errorf("too many: %v %v", a, err)
		}
	}
	state := metadata.Pairs("tracestate", strings.Repeat("x", 256<<10))
	a, err := w.send(metadata.NewOutgoingContext(t.Context(), state), encoded("edge", descriptor("user=a")))
	if err != nil || story(a) != "ok: ok/2" {
		t.Errorf("a large tracestate: %v %v", a, err)
	}
}

// counted counts the bytes that are written to a connection.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// TestDrained: what is too large can be sent to its end, and is answered then.
func TestDrained(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	var sent atomic.Int64
	conn, err := grpc.NewClient(w.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			return counted{c, &sent}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := (&world{conn: conn}).send(t.Context(), make([]byte, 4<<20)); err != nil {
		t.Error(err)
	}
	capture.Eventually(t, func() error { // the answer may be here before the last write was counted
		if sent.Load() < 4<<20 {
			return fmt.Errorf("%d bytes were sent", sent.Load())
		}
		return nil
	})
}

// TestOddCalls: no message, and one that is compressed.
func TestOddCalls(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, ratelimit.RateLimitService_ShouldRateLimit_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&ratelimit.RateLimitResponse{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no message: %v", err)
	}
	_, err = w.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "edge"}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("compressed: %v", err)
	}
}
