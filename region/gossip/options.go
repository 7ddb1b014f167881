package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
)

const (
	// RejoinInterval is how often seeds and members that are not alive are called
	// again, less up to a fifth. memberlist calls them once and never again.
	RejoinInterval = 5 * time.Second
	// Remembered is how long dead members stay in Members.
	Remembered = 10 * time.Minute

	// sendTimeout bounds how long memberlist may take to send an update, or that we leave, to
	// another process; it needs two rounds of gossip.
	sendTimeout = 500 * time.Millisecond
	// housekeeping is how often config drift and expired members are checked.
	housekeeping = time.Second
	// resolveTimeout bounds one DNS lookup.
	resolveTimeout = 2 * time.Second
	// maxMembers is far above any deployment, and bounds the memory that others can
	// occupy.
	maxMembers = 512
	// maxInstance bounds a process's name, which travels in every message about it.
	maxInstance = 128
)

// Options configure a Gossip. Version, Advertise, Keys, Cluster, Logger and Meter
// are optional, and of Bind and Transport one is required.
type Options struct {
	// Members is the table of processes, of which gossip writes Gossip. Region and instance of
	// its Self should be unique together.
	Members *members.Table
	// ConfigHash returns the hash of the configuration in force, up to 64
	// characters. It is called at the start and after each Update.
	ConfigHash func() string
	// Version of this program, up to 64 characters, for display.
	Version string
	// Bind is host:port to listen on, TCP and UDP; port 0 means any that is free
	// for both.
	Bind string
	// Advertise is host:port at which the others reach this process. "" means
	// Bind, port 0 the port that was bound. A name is resolved once, by Run.
	Advertise string
	// Keys encrypt and authenticate all messages, each 16, 24 or 32 bytes long: the first
	// is used, all are accepted, see SetKeys. Without a key anybody who reaches the port
	// can invent members, so Bind must be a loopback address.
	Keys [][]byte
	// Cluster separates deployments that can reach each other, up to 255 bytes.
	Cluster string
	// Seeds returns host:port of processes to join; this process may be among
	// them. It is called every second.
	Seeds func() []string
	// Regions reports whether the topology lists a region. Processes of others are
	// refused. It must not block.
	Regions func(name string) bool
	// Transport replaces sockets in tests and in the demo; Bind and Advertise are
	// not used then. Run closes it.
	Transport memberlist.Transport
	// Logger receives changes of members and memberlist's warnings; nil
	// discards them.
	Logger *slog.Logger
	// Meter makes the instruments; nil means none.
	Meter metric.Meter
}

// validate sets the defaults and returns every mistake that an operator can make.
func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	instance := o.Members.Self.Instance
	check(quota.ValidID(instance) == nil && len(instance) <= maxInstance,
		"option Instance must have 1 to %d characters of printable ASCII without space or braces, has %d", maxInstance, len(instance))
	if o.Transport == nil {
		o.Advertise = cmp.Or(o.Advertise, o.Bind)
		_, _, bindErr := region.SplitAddress(o.Bind)
		host, _, err := region.SplitAddress(o.Advertise)
		check(bindErr == nil, "option Bind: %w", bindErr)
		check(bindErr != nil || len(o.Keys) > 0 || region.OnLoopback(o.Bind), "gossip on %s needs a key: without one anybody who reaches "+
			"the port can invent members; give a key_file, or listen on 127.0.0.1", o.Bind)
		check(err == nil, "option Advertise: %w", err)
		check(err != nil || host != "" && !net.ParseIP(host).IsUnspecified(),
			"option Advertise must name a host that others can reach, is %q", o.Advertise)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return errors.Join(errs...)
}
