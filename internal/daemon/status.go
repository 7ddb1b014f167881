package daemon

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
)

// Banner writes what runs where and how to try it: as text for a person, as a line of
// the log otherwise.
func (d *Daemon) Banner(w io.Writer) {
	c := d.config.Load()
	data, admin := listenerURL(c.tls, d.dataAt), listenerURL(c.adminTLS, d.adminAt)
	store := "in memory: usage is gone when this process ends"
	if r := c.region.Redis; !r.Embedded {
		store = "redis " + r.Addrs[0]
	}
	if try := tryLine(c.topology, data); d.options.TextLog {
		fmt.Fprintf(w, "regiond %s serves region %s, %s\n  decisions  %s\n  admin      %s\n  try        %s\n",
			d.options.Version, d.options.Region, store, data, admin, try)
	} else {
		d.log.Info("regiond is serving", "version", d.options.Version, "region", d.options.Region, "instance", d.options.Instance,
			"http", data, "admin", admin, "store", store, "config_hash", d.hash(), "try", try)
	}
}

// tryLine is a command that asks for a decision. What a caller has to prove stands in it in capitals.
func tryLine(top *region.Topology, data string) string {
	tenant := "acme"
	if t := top.Tenants; t.Default == nil && len(t.Listed) > 0 {
		tenant = slices.Min(slices.Collect(maps.Keys(t.Listed)))
	}
	line, a := "curl -s", &top.Access
	if a.CertFile != "" {
		line += " --insecure" // the certificate is for another name than this address
	}
	switch { // either is enough
	case a.TokensFile != "":
		line += " -H 'Authorization: Bearer TOKEN'"
	case a.ClientCAFile != "":
		line += " --cert CERT.pem --key KEY.pem"
	}
	body := fmt.Sprintf(`{"tenant":%q}`, tenant) // of an id, which is ASCII, this is JSON
	return fmt.Sprintf(`%s -d '%s' %s/v1/check`, line, strings.ReplaceAll(body, "'", `'\''`), data)
}

func listenerURL(c *tls.Config, l net.Listener) string {
	if c != nil {
		return "https://" + reachable(l.Addr())
	}
	return "http://" + reachable(l.Addr())
}

// reachable is an address that a person on this machine can use for a listener
// on all interfaces.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			return net.JoinHostPort("127.0.0.1", port)
		}
	}
	return a.String()
}

// ready is true while traffic should come here. Redis being away does not make
// it false: fail modes answer, and taking the region out would not help.
func (d *Daemon) ready() (ok bool, reasons []string) {
	if d.draining.Load() {
		return false, []string{"draining: this process is about to stop"}
	}
	if !d.serving.Load() || d.redis != nil && !d.redis.Probed() {
		return false, []string{"starting"}
	}
	if d.replication != nil {
		if why := d.replication.notReady(); why != "" {
			return false, []string{why}
		}
	}
	if d.redis != nil && !d.redis.Available() {
		return true, []string{"redis is away: fail modes answer"}
	}
	return true, nil
}

// seen is what this process knows of the regions now, which GET /v1/regions answers.
func (d *Daemon) seen() status.Report {
	top := d.config.Load().topology
	v := status.Report{
		Region: d.options.Region, Instance: d.options.Instance, Version: d.options.Version, ConfigHash: d.hash(),
		Mode:  status.Mode{Mode: quota.ModeGlobal.String()},
		Store: status.Store{Kind: "memory", Available: true},
	}
	r := d.clock.Reading()
	if v.Clock = (status.Clock{Valid: r.Valid, UncertaintyMS: ms(r.Uncertainty), DriftPPM: r.Drift.PPM}); r.Valid {
		v.Clock.OffsetMS = ms(time.Duration(r.NowUS-time.Now().UnixMicro()) * time.Microsecond)
	}
	if d.redis != nil {
		v.Store = status.Store{Kind: "redis", Available: d.redis.Available()}
	}
	for i := range top.Regions {
		r := &top.Regions[i]
		v.Regions = append(v.Regions, status.Region{RegionRow: members.RegionRow{
			Region: r.Name, Weight: r.Weight, Self: r.Name == d.options.Region, State: members.StateSelf, InUse: true,
			HeardMS: members.Never, AckedMS: members.Never,
		}})
	}
	v.Bounds = d.closedBounds()
	if s := d.state.Store(); s.Epoch != 0 {
		v.Store.Epoch = s.Epoch
		if s.Lost != 0 && d.redis != nil { // what is in memory was lost with the process before
			lost := time.UnixMicro(s.Lost).UTC()
			v.Store.Lost = &lost
		}
	}
	if d.replication != nil {
		d.replication.report(&v)
	}
	return v
}

// top answers GET /v1/top.
func (d *Daemon) top(q quota.TopQuery) (quota.TopReport, error) {
	if q.Policy != "" && !d.limiter.HasPolicy(q.Policy) {
		return quota.TopReport{}, &quota.Invalid{Fault: quota.FaultInput, Fields: []quota.FieldError{{
			Pointer: "/policy", Detail: fmt.Sprintf("%q is not a policy", q.Policy),
		}}}
	}
	if d.replication != nil {
		return d.replication.top.Report(q), nil
	}
	return d.recorder.Report(q, d.options.Region), nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// report adds what is known of the other regions.
func (n *replication) report(v *status.Report) {
	if s := n.state.Snapshot(); s.Read {
		v.Topology = &status.Topology{
			Revision: s.Topology.Revision, Agreed: n.ceilings.Agreed(), HeldMS: n.ceilings.Held().Milliseconds(), Refused: s.Refused, Former: s.Topology.Unaged(n.d.timeUS()),
		}
	}
	seen := n.ceilings.View()
	mode, reason := seen.Mode(quota.FailShare)
	v.Mode = status.Mode{Mode: mode.String(), Reason: reason.String(), About: seen.About}
	for i := range v.Regions {
		r := &v.Regions[i]
		for _, p := range seen.Peers {
			if p.Region == r.Region {
				r.RegionRow = p
			}
		}
		for _, o := range n.offsets.Peers() {
			if o.Peer == r.Region {
				r.Offset = &status.Offset{OffsetMS: ms(o.Offset), UncertaintyMS: ms(o.Uncertainty), AgeMS: o.Age.Milliseconds(), Alarm: o.Alarm}
			}
		}
	}
	s := n.bus.Status()
	v.NATS = &status.NATS{Connected: s.Connected, URL: s.URL, Since: s.Since.UTC(), LastError: s.LastError}
	if n.server != nil {
		for _, g := range n.server.Peers() {
			v.NATS.Gateways = append(v.NATS.Gateways, status.Gateway(g))
		}
	}
	if n.gossip != nil {
		for _, m := range n.gossip.Members() {
			v.Gossip = append(v.Gossip, status.Member{Name: m.Name(), Gossip: m.Gossip, Self: m.Process == n.self})
		}
		if since, hashes, ok := n.gossip.Drift(); ok {
			v.Drift = &status.Drift{Since: since, Hashes: hashes}
		}
	}
	v.Totals = &status.Totals{Series: n.ceilings.Ledger().Series(), UnsentMS: n.ceilings.Ledger().Unsent().Milliseconds()}
	v.Worst = n.worst.Worst()
}
