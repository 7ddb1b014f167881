package sync

import (
	"context"
	"fmt"
	"time"

	"github.com/regiond/regiond/quota"
)

const (
	// TickEvery is how long an ordinary change waits at most before it is published.
	TickEvery = 100 * time.Millisecond
	// HeartbeatEvery is the longest time between two beats of a process.
	HeartbeatEvery = 500 * time.Millisecond
	// SilentAfter is the silence from which on a process is taken for away: one beat
	// may be lost and the next be 300 ms late.
	SilentAfter = 1300 * time.Millisecond
	// ForgetAfter is the silence after which a process is not even missed any more.
	ForgetAfter = 5 * time.Minute

	urgentEvery = 10 * time.Millisecond // at most one urgent message in that time
	beatGap     = 20 * time.Millisecond // beats asked for by Beat keep this distance
	lateTick    = time.Second           // a tick this late is worth a line in the log

	// catchUpEvery is the least time between two catchings-up. A reader that is too slow
	// misses something with nearly each message that it takes; whatever it said in
	// return each time would only make it and everybody else slower.
	catchUpEvery = time.Second
)

// Mesh is one process's voice and ear between regions: it publishes the totals
// that changed, beats, acknowledgements and digests, folds what it hears, and knows
// every other process. It decides nothing about limits.
//
// Run owns all of it, or whoever takes its steps instead. Beat, Peers, Changed, Conflict, Resync, Forget and Left may be
// called from anywhere and never wait for the bus.
type Mesh struct {
	o       Options
	metrics *metrics
	roster  roster
	changed chan struct{}
	beatNow chan struct{} // HeartbeatSoon was called
	again   chan struct{} // digests are to be asked for again

	// Below here only the goroutine of Run, or of the steps, reads and writes.
	outbox   outbox
	asks     asks
	answers  answers
	refusals refusals
	started  time.Duration
	settled  bool // SilentAfter has passed since
	owed     bool // some digest or echo is, as of the last look
	lastBeat time.Duration
	lastTick time.Duration
	caughtUp time.Duration // when catchUp was last; 0: never
	due      dues
}

// New returns a Mesh that Run will bring to life.
func New(o Options) (*Mesh, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	ms, err := newMetrics(o.Meter)
	if err != nil {
		return nil, fmt.Errorf("mesh metrics: %w", err)
	}
	return &Mesh{
		o: o, metrics: ms, roster: newRoster(o.Self),
		changed: make(chan struct{}, 1), beatNow: make(chan struct{}, 1), again: make(chan struct{}, 1),
		asks: asks{}, refusals: refusals{},
	}, nil
}

// Run carries messages until ctx ends. Then it publishes what has not been
// published, says that it leaves, and returns nil. The bus must outlive it.
//
// It is a rim around the steps of step.go, which say what happens and when.
func (m *Mesh) Run(ctx context.Context) error {
	unregister, err := m.metrics.observe(m.ages)
	if err != nil {
		return fmt.Errorf("mesh metrics: %w", err)
	}
	defer unregister()
	timer := time.NewTimer(0)
	defer timer.Stop()
	m.Begin()
	for armed := never; ; {
		if due := m.Due(); due != armed {
			armed = due
			timer.Reset(due - m.o.Now())
		}
		select {
		case <-ctx.Done():
			m.Leave()
			return nil
		case msg := <-m.o.Bus.Messages():
			m.Receive(msg)
		case <-m.o.Bus.Gaps():
			m.Reconnected()
		case <-m.o.Bus.Drops():
			m.Missed()
		case <-m.o.Counters.Urgent():
			m.urgent()
		case <-m.beatNow:
			m.beatSoon()
		case <-m.again:
			m.askAll()
		case <-timer.C:
			m.Advance()
			armed = never
		}
	}
}

// tick is the work of every 100 ms.
func (m *Mesh) tick() {
	now := m.o.Now()
	if late := now - m.lastTick - TickEvery; late > lateTick {
		m.o.Logger.Warn("the mesh's tick came late: this process stood still or is overloaded", "late", late)
	}
	m.lastTick = now
	m.o.Counters.Sweep()
	if gone := m.roster.forgetSilent(now, m.o.Known); gone > 0 {
		m.signal()
	}
	if m.publishChanges(now) {
		m.rollOn(now)
	}
	m.settle(now)
	m.askDue(now)
}

// Beat has a beat sent soon, because what View says has changed. It never blocks;
// beats so asked for are at least 20 ms apart.
func (m *Mesh) HeartbeatSoon() { signal(m.beatNow) }

// Changed has something in it after something that a view depends on has changed:
// a process came, left, was lost or was digested, or its beat says something else.
// It holds at most one. Silence does not signal: it is read off Peer.ReceivedAt.
func (m *Mesh) Changed() <-chan struct{} { return m.changed }

// Peers returns what is known of every other process, siblings too, sorted by
// region, instance and boot. The slices in it are shared and must not be changed.
func (m *Mesh) Peers() []Peer { return m.roster.list() }

// Conflict returns another process that bears our region and instance, was started
// before us and was heard within SilentAfter. We are the second then, and stay
// silent: peers would take us for it, and drop what it says.
func (m *Mesh) Duplicate() (quota.Process, bool) { return m.roster.conflict(m.o.Now()) }

// Resync forgets every digest and count of beats and asks for digests again. It
// is for a process that finds it stood still.
func (m *Mesh) Resync() {
	m.roster.distrust()
	signal(m.again)
}

// Forget drops a process that is known to have left or died and that the bus has
// not heard for SilentAfter either. It reports whether it did.
func (m *Mesh) Forget(region, instance string, boot int64) bool {
	p := quota.Process{Region: region, Instance: instance, Boot: boot}
	if !m.roster.forget(p, m.o.Now()) {
		return false
	}
	m.signal()
	return true
}

// Left reports whether a process has said that it leaves. It is in Peers no more,
// and whoever else tells of it, later, tells of what is over.
func (m *Mesh) Left(region, instance string, boot int64) bool {
	return m.roster.left(quota.Process{Region: region, Instance: instance, Boot: boot})
}

func (m *Mesh) signal() { signal(m.changed) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
