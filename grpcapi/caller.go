package grpcapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/conn"
)

// transport makes the handshake of a connection, and remembers the connection for prove.
type transport struct {
	credentials.TransportCredentials // nil: plain text
}

func newCredentials(inForce func() *tls.Config) credentials.TransportCredentials {
	if inForce == nil {
		return transport{}
	}
	return transport{credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return inForce(), nil },
	})}
}

// link is what is known of a connection.
type link struct {
	credentials.CommonAuthInfo
	conn   net.Conn
	chains [][]*x509.Certificate // of the client, verified
}

// linkOf returns the connection of a call.
func linkOf(ctx context.Context) (own link) {
	if p, ok := peer.FromContext(ctx); ok {
		own, _ = p.AuthInfo.(link)
	}
	return own
}

// AuthType implements credentials.AuthInfo.
func (link) AuthType() string { return "regiond" }

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	own := link{conn: c}
	own.SecurityLevel = credentials.NoSecurity
	if t.TransportCredentials == nil {
		return c, own, nil
	}
	over, info, err := t.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return nil, nil, err
	}
	own.SecurityLevel = credentials.PrivacyAndIntegrity
	if state, ok := info.(credentials.TLSInfo); ok {
		own.chains = state.State.VerifiedChains
	}
	return over, own, nil
}

// Info implements credentials.TransportCredentials.
func (t transport) Info() credentials.ProtocolInfo {
	if t.TransportCredentials == nil {
		return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
	}
	return t.TransportCredentials.Info()
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// header is what a call has sent. It is read field by field: to take all of it copies all of it.
type header struct{ ctx context.Context } //nolint:containedctx // its metadata

// Values returns the lines of a field.
func (h header) Values(name string) []string { return metadata.ValueFromIncomingContext(h.ctx, name) }

// admit returns the caller of a call that needs a scope.
func (s *Settings) admit(ctx context.Context, scope access.Scope) (*access.Token, error) {
	own := linkOf(ctx)
	caller, detail := s.Access.Caller(access.Shown{Header: header{ctx}, Chains: own.chains}, true)
	switch {
	case caller == nil:
		return nil, status.Error(codes.Unauthenticated, detail)
	case caller.Scopes&scope != scope:
		return nil, status.Errorf(codes.PermissionDenied, "the token does not have scope %s", scope)
	}
	conn.Of(own.conn).Prove()
	return caller, nil
}
