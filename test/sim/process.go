package sim

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// process is one regiond without its servers: what internal/daemon joins, joined the same way,
// with the world's events in place of its goroutines.
type process struct {
	region    *simRegion
	self      quota.Process
	number    int // over all of the world
	born      time.Duration
	bus       port
	ceilings  *view.Ceilings
	mesh      *meshsync.Mesh
	secret    *wire.Secret
	manager   *view.Manager
	recovery  *view.CounterRecovery
	limiter   *limiter.Limiter
	lending   *lending // nil if no limit has a bound
	overrides *overrides
	members   *members.Table

	gone   bool // it was stopped or killed
	frozen bool
	inbox  []*message // that came while it was frozen

	woken    time.Duration // when its next wake is queued for; never: none is
	look     time.Duration // when the view is refreshed next
	readable time.Duration // from when on counters may be read again
	known    knowledge     // the judge's
}

const never = time.Duration(1<<63 - 1)

// store is the region's, as this process sees it.
func (p *process) store() store.Store {
	if p.lending != nil {
		return p.lending
	}
	return &p.region.store
}

// timeUS is the region's store clock as this process tracks it.
func (p *process) timeUS() int64 {
	if d := p.lending; d != nil {
		if r := d.fenced.Clock.Reading(); r.Valid {
			return r.NowUS
		}
	}
	return p.region.timeUS()
}

// now is the process's monotonic clock.
func (p *process) now() time.Duration { return p.region.w.now - p.born }

// hostUS is the clock of the process's host: it shows true time, less what is left after its synchronisation.
func (p *process) hostUS() int64 {
	return startUS + p.region.w.now.Microseconds() + int64(p.number%5-2)*hostsApartUS
}

// hostsApartUS is by how much the clocks of hosts differ, at most four times.
const hostsApartUS = 2500

// start has a process serve a region from now on.
func (s *simRegion) start(instance string) *process {
	w := s.w
	w.started++
	p := &process{
		region: s, number: w.started, born: w.now, woken: never,
		self: quota.Process{Region: s.name, Instance: instance, Boot: startUS + w.now.Microseconds() + int64(w.started)},
	}
	p.members = members.New(p.self)
	p.bus = port{p: p, newest: map[*process]time.Duration{}, late: map[*process]time.Duration{}, deaf: map[*simRegion]bool{}}
	if w.bound != nil {
		p.lending = newLending(p)
	}
	if err := p.open(); err != nil {
		panic("sim: " + err.Error()) // the world's own mistake
	}
	s.processes = append(s.processes, p)
	w.processes = append(w.processes, p)
	w.gossip.joined(p)
	if w.judge != nil {
		w.judge.started(p)
	}
	p.mesh.Begin()
	if p.lending != nil {
		_ = p.lending.state.Adopt(context.Background(), s.topology) // a store that is away is asked again
	}
	p.readable = w.now + p.recovery.Recover(context.Background())
	p.settle()
	return p
}

// open makes the parts and joins them, as internal/daemon does.
func (p *process) open() (err error) {
	s, w := p.region, p.region.w
	o := view.CeilingOptions{
		Self: p.self, Now: p.now, TimeUS: p.timeUS, Key: w.key, Topology: s.topology, Ledger: ledger.Options{MaxSeries: w.o.MaxSeries},
	}
	var durable view.RegionState
	if d := p.lending; d != nil {
		if err = d.open(); err != nil {
			return err
		}
		o.Store, o.Window, o.Ledger.Lost, durable = d.state.Store, d.state.Window, d.state.Lose, d.state
	}
	if p.ceilings, err = view.NewCeilings(o); err != nil {
		return err
	}
	p.recovery = view.NewCounterRecovery(s.store.read, p.ceilings, w.log)
	if p.secret, err = wire.NewSecret(nil, "sim"); err != nil {
		return err
	}
	if p.mesh, err = meshsync.New(meshsync.Options{
		Members: p.members, Key: w.key, Secret: p.secret, Bus: &p.bus, Counters: p.ceilings.Ledger(), Now: p.now, TimeUS: p.timeUS,
		Regions: func() []string { return regionNames(s.topology) },
		View:    p.ceilings.Advertised,
		Logger:  w.log, Meter: noop.Meter{},
	}); err != nil {
		return err
	}
	if d := p.lending; d != nil {
		p.ceilings.Bind(d.tender.Asked, nil)
		p.mesh.SetReceivers(meshsync.Receivers{Loans: d.receive})
	}
	p.manager = view.NewManager(view.ManagerOptions{
		Ceilings: p.ceilings, Members: p.members, HeartbeatSoon: p.mesh.HeartbeatSoon, State: durable,
		Recover: p.recovery.Request, Logger: w.log,
	})
	lo := limiter.Options{
		Store: p.store(), Config: p.enforced(), Logger: w.log, Seal: w.seal,
		Now: func() time.Time { return time.UnixMicro(startUS).Add(w.now) },
	}
	if p.overrides = (&overrides{p: p, known: map[string]*quota.Override{}}); w.overridden {
		lo.Overrides = p.overrides
	}
	p.limiter, err = limiter.New(lo)
	return err
}

