package demo

import (
	"fmt"
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
	// BusyUnits are a little less than the traffic of the demo asks for: the
	// limit has something to do, and a cut is felt where most of the traffic is.
	BusyUnits = 100
	// BusyWindow is so short that one sees units come free.
	BusyWindow = 10 * time.Second
	// global is the name of each global limit.
	global = "sustained"
	// meterUnits are never used up. The limit that has them shares its log with
	// Busy's global one, so that what remains of it is exactly what is used.
	meterUnits = 5_000
)

// policies has a limit that each region decides alone beside each global one: a burst that is large enough to use up the other at
// one go, or the meter of what is used.
const policies = `policies:
  - {name: standard, limits: &limits [{name: burst, units: 100, per: 1s}, {name: %[1]s, units: 100, per: 1m, scope: global}]}
  - {name: best-effort, on_partition: open, limits: *limits}
  - {name: strict, on_partition: closed, limits: *limits}
  - {name: busy, limits: [{name: %[1]s, units: %[2]d, per: %[3]v, scope: global}, &meter {name: meter, units: %[4]d, per: %[3]v}]}
  - {name: bounded, on_store_loss: closed, limits: [{name: %[1]s, units: %[2]d, per: %[3]v, scope: global, max_overshoot: 0%%}, *meter]}
tenants:
  default: {policy: standard}
  ` + Acme + `: {policy: standard}
  ` + Open + `: {policy: best-effort}
  ` + Closed + `: {policy: strict}
  ` + Busy + `: {policy: busy}
  ` + Strict + `: {policy: bounded}
`

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
	text := fmt.Appendf([]byte("cluster: demo\n"), policies+"regions:\n", global, BusyUnits, BusyWindow, meterUnits)
	for i, name := range Regions() {
		text = fmt.Appendf(text, "  - {name: %s, http: %q, grpc: %q, admin: %q, gossip: {bind: %q, advertise: %q, key_file: %q}, "+
			"redis: {embedded: true}, nats: {embedded: true, gateway: %q}}\n", name, address(port+i), address(port+GRPCOffset+i), address(port+AdminOffset+i),
			gossip[i], gossip[i], key, gateways[i])
	}
	t, _, err := region.Parse("demo", text)
	return t, err
}

// Meter reads what Busy, or Strict, has used in a region off a decision about it.
func Meter(d *quota.Decision) (used, ceiling int64) {
	i := slices.IndexFunc(d.Limits, func(s quota.LimitState) bool { return s.Limit.Name == "meter" })
	j := slices.IndexFunc(d.Limits, func(s quota.LimitState) bool { return s.Limit.Name == global })
	if i < 0 || j < 0 {
		return 0, 0
	}
	return meterUnits - d.Limits[i].Remaining, d.Limits[j].Ceiling
}
