package natsbus

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

const (
	tlsTimeout  = 3 * time.Second // of a handshake
	authTimeout = 4 * time.Second // until a peer that connects has said who it is
	// handshakeTime is longer than a connection can stand before the server lists it, on either side: a peer that was
	// connected to and says nothing is dropped after pings without an answer.
	handshakeTime = tlsTimeout + authTimeout + maxPings*pingInterval + 2*time.Second
)

// EmbeddedOptions are what an Embedded server needs.
type EmbeddedOptions struct {
	// Name is this server's gateway name, unlike any other's: <region> for the process at
	// the topology's address, <region>.<instance> for a further one.
	Name string
	// ListenAddr is host:port for the gateways of others; port 0 takes a free one. ""
	// means no gateways: the server serves this process alone.
	ListenAddr string
	// Advertise is host:port where others reach ListenAddr; "" means ListenAddr itself, or
	// the first address of the host when that names none. Servers that do not name this
	// one in Remotes reach it there.
	Advertise string
	// Remotes are the servers to join; our own name among them is skipped. One that is not
	// named here is accepted, and joined in return, when TLS accepts it.
	Remotes []Remote
	// TLS is that of gateways, of those that connect and of those that are connected to: each
	// side has to show a certificate. See GatewayTLS. Without it ListenAddr must be a
	// loopback address.
	TLS *tls.Config
	// Logger gets warnings of the server; nil means no log.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// Remote is another server to join.
type Remote struct {
	Name string // its gateway name
	Addr string // host:port where it listens for gateways
}

// validate fills in the defaults and returns everything that is wrong. Names and the
// addresses of remotes were checked by region.
func (o *EmbeddedOptions) validate() error {
	var errs []error
	host, _, err := hostPort(o.ListenAddr)
	if err != nil && o.ListenAddr != "" {
		errs = append(errs, fmt.Errorf("option ListenAddr: %w", err))
	}
	if o.ListenAddr != "" && o.TLS == nil && !quota.IsLoopback(host) {
		errs = append(errs, fmt.Errorf("gateway address %s is not a loopback address and there is no TLS: anybody could join; "+
			"give a key_file for gossip, from which certificates are derived, or listen on 127.0.0.1", o.ListenAddr))
	}
	if o.TLS != nil && (o.TLS.ClientAuth != tls.RequireAndVerifyClientCert || o.TLS.InsecureSkipVerify) {
		errs = append(errs, errors.New("option TLS must verify both sides"))
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return errors.Join(errs...)
}

// serverOptions are nats-server's. own is the TLS of gateways.
func serverOptions(o *EmbeddedOptions, own *tls.Config) *server.Options {
	opts := &server.Options{
		ServerName:      o.Name,
		DontListen:      true, // no clients but this process
		NoSigs:          true,
		NoSystemAccount: true,
		MaxPayload:      MaxMessage,
		MaxPending:      InboxBytes,
		MaxControlLine:  server.MAX_CONTROL_LINE_SIZE,
		PingInterval:    pingInterval,
		MaxPingsOut:     maxPings,
		WriteDeadline:   2 * writeTimeout,
		// Once a minute for a peer that is away, instead of at every attempt.
		ConnectErrorReports:   60,
		ReconnectErrorReports: 60,
	}
	if o.ListenAddr == "" {
		return opts
	}
	opts.Gateway = server.GatewayOpts{
		Name:      o.Name,
		Advertise: o.Advertise,
		TLSConfig: own,
		// Two round trips of a handshake, and packets that are lost on the way.
		TLSTimeout:  tlsTimeout.Seconds(),
		AuthTimeout: authTimeout.Seconds(),
		// A server that is not in Remotes is tried this many seconds after it has gone.
		// nats-server's default is not at all, and above the number it tries without a
		// pause while the connection that the other made still stands.
		ConnectRetries: 24 * 60 * 60,
		// A peer that does not take bytes is cut, not waited for.
		WriteDeadline: 2 * writeTimeout,
		WriteTimeout:  server.WriteTimeoutPolicyClose,
	}
	opts.Gateway.Host, opts.Gateway.Port, _ = hostPort(o.ListenAddr) // validated
	for _, r := range o.Remotes {
		opts.Gateway.Gateways = append(opts.Gateway.Gateways, &server.RemoteGatewayOpts{
			Name: r.Name, URLs: []*url.URL{{Scheme: "nats", Host: r.Addr}},
		})
	}
	return opts
}

// hostPort splits an address into nats-server's terms: there port 0 means none, and −1 any.
func hostPort(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return cmp.Or(host, "0.0.0.0"), cmp.Or(int(n), server.RANDOM_PORT), err
}
