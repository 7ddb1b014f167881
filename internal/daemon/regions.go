package daemon

import (
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
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
		v.Regions = append(v.Regions, status.Region{
			Name: r.Name, Weight: r.Weight, Self: r.Name == d.options.Region, State: view.StateSelf.String(), Counted: true, HeardMS: -1, AckedMS: -1,
		})
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

// ageMS is an age for an answer, −1 for never.
func ageMS(age time.Duration) int64 {
	if age == view.Never {
		return -1
	}
	return age.Milliseconds()
}

// show adds what is known of the others.
func (n *neighbours) show(v *status.Report) {
	seen := n.ceilings.View()
	mode, reason := seen.Mode(quota.FailShare)
	v.Mode = status.Mode{Mode: mode.String(), Reason: reason.String(), About: seen.About()}
	offsets := n.offsets.Peers()
	processes := n.mesh.Peers()
	peers := map[string]*view.Peer{}
	for i := range seen.Peers() {
		p := &seen.Peers()[i]
		peers[p.Region] = p
	}
	for i := range v.Regions {
		if p := peers[v.Regions[i].Name]; p != nil {
			showRegion(&v.Regions[i], p, offsets, processes)
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

func showRegion(r *status.Region, p *view.Peer, offsets []clock.PeerOffset, known []meshsync.Peer) {
	r.State, r.Counted, r.Reason, r.Detail = p.State.String(), p.InUse, p.Reason.String(), p.Text
	r.SinceMS, r.RemainingMS = p.Since.Milliseconds(), p.Remaining.Milliseconds()
	if !r.Self {
		r.HeardMS, r.AckedMS = ageMS(p.Heard), ageMS(p.Acked)
	}
	for _, o := range offsets {
		if o.Peer == r.Name {
			r.Offset = &status.Offset{OffsetMS: ms(o.Offset), UncertaintyMS: ms(o.Uncertainty), AgeMS: o.Age.Milliseconds(), Alarm: o.Alarm}
		}
	}
	for _, one := range p.Processes {
		row := status.Process{
			Instance: one.Instance, Boot: time.UnixMicro(one.Boot).UTC(), State: one.State.String(),
			HeardMS: ageMS(one.Heard), AckedMS: ageMS(one.Acked), UnsentMS: one.Unsent.Milliseconds(),
			Digested: one.Digested, Newcomer: one.Newcomer, Gossip: one.Gossip.String(), Members: one.Members,
		}
		for i := range known {
			if k := &known[i]; k.Region == r.Name && k.Instance == one.Instance && k.Boot == one.Boot {
				row.RTTMS = ms(k.RTT)
			}
		}
		r.Processes = append(r.Processes, row)
	}
}