func (p *process) enforced() limiter.Config {
	var g limiter.Global = p.ceilings
	if p.region.w.perfect != nil {
		g = perfect{p.ceilings, p}
	}
	return daemon.LimiterConfig(p.region.topology, p.region.name, g, p.manager.Processes)
}

func regionNames(t *region.Topology) []string {
	names := make([]string, len(t.Regions))
	for i := range t.Regions {
		names[i] = t.Regions[i].Name
	}
	return names
}

// settle has the process do all that is due, and queues its next wake.
func (p *process) settle() {
	if p.gone || p.frozen {
		return
	}
	w := p.region.w
	due := never
	if p.lending != nil {
		p.lending.advance()
		due = p.lending.due()
	}
	for {
		p.mesh.Advance()
		if !p.called() && p.look > w.now {
			break
		}
		p.manager.Refresh()
		p.look = p.nextLook()
		if w.judge != nil {
			w.judge.looked(p)
		}
	}
	if w.now >= p.readable && p.recovery.Requested() {
		p.readable = w.now + p.recovery.Recover(context.Background())
		p.mesh.Advance()
	}
	p.wake(min(p.born+p.mesh.Due(), p.look, due))
}

// called takes the signal that the view may change.
func (p *process) called() bool {
	return signal.Taken(p.members.Changed())
}

// wake queues the next wake, unless one is queued that comes no later.
func (p *process) wake(at time.Duration) {
	if at >= p.woken {
		return
	}
	p.woken = at
	p.region.w.queue.add(event{at: at, kind: kindWake, p: p})
}

// receive takes a message off the bus.
func (p *process) receive(m *message) {
	switch {
	case p.gone || p.bus.down:
		return
	case p.frozen:
		p.inbox = append(p.inbox, m)
		return
	}
	w := p.region.w
	if w.judge != nil {
		w.judge.delivered(p, m)
	}
	if w.perfect != nil {
		w.perfect.receive(p, m)
	}
	p.mesh.Receive(m.Message)
	p.settle()
}

// nextLook is when the view is refreshed next if nothing changes before: after
// LookEvery, as in the daemon, unless all is well. Then it is when silence would show.
func (p *process) nextLook() time.Duration {
	w, now := p.region.w, p.now()
	if !p.steady() {
		return w.now + view.RefreshEvery
	}
	due := now + view.PausedAfter*4/5
	for _, q := range p.members.Others() {
		for _, at := range []time.Duration{
			q.ReceivedAt + members.SilentAfter, q.AckedAt + members.OneWayAfter, q.MissingSince + members.SilentAfter,
		} {
			if at >= now { // what is past has been seen; at the moment itself it does not show yet
				due = min(due, at)
			}
		}
	}
	return p.born + max(due, now+view.RefreshEvery)
}

// steady reports whether only a message, or silence, can change the view: everybody is
// there, agrees and has been known for long.
func (p *process) steady() bool {
	v := p.ceilings.View()
	if spelled := v.Heartbeat.Weights; spelled != nil || v.Joining || v.Members.Len() < len(v.Regions) {
		return false
	}
	for i := range v.Peers {
		for j := range v.Peers[i].Processes {
			switch q := &v.Peers[i].Processes[j]; {
			case q.State == members.StateDead, q.State == members.StateLeft:
			case q.State != members.StateFresh || q.Newcomer:
				return false
			}
		}
	}
	return true
}
