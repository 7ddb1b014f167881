package demo

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Where the demo listens: one port per region from its first port on, the admin
// listeners AdminOffset and those of Envoy's services GRPCOffset above those.
const (
	DefaultPort = 8081
	AdminOffset = 1000
	GRPCOffset  = 2000
	// MaxPort is the largest first port that leaves room for the others.
	MaxPort = 65535 - GRPCOffset - 2
)

// The tenants that the demo names. Any other id is a tenant of
// its own under the same policy as Acme.
const (
	// Acme may have 100 units a minute, all regions together.
	Acme = "acme"
	// Open has the same limit with on_partition: open.
	Open = "globex"
	// Closed has the same limit with on_partition: closed.
	Closed = "initech"
	// Busy is the tenant whose traffic the demo makes, with BusyUnits in BusyWindow. Strict
	// gets the same traffic under the same limit, with max_overshoot: 0%.
	Busy   = "demo"
	Strict = "demo-strict"
)

const (
	// acmeUnits are so few that one command uses them up.
	acmeUnits = 100
	// BusyUnits are a little less than the traffic of the demo asks for: the
	// limit has something to do, and a cut is felt where most of the traffic is.
	BusyUnits = 100
	// BusyWindow is so short that one sees units come free.
	BusyWindow = 10 * time.Second
	// Window is that of all other global limits here.
	Window = time.Minute
	// meterUnits are never used up. The limit that has them shares its log with
	// Busy's global one, so that what remains of it is exactly what is used.
	meterUnits = 5_000
)

// Regions are the demo's, in the topology's order.
func Regions() []string { return []string{"eu-west", "us-east", "ap-south"} }

// Ports are the ports that a demo binds, in the distance to its first.
func Ports() []int {
	var ports []int
	for i := range Regions() {
		ports = append(ports, i, AdminOffset+i, GRPCOffset+i)
	}
	return ports
}

// Rates are how many requests a second the demo makes, region by region.
func Rates() []int { return []int{6, 4, 2} }

// Topology is the one that all three regions are given: their listeners from port
// on, everything embedded. gossip and gateways are host:port, one per region, and key is the file
// of what they share.
func Topology(port int, gossip, gateways []string, key string) (*region.Topology, error) {
	t := &region.Topology{
		Cluster:    "demo",
		MaxUnknown: region.DefaultMaxUnknown, MaxValues: region.DefaultMaxValues,
		ShareTop: true,
		Headers:  quota.Headers{Format: quota.Draft11, XReset: quota.ResetDelta},
		LogLevel: slog.LevelInfo,
		Policies: []quota.Policy{
			policy("standard", quota.FailShare),
			policy("best-effort", quota.FailOpen),
			policy("strict", quota.FailClosed),
			busy("busy", 0),
			busy("bounded", quota.Strict),
		},
		Tenants: region.Tenants{
			Default: &quota.Tenant{Policy: "standard"},
			Listed: map[string]quota.Tenant{
				Acme: {Policy: "standard"}, Open: {Policy: "best-effort"}, Closed: {Policy: "strict"}, Busy: {Policy: "busy"},
				Strict: {Policy: "bounded"},
			},
		},
	}
	for i, name := range Regions() {
		t.Regions = append(t.Regions, region.Region{
			Name: name, Weight: region.DefaultWeight, HTTP: address(port + i), GRPC: address(port + GRPCOffset + i), Admin: address(port + AdminOffset + i),
			Gossip: &region.Gossip{Bind: gossip[i], Advertise: gossip[i], KeyFile: key},
			Redis:  region.Redis{Embedded: true},
			NATS:   region.NATS{Embedded: true, Gateway: gateways[i]},
		})
	}
	var errs []error
	for _, m := range t.Validate() {
		errs = append(errs, fmt.Errorf("%s: %s", m.Pointer, m.Detail))
	}
	return t, errors.Join(errs...)
}

// policy has a limit that each region decides alone beside the global one; both
// are decided at once. The burst is large enough to use up the other at one go.
func policy(name string, onPartition quota.FailMode) quota.Policy {
	return quota.Policy{Name: name, OnPartition: onPartition, EnforcePercent: -1, Limits: []quota.Limit{
		{Name: "burst", Units: acmeUnits, Window: time.Second},
		sustained(acmeUnits),
	}}
}

// busy has a limit that the demo's traffic meets, and one beside it that shows how much of it
// is used.
func busy(name string, most quota.Overshoot) quota.Policy {
	l := sustained(BusyUnits)
	l.Window, l.MaxOvershoot = BusyWindow, most
	p := quota.Policy{Name: name, EnforcePercent: -1, Limits: []quota.Limit{l, {Name: "meter", Units: meterUnits, Window: BusyWindow}}}
	if most > 0 {
		p.OnStoreLoss = quota.FailClosed
	}
	return p
}

func sustained(units int64) quota.Limit {
	return quota.Limit{Name: "sustained", Units: units, Window: Window, Scope: quota.ScopeGlobal}
}

// Meter reads what Busy, or Strict, has used in a region off a decision about it.
func Meter(d *quota.Decision) (used, ceiling int64) {
	i := slices.IndexFunc(d.Limits, func(s quota.LimitState) bool { return s.Limit.Name == "meter" })
	j := slices.IndexFunc(d.Limits, func(s quota.LimitState) bool { return s.Limit.Name == "sustained" })
	if i < 0 || j < 0 {
		return 0, 0
	}
	return meterUnits - d.Limits[i].Remaining, d.Limits[j].Ceiling
}
