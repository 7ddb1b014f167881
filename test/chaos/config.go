//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// Limits of the world's policies, by class of traffic.
const (
	LedgerUnits = 100_000 // per month, globally
	DearUnits   = 90_000  // likewise
	HotUnits    = 1000    // per HotWindow, globally
	EdgeUnits   = 50      // per EdgeWindow, regionally
	QuietUnits  = 30      // per QuietWindow, globally
	BoundUnits  = 100     // per BoundWindow, globally, with max_overshoot: 0% and 10%
	MonthUnits  = 450     // per MonthWindow, globally, with max_overshoot: 0%
	HourUnits   = 120     // per hour of the calendar, globally, with max_overshoot: 0%
	HeldUnits   = 1000    // tokens per HeldWindow, regionally
)

// dearLimits is how many limits a check of class dear has beside its global one.
const dearLimits = 3

// Layout is the regions of a topology and their weights.
type Layout struct {
	Revision int
	// Weights are those of the regions, in order; 0 for one that is not in the file.
	Weights [3]int64
}

// topology is the file of all regions, under the layout in force.
func (w *World) topology() string { return w.topologyOf(w.layout) }

func (w *World) topologyOf(l Layout) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "cluster: chaos\nrevision: %d\nregions:\n", l.Revision)
	for i, r := range w.Regions {
		if l.Weights[i] == 0 {
			continue
		}
		fmt.Fprintf(b, "  - name: %s\n    weight: %d\n    http: %s\n    admin: %s\n", r.Name, l.Weights[i], httpAddr, adminAddr)
		fmt.Fprintf(b, "    gossip: {bind: %q, advertise: %q, key_file: %q}\n", r.gossip(), r.gossip(), w.keyFile(r.Name))
		if w.options.Sentinel == r.Name {
			fmt.Fprintf(b, "    redis: {mode: sentinel, master: %s, addrs: [%q, %q, %q]}\n", master, sentinelAddr(0), sentinelAddr(1), sentinelAddr(2))
		} else {
			fmt.Fprintf(b, "    redis: {addrs: [%q]}\n", r.redisAddr())
		}
		if w.options.Embedded {
			b.WriteString("    nats: {embedded: true}\n")
		} else {
			fmt.Fprintf(b, "    nats: {urls: [%q], username: %s, password_file: %q}\n", "nats://"+natsAddr, r.Name, w.natsPasswordFile())
		}
	}
	b.WriteString("policies:\n")
	dear := &strings.Builder{}
	for i := range dearLimits { // a log each: their dimensions differ
		fmt.Fprintf(dear, "}, {name: by%d, units: 100000, per: 1h, by: [dim%d]", i, i)
	}
	for _, p := range []struct{ class, limit string }{
		{traffic.Ledger, fmt.Sprintf("units: %d, per: 720h, scope: global", LedgerUnits)},
		{traffic.Dear, fmt.Sprintf("units: %d, per: 720h, scope: global%v", DearUnits, dear)},
		{traffic.Hot, fmt.Sprintf("units: %d, per: %v, scope: global", HotUnits, HotWindow)},
		{traffic.Edge, fmt.Sprintf("units: %d, per: %v", EdgeUnits, EdgeWindow)},
		{traffic.Quiet, fmt.Sprintf("units: %d, per: %v, scope: global", QuietUnits, QuietWindow)},
	} {
		fmt.Fprintf(b, "  - name: %s\n    limits: [{name: limit, %s}]\n", p.class, p.limit)
	}
	for _, p := range []struct {
		class string
		units int
		time  string
		most  string
	}{
		{traffic.Strict, BoundUnits, "per: " + BoundWindow.String(), "0%"},
		{traffic.Tenth, BoundUnits, "per: " + BoundWindow.String(), "10%"},
		{traffic.Month, MonthUnits, "per: " + MonthWindow.String(), "0%"},
		{traffic.Hour, HourUnits, "calendar: hour", "0%"},
	} {
		fmt.Fprintf(b, "  - name: %s\n    on_store_loss: closed\n", p.class)
		fmt.Fprintf(b, "    limits: [{name: limit, units: %d, %s, scope: global, max_overshoot: %s}]\n", p.units, p.time, p.most)
	}
	fmt.Fprintf(b, "  - name: %s\n    max_ttl: %v\n    limits: [{name: limit, units: %d, per: %v, counts: tokens}]\n", heldClass, heldTTL, HeldUnits, HeldWindow)
	b.WriteString("tenants:\n")
	for class, n := range map[string]int{
		traffic.Dear: traffic.DearTenants, traffic.Hot: traffic.HotTenants, traffic.Edge: traffic.EdgeTenants, traffic.Quiet: traffic.QuietTenants,
		traffic.Strict: traffic.BoundTenants, traffic.Tenth: traffic.BoundTenants, traffic.Month: traffic.BoundTenants, traffic.Hour: traffic.HourTenants,
		heldClass: heldTenants,
	} {
		for i := range n {
			fmt.Fprintf(b, "  %s-%02d: {policy: %s}\n", class, i, class)
		}
	}
	fmt.Fprintf(b, "  default: {policy: %s}\n", traffic.Ledger)
	return b.String()
}

// natsConfig is the NATS configuration that the examples ship, with the names of one
// region in place of eu-west's. So changes of the example are tested here.
func (w *World) natsConfig(r *Region) (string, error) {
	src, err := os.ReadFile(filepath.Join("..", "..", "examples", "nats", "nats.conf"))
	if err != nil {
		return "", fmt.Errorf("the shipped configuration of NATS: %w", err)
	}
	const example = "eu-west"
	if !strings.Contains(string(src), "gateways: [") || !strings.Contains(string(src), "user: "+example) {
		return "", fmt.Errorf("examples/nats/nats.conf has changed: no user %s or no gateways", example)
	}
	// The two swap places: the example's region becomes this one's peer.
	return strings.NewReplacer(example, r.Name, r.Name, example).Replace(string(src)), nil
}

// natsPassword is that of a region's regiond at its NATS.
const natsPassword = "inside"

func (w *World) natsPasswordFile() string { return filepath.Join(w.dir, "nats-password") }

// natsEnv are the secrets and addresses that the configuration asks for.
func (w *World) natsEnv(r *Region) []string {
	url := func(name string) string {
		if name == r.Name {
			name = "eu-west"
		}
		for _, other := range w.Regions {
			if other.Name == name {
				return fmt.Sprintf("nats://gateway:secret@%s:7222", other.addr)
			}
		}
		return ""
	}
	return []string{
		"NATS_PASSWORD=" + natsPassword, "GATEWAY_PASSWORD=secret",
		"US_EAST_GATEWAY=" + url("us-east"), "AP_SOUTH_GATEWAY=" + url("ap-south"),
	}
}
