package global

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

// LookEvery is how often the lookout looks when nothing calls it.
const LookEvery = 50 * time.Millisecond

// Neighbours is what the lookout needs of the mesh; package sync says what each does.
type Neighbours interface {
	Peers() []meshsync.Peer
	Changed() <-chan struct{}
	Left(region, instance string, boot int64) bool
	Forget(region, instance string, boot int64) bool
	Resync()
	HeartbeatSoon()
}

// LookoutOptions are what a Lookout is made of; all but Members, Gossiped, Reread,
// Processes and Told are required.
type LookoutOptions struct {
	Self quota.Process
	Now  func() time.Duration // this process's monotonic clock
	// Topology is the one in force.
	Topology func() *region.Topology
	Ceilings *Ceilings
	Mesh     Neighbours
	// Members are the processes that gossip knows, and Gossiped has something in it
	// when they have changed; nil without gossip.
	Members  func() []gossip.Member
	Gossiped <-chan struct{}
	// Reread has the totals of the region's store read back; nil where no sibling shares it.
	Reread func()
	// Processes is how many of our region the operator promised; 0 counts as one.
	Processes int64
	// Told hears what has changed, one event after the other; nil for nobody.
	Told   func(view.Event)
	Logger *slog.Logger
}

func (o *LookoutOptions) validate() error {
	if o.Now == nil || o.Topology == nil || o.Ceilings == nil || o.Mesh == nil || o.Logger == nil {
		return errors.New("lookout: Now, Topology, Ceilings, Mesh and Logger are required")
	}
	return nil
}

// Lookout turns what the mesh and gossip know of processes into the sight that
// decisions go by, and tells what changed. Call, Advertised, Processes may be called
// from anywhere; Once only from where Run is, or instead of it.
type Lookout struct {
	o        LookoutOptions
	calls    chan struct{} // capacity 1
	siblings peak
	last     atomic.Pointer[view.View] // what beats say

	viewer *view.Viewer     // Run's own, like all below
	inUse  *region.Topology // that the viewer knows
	begun  bool
}

// NewLookout returns one that has looked once, and seen nobody.
func NewLookout(o LookoutOptions) (*Lookout, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Lookout{o: o, calls: make(chan struct{}, 1), inUse: o.Topology()}
	var err error
	if l.viewer, err = view.New(view.Options{Self: o.Self.Region, Started: o.Now()}, l.viewed(l.inUse)); err != nil {
		return nil, err
	}
	l.sees(l.viewer.Observe(view.Input{Now: o.Now()}))
	return l, nil
}

func (l *Lookout) viewed(top *region.Topology) view.Topology {
	t := view.Topology{Units: l.o.Ceilings.Units()}
	for i := range top.Regions {
		t.Weights = append(t.Weights, quota.Weight{Region: top.Regions[i].Name, Weight: top.Regions[i].Weight})
	}
	return t
}

// Call has the lookout look soon. It never blocks.
func (l *Lookout) Call() {
	select {
	case l.calls <- struct{}{}:
	default:
	}
}

// Advertised is what the next beat says.
func (l *Lookout) Advertised() meshsync.Advertised {
	v := l.last.Load()
	hash, weights := v.Topology()
	a := meshsync.Advertised{Members: v.Advertised(), Topology: hash}
	for _, w := range weights {
		a.Weights = append(a.Weights, quota.Weight(w))
	}
	return a
}

// Run looks every LookEvery, and at once when something changes, until ctx ends.
func (l *Lookout) Run(ctx context.Context) error {
	ticker := time.NewTicker(LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-l.o.Mesh.Changed():
		case <-l.o.Gossiped:
		case <-l.calls:
		}
		l.Once()
	}
}

// Once looks.
func (l *Lookout) Once() {
	if top := l.o.Topology(); top != l.inUse {
		if err := l.viewer.Configure(l.viewed(top)); err != nil {
			l.o.Logger.Error("the regions of the new configuration cannot be used", "error", err)
		}
		l.inUse = top
	}
	peers, members := l.o.Mesh.Peers(), l.members()
	in := view.Input{Now: l.o.Now(), Processes: make([]view.Process, 0, len(peers)+len(members))}
	for i := range peers {
		in.Processes = append(in.Processes, l.known(&peers[i], members))
	}
	in.Processes = append(in.Processes, unheard(peers, members, l.o.Mesh.Left)...)
	l.forget(in.Processes, in.Now)
	l.siblings.note(in.Now, l.count(in.Processes, in.Now))
	v, events := l.viewer.Observe(in)
	l.sees(v, events)
}

func (l *Lookout) members() []gossip.Member {
	if l.o.Members == nil {
		return nil
	}
	return l.o.Members()
}

