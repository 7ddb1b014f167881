package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/quota"
)

// maxInstance bounds a process's name, which travels in every message about it.
const maxInstance = 128

// Options are what a Gossip needs. Region, Instance, Boot and Bind (or
// Transport) have no default.
type Options struct {
	// Region and Instance name this process; together they must be unique. A
	// region is named as in the topology, an instance has 1–128 characters of
	// printable ASCII without space or braces.
	Region, Instance string
	// Boot is when this process started, in µs since the epoch. It tells lives
	// of one name apart, and which of two namesakes was first.
	Boot int64
	// ConfigHash returns the hash of the configuration in force, up to 64
	// characters. It is asked at the start and after each Update; nil means none.
	ConfigHash func() string
	// Version of this program, up to 64 characters, for display.
	Version string
	// Bind is host:port to listen on, TCP and UDP; port 0 means any that is free
	// for both.
	Bind string
	// Advertise is host:port at which the others reach this process; "" means
	// Bind, port 0 the port bound to. A name is resolved once, when Run begins.
	Advertise string
	// Key encrypts and authenticates all messages: 16, 24 or 32 bytes, see
	// ReadKey. Without one anybody who reaches the port can invent members, which is warned of beyond loopback.
	Key []byte
	// Cluster keeps deployments apart that reach each other, up to 255 bytes.
	Cluster string
	// Seeds returns where to look for others, host:port, its own among them or
	// not. It is asked anew at each attempt; nil means nobody is looked for.
	Seeds func() []string
	// Regions says whether the topology has a region. Processes of others are
	// refused; nil means none is. It must not block.
	Regions func(name string) bool
	// Transport replaces sockets in tests and in the demo; Bind and Advertise are
	// not used then. It is closed by Run, or by Close.
	Transport memberlist.Transport
	// Logger hears of members, conflicts and drift; nil means nobody does.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// validate fills in the defaults and returns everything that is wrong.
func (o *Options) validate() error {
	var errs []error
	if err := quota.ValidName(o.Region); err != nil {
		errs = append(errs, fmt.Errorf("option Region: %w", err))
	}
	if err := quota.ValidID(o.Instance); err != nil || len(o.Instance) > maxInstance {
		errs = append(errs, fmt.Errorf("option Instance must have 1 to %d characters of printable ASCII without space or braces, has %d",
			maxInstance, len(o.Instance)))
	}
	if o.Boot <= 0 {
		errs = append(errs, fmt.Errorf("option Boot must be µs since the epoch, is %d", o.Boot))
	}
	if len(o.Version) > maxMetaText || !printable(o.Version) {
		errs = append(errs, fmt.Errorf("option Version must have up to %d printable characters, is %.80q", maxMetaText, o.Version))
	}
	if len(o.Cluster) > memberlist.LabelMaxSize {
		errs = append(errs, fmt.Errorf("option Cluster may have up to %d bytes, has %d", memberlist.LabelMaxSize, len(o.Cluster)))
	}
	if o.Key != nil {
		if err := checkKey(o.Key); err != nil {
			errs = append(errs, fmt.Errorf("option Key: %w", err))
		}
	}
	if o.Transport == nil {
		errs = append(errs, o.validateAddresses())
	}
	o.fill()
	return errors.Join(errs...)
}

func (o *Options) validateAddresses() error {
	host, _, err := splitAddress(o.Bind)
	if err != nil {
		return fmt.Errorf("option Bind: %w", err)
	}
	if o.Advertise == "" {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("option Advertise is missing: %s is every interface, which tells nobody where to find this process", o.Bind)
		}
		return nil
	}
	host, _, err = splitAddress(o.Advertise)
	if err != nil {
		return fmt.Errorf("option Advertise: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("option Advertise must name a host that others can reach, is %s", o.Advertise)
	}
	return nil
}

func (o *Options) fill() {
	if o.ConfigHash == nil {
		o.ConfigHash = func() string { return "" }
	}
	if o.Seeds == nil {
		o.Seeds = func() []string { return nil }
	}
	if o.Regions == nil {
		o.Regions = func(string) bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
}

func (o *Options) name() string { return o.Region + "/" + o.Instance }

func splitAddress(addr string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(host, "/") {
		return "", 0, fmt.Errorf("an address must be host:port, is %.80q", addr)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("an address must be host:port with a port up to 65535, is %.80q", addr)
	}
	return host, int(n), nil
}
