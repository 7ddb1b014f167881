package grpcapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// Limiter decides. Implementations are safe for concurrent use and return before ctx's deadline or soon after.
type Limiter interface {
	// Decide answers the questions one after the other, and returns one outcome for each.
	Decide(ctx context.Context, qs []quota.Question) []quota.Outcome
	// Reserve and Settle are those of httpapi.Limiter.
	Reserve(ctx context.Context, rs []quota.Request) []quota.Outcome
	Settle(ctx context.Context, cs []quota.Claim) []quota.Outcome
}

// Options configure New. All but Authorize, Denied, Tracing, TLS, Jitter, NewID, Deadline and MaxInFlight are required.
type Options struct {
	Limiter Limiter
	// Authorize is the data listener's handler, which answers ext_authz; nil: that service is not offered.
	Authorize *httpapi.Handler
	// Settings returns the settings in force. It is called once per request and must be cheap.
	Settings func() *Settings
	// Ready reports whether traffic should come here.
	Ready func() (ok bool, reasons []string)
	// Region is shown in the metadata of answers.
	Region  string
	Logger  *slog.Logger
	Meter   metric.Meter
	Denied  func(*quota.Decision) // as that of httpapi.Options, for the rate limit service; nil for nobody
	Tracing *httpapi.Tracing      // nil: no spans
	// TLS returns the configuration for the next handshake; nil: plain text.
	TLS         func() *tls.Config
	Jitter      func() float64          // in [0,1), by default from math/rand/v2
	NewID       func() quota.DecisionID // of a decision without a trace, by default httpapi.NewID
	Deadline    time.Duration           // of an answer; 0: httpapi.DefaultDeadline
	MaxInFlight int                     // 0: httpapi.DefaultMaxInFlight
}

// Settings are what may change between requests. Immutable.
type Settings struct {
	Domains map[string]*rls.Domain
	Access  access.Access
	Headers quota.Headers
}

// Limits of a connection.
const (
	// MaxAge is how long a connection lasts, a tenth more or less, so that gateways spread over the processes of a region
	// again. What is under way then has MaxAgeGrace to end, which is longer than a request takes at most.
	MaxAge      = 5 * time.Minute
	MaxAgeGrace = httpapi.ReadTimeout + time.Second
	// MaxStreams bounds the requests under way on a connection. Envoy begins so many before it has read that bound, and for one
	// beyond it gets an error.
	MaxStreams = 1024
	// MaxHeaders bounds the metadata of a request. A gateway sends what its client gave it as tracestate, so this is far above
	// what gateways take of headers: to what is larger grpc answers with an error, with which Envoy lets the request pass.
	MaxHeaders = 1 << 20
	// workers answer requests on stacks that have grown already, which saves a tenth of the processor time. Each keeps some
	// 16 KiB; what is beyond them is answered too.
	workers = 128
	// window is how much a caller may send of a message before it is read.
	window = 64 << 10
	// minPing is how often a gateway may ask whether a connection is alive.
	minPing = 5 * time.Second
)

// Server answers on a listener.
type Server struct {
	Options
	server    *grpc.Server
	metrics   *metrics
	overrides overrides
	refusals  *slog.Logger
	inFlight  atomic.Int64
	watches   atomic.Int64
	stopping  chan struct{}
	stop      func() // closes stopping
}

// New returns a server. It fails when an option is missing or an instrument cannot be created.
func New(o Options) (*Server, error) {
	if o.Limiter == nil || o.Settings == nil || o.Ready == nil || o.Logger == nil || o.Meter == nil {
		return nil, errors.New("grpcapi: Options needs Limiter, Settings, Ready, Logger and Meter")
	}
	o.Deadline = cmp.Or(o.Deadline, httpapi.DefaultDeadline)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, httpapi.DefaultMaxInFlight)
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.NewID == nil {
		o.NewID = httpapi.NewID
	}
	s := &Server{Options: o, refusals: slog.New(httpapi.NewLogLimit().Handler(o.Logger.Handler())), stopping: make(chan struct{})}
	s.overrides.rules = map[override]*rls.Rule{}
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	var err error
	if s.metrics, err = newMetrics(o.Meter); err != nil {
		return nil, err
	}
	s.server = grpc.NewServer(
		grpc.StreamInterceptor(s.admitted),
		grpc.Creds(newCredentials(o.TLS)),
		grpc.ConnectionTimeout(httpapi.ReadTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: httpapi.IdleTimeout, MaxConnectionAge: MaxAge, MaxConnectionAgeGrace: MaxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.InTapHandle(forget),
		grpc.MaxRecvMsgSize(MaxBytes),
		grpc.MaxHeaderListSize(MaxHeaders),
		grpc.StaticStreamWindowSize(window),
		grpc.NumStreamWorkers(workers),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
	)
	s.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: ratelimit.RateLimitService_ServiceDesc.ServiceName, Metadata: ratelimit.RateLimitService_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{unary("ShouldRateLimit", MaxBytes, s.shouldRateLimit)},
	}, nil)
	s.server.RegisterService(s.kuadrant(), nil)
	if o.Authorize != nil {
		s.server.RegisterService(&grpc.ServiceDesc{
			ServiceName: auth.Authorization_ServiceDesc.ServiceName, Metadata: auth.Authorization_ServiceDesc.Metadata,
			Streams: []grpc.StreamDesc{unary("Check", MaxCheckBytes, s.check)},
		}, nil)
	}
	s.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpc_health_v1.Health_ServiceDesc.ServiceName, Metadata: grpc_health_v1.Health_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{
			unary("Check", MaxBytes, s.health),
			{StreamName: "Watch", ServerStreams: true, Handler: s.watch},
		},
	}, nil)
	reflection.Register(s.server)
	return s, nil
}

// Serve answers on l until Shutdown or Close; it then, or if that was before, closes l and
// returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if err := s.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return http.ErrServerClosed
}

// Shutdown answers what is under way and stops; after ctx ends it cuts off the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.server.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.server.Stop()
		<-done
		return ctx.Err()
	}
}

// Close stops at once.
func (s *Server) Close() error {
	s.stop()
	s.server.Stop()
	return nil
}