// known is what the bus and gossip know of one process, together. One that does not say
// which key it uses is of a version that makes ids in another way: with the same key they
// are not ours either.
func (l *Lookout) known(p *meshsync.Peer, members []gossip.Member) view.Process {
	out := view.Process{
		Region: p.Region, Instance: p.Instance, Boot: p.Boot, Heard: p.ReceivedAt, Acked: p.AckedAt, Beats: p.Heartbeats,
		Members: p.Members, Topology: p.Topology, Unsent: p.Unsent, Digested: p.Synced, Full: p.Full,
		OtherKey: p.Members != nil && p.Key != l.o.Ceilings.o.Key.Fingerprint(), // known with its first beat
	}
	for _, w := range p.Weights {
		out.Weights = append(out.Weights, quota.Weight(w))
	}
	i := slices.IndexFunc(members, func(m gossip.Member) bool {
		return m.Region == p.Region && m.Instance == p.Instance && m.Boot == p.Boot
	})
	if i >= 0 {
		out.Gossip = gossipState(members[i].State)
	}
	return out
}

// unheard are the processes that gossip knows and the bus does not. Who leaves says
// so on the bus first, and until gossip has heard of it too left tells.
func unheard(peers []meshsync.Peer, members []gossip.Member, left func(region, instance string, boot int64) bool) []view.Process {
	var out []view.Process
	for _, m := range members {
		heard := m.Self || slices.ContainsFunc(peers, func(p meshsync.Peer) bool {
			return m.Region == p.Region && m.Instance == p.Instance && m.Boot <= p.Boot
		})
		if !heard {
			out = append(out, view.Process{
				Region: m.Region, Instance: m.Instance, Boot: m.Boot, Gossip: gossipState(m.State),
				Leaving: left(m.Region, m.Instance, m.Boot),
			})
		}
	}
	return out
}

func gossipState(s gossip.State) view.GossipState {
	switch s {
	case gossip.Alive:
		return view.GossipAlive
	case gossip.Dead:
		return view.GossipDead
	}
	return view.GossipUnknown
}

// forget drops the processes that are silent and that gossip knows to be gone, and
// has what a silent sibling admits read from the store that it shares with us.
func (l *Lookout) forget(processes []view.Process, now time.Duration) {
	for i := range processes {
		p := &processes[i]
		silent := now-p.Heard > view.SilentAfter
		if silent && p.Gossip == view.GossipDead {
			l.o.Mesh.Forget(p.Region, p.Instance, p.Boot)
		}
		if silent && p.Gossip == view.GossipAlive && p.Region == l.o.Self.Region && l.o.Reread != nil {
			l.o.Reread()
		}
	}
}

// count is how many processes of our region are there now, ours included. Two lives of
// an instance are one: gossip knows of the second before the bus has missed the first.
func (l *Lookout) count(processes []view.Process, now time.Duration) int64 {
	there := map[string]bool{l.o.Self.Instance: true}
	for i := range processes {
		p := &processes[i]
		alive := p.Gossip == view.GossipAlive || p.Heard > 0 && now-p.Heard <= view.SilentAfter
		if p.Region == l.o.Self.Region && alive && !p.Leaving {
			there[p.Instance] = true
		}
	}
	return int64(len(there))
}

// Processes is among how many a decision without the store is divided.
func (l *Lookout) Processes() int64 { return max(l.o.Processes, l.siblings.most()) }

// sees puts a view in force and tells what changed.
func (l *Lookout) sees(v *view.View, events []view.Event) {
	before := l.last.Swap(v)
	l.o.Ceilings.See(v)
	for _, e := range events {
		l.tell(e)
	}
	if before != nil && !slices.Equal(before.Advertised(), v.Advertised()) {
		l.o.Mesh.HeartbeatSoon()
	}
}

func (l *Lookout) tell(e view.Event) {
	if l.o.Told != nil {
		l.o.Told(e)
	}
	level := slog.LevelInfo
	if e.Kind == view.Frozen || e.Kind == view.ModeChanged && e.Reason != quota.ReasonNone && l.begun {
		level = slog.LevelWarn
	}
	l.begun = true
	l.o.Logger.Log(context.Background(), level, e.Text, "kind", e.Kind.String(), "region", e.Region, "from", e.From, "to", e.To, "reason", e.Reason.String())
	if e.Kind == view.Frozen {
		l.o.Mesh.Resync()
	}
}

// peakFor is how long a count of processes is remembered: one that is restarted,
// or cut off for a while, still decides by itself.
const peakFor = 10 * time.Minute

// peak is the largest count lately. Safe for concurrent use.
type peak struct {
	mu     sync.Mutex
	counts []countAt // falling counts, each the largest since it was seen last
}

type countAt struct {
	at    time.Duration
	count int64
}

func (p *peak) note(now time.Duration, count int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.counts) > 0 && p.counts[len(p.counts)-1].count <= count {
		p.counts = p.counts[:len(p.counts)-1]
	}
	p.counts = append(p.counts, countAt{now, count})
	for now-p.counts[0].at > peakFor {
		p.counts = p.counts[1:]
	}
}

func (p *peak) most() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.counts) == 0 {
		return 1
	}
	return p.counts[0].count
}
