package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/test/capture"
)

// bounded serves w on a second listener of at most so many connections, and returns its address and how many it has.
func bounded(t *testing.T, w *world, most int) (addr string, open func() int) {
	t.Helper()
	bound, err := conn.New("grpc", most, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	return w.listen(t, bound.Listen), func() int { return bound.Counts().Open }
}

// await waits until so many connections and requests are open.
func await(t *testing.T, open func() int, want int) {
	t.Helper()
	capture.Eventually(t, func() error {
		if n := open(); n != want {
			return fmt.Errorf("%d are open, want %d", n, want)
		}
		return nil
	})
}

// connect returns a connection of its own.
func connect(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begin begins a request that is not sent to its end. It returns its stream, nil if that was refused.
func begin(ctx context.Context, c *grpc.ClientConn) grpc.ClientStream {
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, ratelimit.RateLimitService_ShouldRateLimit_FullMethodName)
	if err != nil {
		return nil
	}
	return stream
}

// TestStreamsTakeRoom: each request beyond the first of its connection takes the room of a connection. Strangers who begin
// requests displace strangers, and a gateway is answered throughout.
func TestStreamsTakeRoom(t *testing.T) {
	t.Parallel()
	const most, strangers, each = 20, 8, 40
	w := serve(t, basics, nil)
	addr, open := bounded(t, w, most)
	gateway := ratelimit.NewRateLimitServiceClient(connect(t, addr))
	ask := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := gateway.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "none", Descriptors: ds("user=a")}); err != nil {
			t.Fatalf("a gateway: %v", err)
		}
	}
	ask()
	var begun, ended atomic.Int64
	for range strangers {
		c := connect(t, addr)
		for range each {
			stream := begin(t.Context(), c)
			if stream == nil {
				ended.Add(1)
				continue
			}
			begun.Add(1)
			go func() {
				_ = stream.RecvMsg(&ratelimit.RateLimitResponse{}) // whatever ends it
				ended.Add(1)
			}()
		}
		ask()
		if n := open(); n > most {
			t.Fatalf("%d connections and requests are open, at most %d may be", n, most)
		}
	}
	if begun.Load() <= most {
		t.Fatalf("only %d requests were begun", begun.Load())
	}
	capture.Eventually(t, func() error {
		if left := strangers*each - ended.Load(); left > most {
			return errors.New("more requests of strangers than have room are under way")
		}
		return nil
	})
	ask()
}

// TestNoRoom: a request for which there is no room is refused and counted, since with an error Envoy would let it pass.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	w := &world{server: authorizer(t, forwardTopology, access.Access{}, sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))}
	addr, open := bounded(t, w, 2)
	c := connect(t, addr)
	check := func(want codes.Code) {
		t.Helper()
		a, err := auth.NewAuthorizationClient(c).Check(t.Context(), checkOf("GET", "/", http.Header{"X-Tenant": {"acme"}}, nil))
		if err != nil || a.GetStatus().GetCode() != int32(want) {
			t.Errorf("%v, %v: want %v", a, err, want)
		}
	}
	check(codes.OK) // or strangers' requests would displace the connection
	for range 2 {
		begin(t.Context(), c)
	}
	await(t, open, 2)
	check(codes.ResourceExhausted)
	if got, want := codesOf(t, reader), map[string]int64{"OK": 1, "OVER_LIMIT": 1}; !maps.Equal(got, want) {
		t.Errorf("calls are counted as %v, want %v", got, want)
	}
	r := &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds("user=a")}
	a, err := ratelimit.NewRateLimitServiceClient(c).ShouldRateLimit(t.Context(), r)
	if err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT || a.GetDynamicMetadata().AsMap()["reason"] != "overloaded" {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := grpc_health_v1.NewHealthClient(c).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("health: %v", err)
	}
}

// TestUnfinishedRequest: a request that does not arrive ends, and gives its room back. A watch that has arrived lasts.
func TestUnfinishedRequest(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	watch, err := grpc_health_v1.NewHealthClient(w.conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	addr, open := bounded(t, w, 20)
	c := connect(t, addr)
	var streams []grpc.ClientStream
	for range 5 {
		streams = append(streams, begin(t.Context(), c))
	}
	await(t, open, 5)
	start := time.Now()
	for _, s := range streams {
		if err := s.RecvMsg(&ratelimit.RateLimitResponse{}); errors.Is(err, io.EOF) || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("it ends with %v", err)
		}
	}
	if took := time.Since(start); took > httpapi.ReadTimeout+10*time.Second {
		t.Errorf("after %v", took)
	}
	await(t, open, 1)
	w.unready.Store(true)
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the watch: %v %v", got, err)
	}
}

// TestRoomIsGivenBack: a call gives its room back however it ends.
func TestRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	addr, open := bounded(t, w, 20)
	f := sendFrames(t, addr)
	message := encoded("edge", descriptor("user=a"))
	for i, method := range []string{"nameless", "/nameless", "/no/method", "/" + ratelimit.RateLimitService_ServiceDesc.ServiceName + "/No", shouldRateLimit} {
		f.begin(method, true)
		if f.status() == "0" {
			t.Errorf("%s without a message is answered", method)
		}
		f.begin(method, false)
		f.check(f.WriteData(f.last-1, true, announced(uint32(len(message)), message...)))
		if got := f.status(); (got == "0") != (i == 4) {
			t.Errorf("%s: status %s", method, got)
		}
		f.begin(method, true, hpack.HeaderField{Name: "grpc-timeout", Value: "1n"})
		f.begin(method, false)
		f.check(f.WriteRSTStream(f.last-1, http2.ErrCodeCancel))
		f.taken()
	}
	await(t, open, 1)
}

// TestStopsAtOnce: a server that stops does not wait for each client that reads no answers.
func TestStopsAtOnce(t *testing.T) {
	t.Parallel()
	const clients = 3
	w := serve(t, basics, nil)
	addr, open := bounded(t, w, 100)
	for range clients {
		f := sendFrames(t, addr)
		kernel, ok := f.conn.(*net.TCPConn)
		if !ok || kernel.SetWriteBuffer(4096) != nil || kernel.SetReadBuffer(4096) != nil { // or it keeps many MiB
			t.Fatal("the client's own buffers are not small")
		}
		// Each is acknowledged; once the acknowledgements fill the buffers, the server takes no more.
		for {
			f.check(f.WriteSettings())
			if f.out.Buffered() < 60<<10 {
				continue
			}
			_ = f.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if f.out.Flush() != nil {
				break
			}
		}
	}
	if n := open(); n != clients {
		t.Fatalf("%d connections are open, want %d", n, clients)
	}
	start := time.Now()
	_ = w.server.Close()
	if took := time.Since(start); took > clients*time.Second/2 {
		t.Errorf("it took %v to stop with %d clients that read nothing", took, clients)
	}
}
