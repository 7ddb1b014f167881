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

// TestNoUTF8: values that protobuf refuses are counted like all others, each apart.
func TestNoUTF8(t *testing.T) {
	t.Parallel()
	w := serve(t, basics+`
  - {key: pre, value: "a*", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: one, value: "b*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: outer, descriptors: [{key: inner, rate_limit: {unit: minute, requests_per_unit: 2}}]}
`, nil)
	own := descriptor("user=z\xff")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 77}
	for i, row := range []struct {
		descriptors []*common.RateLimitDescriptor
		want        string
	}{
		{[]*common.RateLimitDescriptor{descriptor("user=\xff")}, "ok: ok/2"},
		{[]*common.RateLimitDescriptor{descriptor("user=\xff")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("user=\xff"), descriptor("all=yes")}, "ok: ok/0 ok/4"},
		{[]*common.RateLimitDescriptor{descriptor("user=\xff"), descriptor("all=yes")}, "over: over/0 ok/4"},
		{[]*common.RateLimitDescriptor{descriptor("user=\xfe")}, "ok: ok/2"},
		{[]*common.RateLimitDescriptor{descriptor("user=\uFFFD")}, "ok: ok/2"},
		{[]*common.RateLimitDescriptor{descriptor("user=" + rls.ID("\xff"))}, "ok: ok/2"},
		{[]*common.RateLimitDescriptor{descriptor("pre=a\xc0\xaf")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("pre=a\xc0\xae")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("pre=\xc0a")}, "ok: ok"},
		{[]*common.RateLimitDescriptor{descriptor("one=b\xff")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("one=b\xfe")}, "ok: ok/0"},
		{[]*common.RateLimitDescriptor{descriptor("outer=\xf0\x28", "inner=\x80")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("outer=\xf0\x29", "inner=\x80")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{descriptor("us\xffer=a")}, "ok: ok"},
		// What else the message says is read too: a cost, and a limit of a unit that nobody knows.
		{[]*common.RateLimitDescriptor{costing(2, "user=y\xff")}, "ok: ok/1"},
		{[]*common.RateLimitDescriptor{own}, "ok: ok/2"},
	} {
		a, err := w.send(t.Context(), encoded("edge", row.descriptors...))
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if got := story(a); got != row.want {
			t.Fatalf("row %d, %v: %s, want %s", i, row.descriptors, got, row.want)
		}
	}
	if a, err := w.send(t.Context(), encoded("\xff", descriptor("user=\xff"))); err != nil || story(a) != "ok: ok" {
		t.Errorf("a domain that is no UTF-8: %v %v", a, err)
	}
}

// TestNoUTF8Tenant: a tenant may be any bytes too.
func TestNoUTF8Tenant(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, func(d *region.Domain) { d.Tenant = []string{"user"} })
	for _, want := range []string{"ok: ok/2", "ok: ok/1", "ok: ok/0", "over: over/0"} {
		a, err := w.send(t.Context(), encoded("edge", descriptor("user=\xff\xff")))
		if err != nil || story(a) != want {
			t.Fatalf("%s %v, want %s", story(a), err, want)
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
	a, err := w.send(t.Context(), encoded("edge", descriptor(slices.Repeat([]string{"user=a"}, grpcapi.MaxEntries+1)...)))
	if err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
		t.Errorf("too many entries: %v %v", a, err)
	}
	state := metadata.Pairs("tracestate", strings.Repeat("x", 256<<10))
	a, err = w.send(metadata.NewOutgoingContext(t.Context(), state), encoded("edge", descriptor("user=a")))
	if err != nil || story(a) != "ok: ok/2" {
		t.Errorf("a large tracestate: %v %v", a, err)
	}
}

// TestNotAMessage: what no gateway sends is an error that says so.
func TestNotAMessage(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	for _, message := range [][]byte{{0xff}, field(2, []byte{0x0a}), field(2, field(1, []byte{0x0a, 0x7f}))} {
		if a, err := w.send(t.Context(), message); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%x: %v %v", message, a, err)
		}
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
