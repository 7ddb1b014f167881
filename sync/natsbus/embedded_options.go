package natsbus

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
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
	// named here is accepted, and joined in return, when it has the secret.
	Remotes []Remote
	// Secret is what all servers share. Without one ListenAddr must be a loopback address.
	// What is derived from it travels unencrypted unless TLS is given.
	Secret []byte
	// TLS for gateways, both as server and as client: with certificates, RootCAs and
	// ClientCAs, and ClientAuth so that both ends are checked.
	TLS *tls.Config
	// ClientAddr is host:port for NATS clients, a loopback address since they are not
	// authenticated; "" means no clients but this process.
	ClientAddr string
	// Logger gets changes of peers and warnings of the server; nil means no log.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// Remote is another server to join.
type Remote struct {
	Name string // its gateway name
	Addr string // host:port where it listens for gateways
}

// validate fills in the defaults and returns everything that is wrong.
func (o *EmbeddedOptions) validate() error {
	errs := []error{
		validateAddr("ListenAddr", o.ListenAddr), validateAddr("Advertise", o.Advertise), validateAddr("ClientAddr", o.ClientAddr),
	}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Name == "" || strings.ContainsFunc(o.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		wrong("option Name must be printable ASCII without spaces, is %q", o.Name)
	}
	if o.ListenAddr == "" && len(o.Remotes) > 0 {
		wrong("option ListenAddr is missing: servers that are joined have to reach this one too")
	}
	if o.ListenAddr != "" && len(o.Secret) == 0 && !isLoopback(o.ListenAddr) {
		wrong("gateway address %s is not a loopback address and there is no secret: anybody could join; "+
			"give a key file for gossip, from which it is derived, or listen on 127.0.0.1", o.ListenAddr)
	}
	if o.ClientAddr != "" && !isLoopback(o.ClientAddr) {
		wrong("option ClientAddr: %s is not a loopback address, and clients are not authenticated", o.ClientAddr)
	}
	seen := make(map[string]bool)
	for _, r := range o.Remotes {
		if r.Name == "" || seen[r.Name] {
			wrong("option Remotes: the name %q is empty or duplicated", r.Name)
		}
		if r.Addr == "" {
			wrong("option Remotes: %s has no address", r.Name)
		}
		errs = append(errs, validateAddr("Remotes, "+r.Name, r.Addr))
		seen[r.Name] = true
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	return errors.Join(errs...)
}

// validateAddr accepts host:port and "".
func validateAddr(option, addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("option %s: %q is not host:port", option, addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("option %s: the port of %q is not a number up to 65535", option, addr)
	}
	return nil
}

// isLoopback accepts only what needs no resolver: a name may mean another address
// tomorrow.
func isLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// serverOptions are nats-server's.
func (o *EmbeddedOptions) serverOptions() *server.Options {
	opts := &server.Options{
		ServerName:      o.Name,
		DontListen:      o.ClientAddr == "",
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
	if o.ClientAddr != "" {
		opts.Host, opts.Port = hostPort(o.ClientAddr)
	}
	if o.ListenAddr == "" {
		return opts
	}
	opts.Gateway = server.GatewayOpts{
		Name:      o.Name,
		Advertise: o.Advertise,
		TLSConfig: o.TLS,
		// A server that is not in Remotes is tried this many seconds after it has gone.
		// nats-server's default is not at all, and above the number it tries without a
		// pause while the connection that the other made still stands.
		ConnectRetries: 24 * 60 * 60,
		// A peer that does not take bytes is cut, not waited for.
		WriteDeadline: 2 * writeTimeout,
		WriteTimeout:  server.WriteTimeoutPolicyClose,
	}
	opts.Gateway.Host, opts.Gateway.Port = hostPort(o.ListenAddr)
	if len(o.Secret) > 0 {
		// The password is derived: it travels, and must not reveal the secret, which serves
		// other purposes too.
		mac := hmac.New(sha256.New, o.Secret)
		mac.Write([]byte("regiond nats gateway v1"))
		opts.Gateway.Username, opts.Gateway.Password = "regiond", hex.EncodeToString(mac.Sum(nil))
	}
	for _, r := range o.Remotes {
		opts.Gateway.Gateways = append(opts.Gateway.Gateways, &server.RemoteGatewayOpts{
			Name: r.Name, URLs: []*url.URL{{Scheme: "nats", Host: r.Addr}},
		})
	}
	return opts
}

// hostPort splits an address that validateAddr has accepted, into nats-server's terms:
// there port 0 means none, and −1 any.
func hostPort(addr string) (host string, port int) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ = strconv.Atoi(text)
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, port
}
