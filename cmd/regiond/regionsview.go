package main

import (
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

// regionsView is GET /v1/regions: what this process sees, and why. Ages and spans
// are milliseconds; −1 is never.
type regionsView struct {
	Region     string             `json:"region"`
	Instance   string             `json:"instance"`
	Version    string             `json:"version"`
	ConfigHash string             `json:"config_hash"`
	Mode       modeView           `json:"mode"`
	Store      storeView          `json:"store"`
	Clock      clockView          `json:"clock"`
	Regions    []regionView       `json:"regions"`
	NATS       *natsView          `json:"nats,omitempty"`
	Gossip     []memberView       `json:"gossip,omitempty"`
	Drift      *driftView         `json:"config_drift,omitempty"`
	Totals     *totalsView        `json:"totals,omitempty"`
	Worst      map[string]float64 `json:"worst_usage,omitempty"` // global count of a window ÷ limit, by limit
}

// modeView is the mode of policies with on_partition: share.
type modeView struct {
	Mode   string   `json:"mode"`
	Reason string   `json:"reason,omitempty"`
	About  []string `json:"about,omitempty"` // the regions that the reason is about
}

type storeView struct {
	Kind      string `json:"kind"` // redis or memory
	Available bool   `json:"available"`
}

type clockView struct {
	Valid         bool    `json:"valid"`
	OffsetMS      float64 `json:"offset_ms"` // of the store's clock against this host's, for display only
	UncertaintyMS float64 `json:"uncertainty_ms"`
	DriftPPM      float64 `json:"drift_ppm"`
}

type regionView struct {
	Name        string        `json:"name"`
	Weight      int64         `json:"weight"`
	Self        bool          `json:"self"`
	State       string        `json:"state"`
	Counted     bool          `json:"counted"` // its part is pooled with ours
	Reason      string        `json:"reason,omitempty"`
	Detail      string        `json:"detail,omitempty"`
	SinceMS     int64         `json:"since_ms"`
	HeardMS     int64         `json:"heard_ms"`
	AckedMS     int64         `json:"acked_ms"` // age of the newest of our messages that it has acknowledged
	RemainingMS int64         `json:"remaining_ms,omitempty"`
	Offset      *offsetView   `json:"clock,omitempty"`
	Processes   []processView `json:"processes,omitempty"` // those other than this one
}

type offsetView struct {
	OffsetMS      float64 `json:"offset_ms"` // its store's clock against ours
	UncertaintyMS float64 `json:"uncertainty_ms"`
	AgeMS         int64   `json:"age_ms"`
	Alarm         bool    `json:"alarm,omitempty"`
}

type processView struct {
	Instance string    `json:"instance"`
	Boot     time.Time `json:"boot"`
	State    string    `json:"state"`
	HeardMS  int64     `json:"heard_ms"`
	AckedMS  int64     `json:"acked_ms"`
	UnsentMS int64     `json:"unsent_ms"`
	RTTMS    float64   `json:"rtt_ms"`
	Digested bool      `json:"digested"`
	Newcomer bool      `json:"newcomer,omitempty"`
	Gossip   string    `json:"gossip"`
	Members  []string  `json:"members"` // the regions that it would count on
}

type natsView struct {
	Connected bool          `json:"connected"`
	URL       string        `json:"url,omitempty"`
	Since     time.Time     `json:"since"`
	LastError string        `json:"last_error,omitempty"`
	Gateways  []gatewayView `json:"gateways,omitempty"` // of an embedded server
}

type gatewayView struct {
	Name     string `json:"name"`
	Inbound  bool   `json:"inbound"`
	Outbound bool   `json:"outbound"`
}

type memberView struct {
	Name       string    `json:"name"` // region/instance
	Addr       string    `json:"addr"`
	State      string    `json:"state"`
	Since      time.Time `json:"since"`
	ConfigHash string    `json:"config_hash"`
	Version    string    `json:"version"`
	Self       bool      `json:"self,omitempty"`
}

type driftView struct {
	Since  time.Time           `json:"since"`
	Hashes map[string][]string `json:"hashes"` // configuration hash → processes
}

type totalsView struct {
	Series   int   `json:"series"` // partitions of global limits, of all regions
	UnsentMS int64 `json:"unsent_ms"`
}

func (d *daemon) regions() any {
	release, _ := buildVersion()
	top := d.topology.Load()
	v := regionsView{
		Region: d.options.region, Instance: d.options.instance, Version: release, ConfigHash: top.Hash(),
		Mode:  modeView{Mode: quota.ModeGlobal.String()},
		Store: storeView{Kind: "memory", Available: true}, Clock: d.clockView(),
	}
	if d.redis != nil {
		v.Store = storeView{Kind: "redis", Available: d.redis.Available()}
	}
	for i := range top.Regions {
		r := &top.Regions[i]
		v.Regions = append(v.Regions, regionView{
			Name: r.Name, Weight: r.Weight, Self: r.Name == d.options.region, State: view.StateSelf.String(), Counted: true, HeardMS: -1, AckedMS: -1,
		})
	}
	if d.neighbours != nil {
		d.neighbours.show(&v)
	}
	return v
}

func (d *daemon) clockView() clockView {
	r := d.clock.Reading()
	v := clockView{Valid: r.Valid, UncertaintyMS: ms(r.Uncertainty), DriftPPM: r.Drift}
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
func (n *neighbours) show(v *regionsView) {
	seen := n.ceilings.View()
	mode, reason := seen.Mode(quota.FailShare)
	v.Mode = modeView{Mode: mode.String(), Reason: reason.String(), About: seen.About()}
	offsets := n.offsets.Peers()
	processes := n.mesh.Peers()
	peers := map[string]*view.Peer{}
	for i := range seen.Peers() {
		p := &seen.Peers()[i]
		peers[p.Region] = p
	}
	for i := range v.Regions {
		if p := peers[v.Regions[i].Name]; p != nil {
			v.Regions[i].show(p, offsets, processes)
		}
	}
	s := n.bus.Status()
	v.NATS = &natsView{Connected: s.Connected, URL: s.URL, Since: s.Since.UTC(), LastError: s.LastError}
	if n.server != nil {
		for _, g := range n.server.Peers() {
			v.NATS.Gateways = append(v.NATS.Gateways, gatewayView(g))
		}
	}
	if n.gossip != nil {
		for _, m := range n.gossip.Members() {
			v.Gossip = append(v.Gossip, memberView{
				Name: m.Name(), Addr: m.Addr, State: m.State.String(), Since: m.Since.UTC(),
				ConfigHash: m.ConfigHash, Version: m.Version, Self: m.Self,
			})
		}
		if since, hashes, ok := n.gossip.Drift(); ok {
			v.Drift = &driftView{Since: since, Hashes: hashes}
		}
	}
	v.Totals = &totalsView{Series: n.ceilings.Ledger().Series(), UnsentMS: n.ceilings.Ledger().Unsent().Milliseconds()}
	v.Worst = n.worst.all()
}

func (r *regionView) show(p *view.Peer, offsets []clock.PeerOffset, known []meshsync.Peer) {
	r.State, r.Counted, r.Reason, r.Detail = p.State.String(), p.InUse, p.Reason.String(), p.Text
	r.SinceMS, r.RemainingMS = p.Since.Milliseconds(), p.Remaining.Milliseconds()
	if !r.Self {
		r.HeardMS, r.AckedMS = ageMS(p.Heard), ageMS(p.Acked)
	}
	for _, o := range offsets {
		if o.Peer == r.Name {
			r.Offset = &offsetView{OffsetMS: ms(o.Offset), UncertaintyMS: ms(o.Uncertainty), AgeMS: o.Age.Milliseconds(), Alarm: o.Alarm}
		}
	}
	for _, one := range p.Processes {
		row := processView{
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
