package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is one process's membership. New binds, Run does everything else.
type Gossip struct {
	options   Options
	metrics   *metrics
	journal   *journal
	link      *link
	roster    *roster
	conflicts *conflicts
	drift     drift

	list   atomic.Pointer[memberlist.Memberlist] // nil before Run and after it
	began  atomic.Bool                           // Run or Close was called
	update chan struct{}
}

// New binds the address, so that a port in use is said at once; nothing runs.
// Its error lists every option that is wrong. Either Run or Close must follow.
func New(o Options) (*Gossip, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("gossip options: %w", err)
	}
	m, err := newMetrics(o.Meter)
	if err != nil {
		return nil, fmt.Errorf("gossip metrics: %w", err)
	}
	g := &Gossip{
		options: o, metrics: m, journal: newJournal(o.Logger, m),
		roster: newRoster(o.name(), o.Regions, m), update: make(chan struct{}, 1),
	}
	if g.link, err = newLink(&g.options, slog.New(g.journal)); err != nil {
		return nil, err
	}
	g.conflicts = &conflicts{
		self: Member{Region: o.Region, Instance: o.Instance, Boot: o.Boot}, metrics: m,
		wake: g.roster.wake, quarrels: map[string]bool{},
	}
	return g, nil
}

// Addr is host:port at which others find this process: what is bound, or what
// Advertise says, with the port filled in.
func (g *Gossip) Addr() string {
	if g.options.Advertise == "" || g.options.Transport != nil {
		return g.link.bound
	}
	host, port, _ := splitAddress(g.options.Advertise) // New has checked it
	if port == 0 {
		_, port, _ = splitAddress(g.link.bound)
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// Members returns everybody known: this process, those alive, and for ten
// minutes those who died or left; by region and instance. The slice is the
// caller's. It is empty before Run.
func (g *Gossip) Members() []Member { return g.roster.all() }

// Changed signals that Members has changed since it was last read from: a
// channel of capacity one, for one reader.
func (g *Gossip) Changed() <-chan struct{} { return g.roster.changed }

// Update has ConfigHash asked again and its answer told to the others, soon. It
// never waits.
func (g *Gossip) Update() { signal(g.update) }

// Conflict returns the process that had our region and instance name before us
// and answers to it. While there is one the others refuse us, and we should not
// be ready. It ends within 15 s after the other has gone.
func (g *Gossip) Conflict() (Member, bool) { return g.conflicts.current(time.Now()) }

// Drift reports that the processes alive differ in their configuration: since
// when this process has seen it, and who has which, by hash and sorted. It is an
// alarm once it has lasted DriftAlarm.
func (g *Gossip) Drift() (since time.Time, hashes map[string][]string, ok bool) {
	return g.drift.current()
}

// Close lets go of what New has bound, for a Gossip that will not run. Run does
// so itself.
func (g *Gossip) Close() error {
	if g.began.Swap(true) {
		return nil
	}
	return g.link.closeUnused()
}

// Run joins the others, stays with them and calls again whoever is missing,
// until ctx ends; then it says goodbye, within half a second, and closes what New
// has bound. That ctx ended is no error. A few of the library's goroutines
// end a little later, by themselves: when the probe or exchange that they are in
// times out.
func (g *Gossip) Run(ctx context.Context) error {
	if g.began.Swap(true) {
		return errors.New("gossip runs once: it was started or closed before")
	}
	if !g.resolveOwn(ctx) {
		return g.link.closeUnused()
	}
	if g.options.Key == nil && !g.link.ip.IsLoopback() {
		g.options.Logger.Warn("gossip is in the clear: whoever reaches its port can invent members; set a key_file",
			slog.String("addr", g.Addr()))
	}
	ml, err := memberlist.Create(g.config())
	if err != nil {
		return errors.Join(fmt.Errorf("start gossip: %w", err), g.link.closeUnused())
	}
	g.list.Store(ml)
	c := newCaller(g.roster, g.metrics, g.options.Logger, func(addr string) error {
		_, err := ml.Join([]string{addr})
		if first := errors.Unwrap(err); first != nil {
			return first // of a list of one
		}
		return err
	})
	unregister, err := g.metrics.observe(g)
	if err == nil {
		g.loop(ctx, ml, c)
		unregister()
	}
	g.sayGoodbye(ml)
	g.list.Store(nil)
	g.link.hangUp() // or a call would be waited for until it times out
	err = errors.Join(err, ml.Shutdown())
	c.wait()
	return err
}

// resolveOwn works out the address to advertise, for as long as it takes: names
// may not resolve yet when a machine starts. It reports false when ctx ended.
func (g *Gossip) resolveOwn(ctx context.Context) bool {
	for first := true; ; first = false {
		err := g.link.advertise(ctx, g.options.Advertise)
		if err == nil {
			g.conflicts.at(g.link.address())
			return true
		}
		if first && ctx.Err() == nil {
			g.options.Logger.Warn("own gossip address cannot be resolved: nobody will see this process until it can",
				slog.String("advertise", g.options.Advertise), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(RejoinInterval):
		}
	}
}

// loop is all that happens between joining and leaving.
func (g *Gossip) loop(ctx context.Context, ml *memberlist.Memberlist, c *caller) {
	chores := time.NewTicker(housekeeping)
	defer chores.Stop()
	call := time.NewTimer(0)
	defer call.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.update:
			_ = ml.UpdateNode(updateTimeout) // not told in time: the next exchange tells it
		case <-call.C:
			c.round(ctx, g.options.Seeds(), g.conflicts.contested(time.Now()))
			call.Reset(pause(rand.N[time.Duration]))
		case <-chores.C:
		case <-g.roster.wake:
		}
		g.keepHouse(ctx, ml)
	}
}

// keepHouse does what news or the time ask for.
func (g *Gossip) keepHouse(ctx context.Context, ml *memberlist.Memberlist) {
	log, now := g.options.Logger, time.Now()
	for _, m := range g.roster.takeNews() {
		logNews(log, m)
	}
	g.roster.forget(now)
	g.drift.observe(now, g.roster.all(), log)
	g.conflicts.report(now, log)
	g.conflicts.call(ctx, ml, log)
}

func logNews(log *slog.Logger, m Member) {
	attrs := []any{slog.String("member", m.Name()), slog.String("addr", m.Addr)}
	switch {
	case m.Self:
	case m.State == Alive:
		log.Info("process is alive", append(attrs, slog.String("version", m.Version), slog.String("config", m.ConfigHash))...)
	case m.State == Left:
		log.Info("process has left as planned", attrs...)
	case m.State == Dead:
		log.Warn("process is dead: it stopped answering", attrs...)
	}
}

// self is what the library asks us about ourselves.
type self struct{ g *Gossip }

// NodeMeta returns our metadata; the library panics above limit.
func (s self) NodeMeta(int) []byte {
	o := &s.g.options
	return meta{boot: o.Boot, configHash: o.ConfigHash(), version: o.Version}.encode()
}

// NotifyMsg takes the only message there is: usage does not travel by gossip.
func (s self) NotifyMsg(b []byte) {
	m, err := decodeGoodbye(b)
	if err != nil {
		s.g.metrics.refusedFor("message")
		return
	}
	s.g.roster.left(m)
}

// GetBroadcasts has nothing to add.
func (self) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState has nothing to add.
func (self) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what others add.
func (self) MergeRemoteState([]byte, bool) {}
