package grpcapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/conn"
)

// Compat returns a server of what the image of envoyproxy/ratelimit answers over HTTP: /json, /healthcheck and /rlconfig,
// all on each of its listeners. It speaks HTTP/1.1; /json and /rlconfig ask of a caller what gRPC asks. bound may be nil.
func (s *Server) Compat(log *slog.Logger, bound *conn.Bound) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", s.underOwnHost(s.json))
	mux.HandleFunc("/healthcheck", s.healthcheck)
	mux.HandleFunc("/rlconfig", s.underOwnHost(s.rules))
	h := httpapi.NewServer(http.NewCrossOriginProtection().Handler(mux), log, bound)
	h.Protocols.SetHTTP2(false)
	h.BaseContext = func(l net.Listener) context.Context {
		return context.WithValue(context.Background(), listensAt{}, l.Addr().String())
	}
	counted := h.ConnContext
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if counted != nil {
			ctx = counted(ctx, c)
		}
		return peer.NewContext(ctx, &peer.Peer{AuthInfo: link{conn: c}})
	}
	return h
}

// listensAt is the key in a request's context of the address that its listener has.
type listensAt struct{}

// underOwnHost refuses what the data listener refuses on loopback: a web page whose own name resolves to there.
func (s *Server) underOwnHost(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(listensAt{}).(string)
		own := access.Hostname(at)
		if detail := s.Settings().Access.Misdirected(r.Host, own); detail != "" && access.IsLoopback(own) {
			http.Error(w, detail, http.StatusMisdirectedRequest)
			return
		}
		handle(w, r)
	}
}

// asCall returns the context that a call over gRPC would have.
func asCall(r *http.Request) context.Context {
	md := metadata.MD{}
	for name, lines := range r.Header {
		md.Append(name, lines...)
	}
	own := linkOf(r.Context())
	if r.TLS != nil {
		own.chains = r.TLS.VerifiedChains
	}
	return metadata.NewIncomingContext(peer.NewContext(r.Context(), &peer.Peer{AuthInfo: own}), md)
}

// fail writes an error of gRPC. What is not of the caller's identity is 400, as envoyproxy/ratelimit has it.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest
	switch status.Code(err) {
	case codes.Unauthenticated:
		code = http.StatusUnauthorized
	case codes.PermissionDenied:
		code = http.StatusForbidden
	}
	http.Error(w, status.Convert(err).Message(), code)
}

// json answers a RateLimitRequest in protobuf's JSON, sent with any method.
func (s *Server) json(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBytes))
	var request ratelimit.RateLimitRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		err = errTooLarge
	} else if err != nil {
		http.Error(w, fmt.Sprintf("read the body: %v", err), http.StatusBadRequest)
		return
	} else if err := protojson.Unmarshal(body, &request); err != nil {
		http.Error(w, "the body is no RateLimitRequest: "+err.Error(), http.StatusBadRequest)
		return
	}
	encoded, err := s.shouldRateLimit(asCall(r), &request, err)
	if err != nil {
		fail(w, err)
		return
	}
	var answer ratelimit.RateLimitResponse
	text, err := []byte(nil), proto.Unmarshal(encoded, &answer)
	if err == nil {
		text, err = protojson.Marshal(&answer)
	}
	if err != nil {
		s.refusals.Error("an answer has no JSON", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == over {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // the caller has gone
}

// healthcheck says whether traffic should come here.
func (s *Server) healthcheck(w http.ResponseWriter, _ *http.Request) {
	if ok, reasons := s.Ready(); !ok {
		http.Error(w, strings.Join(reasons, "; "), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "OK") // the caller has gone
}

// rules lists the limits in force, a line for each.
func (s *Server) rules(w http.ResponseWriter, r *http.Request) {
	settings := s.Settings()
	caller, err := settings.admit(asCall(r), access.Check)
	if err == nil && caller.Tenants != nil {
		err = status.Error(codes.PermissionDenied, "the caller is held to tenants, and this call shows the limits of all of them")
	}
	if err != nil {
		fail(w, err)
		return
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(settings.Domains)) {
		for _, rule := range settings.Domains[name].Rules() {
			fmt.Fprintf(&b, "%s.%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", name, rule.Path,
				ratelimit.RateLimitResponse_RateLimit_Unit(rule.Unit), rule.PerUnit, rule.Shadow, rule.Quota)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the caller has gone
}
