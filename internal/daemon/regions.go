package daemon

import (
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
)

func (d *Daemon) regions() any {
	top := d.topology.Load()
	v := status.Report{
		Region: d.options.Region, Instance: d.options.Instance, Version: d.options.Version, ConfigHash: top.Hash(),
		Mode:  status.Mode{Mode: quota.ModeGlobal.String()},
		Store: status.Store{Kind: "memory", Available: true}, Clock: d.clockStatus(),
	}
	if d.redis != nil {
		v.Store = status.Store{Kind: "redis", Available: d.redis.Available()}
	}
	for i := range top.Regions {
		r := &top.Regions[i]
		v.Regions = append(v.Regions, status.Region{Peer: view.Peer{
			Region: r.Name, Weight: r.Weight, Self: r.Name == d.options.Region, State: view.StateSelf, InUse: true,
			HeardMS: view.Never, AckedMS: view.Never,
		}})
	}
	if d.neighbours != nil {
		d.neighbours.show(&v)
	}
	return v
}

func (d *Daemon) clockStatus() status.Clock {
	r := d.clock.Reading()
	v := status.Clock{Valid: r.Valid, UncertaintyMS: ms(r.Uncertainty), DriftPPM: r.Drift}
	if r.Valid {
		v.OffsetMS = ms(time.Duration(r.NowUS-time.Now().UnixMicro()) * time.Microsecond)
	}
	return v
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// show adds what is known of the others.
func (n *neighbours) show(v *status.Report) {
	seen := n.ceilings.View()
	mode, reason := seen.Mode(quota.FailShare)
	v.Mode = status.Mode{Mode: mode.String(), Reason: reason.String(), About: seen.About()}
	for i := range v.Regions {
		r := &v.Regions[i]
		for _, p := range seen.Peers() {
			if p.Region == r.Region {
				r.Peer = p
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
			v.Gossip = append(v.Gossip, status.Member{
				Name: m.Name(), Addr: m.Addr, State: string(m.State), Since: m.Since.UTC(),
				ConfigHash: m.ConfigHash, Version: m.Version, Self: m.Self,
			})
		}
		if since, hashes, ok := n.gossip.Drift(); ok {
			v.Drift = &status.Drift{Since: since, Hashes: hashes}
		}
	}
	v.Totals = &status.Totals{Series: n.ceilings.Ledger().Series(), UnsentMS: n.ceilings.Ledger().Unsent().Milliseconds()}
	v.Worst = n.worst.all()
}
