package sync

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// TickEvery is how long an ordinary change waits at most before it is published.
	TickEvery = 100 * time.Millisecond
	// HeartbeatEvery is the longest time between two heartbeats of a process.
	HeartbeatEvery = 500 * time.Millisecond
	// ForgetAfter is the silence after which a process is forgotten.
	ForgetAfter = 5 * time.Minute

	urgentEvery  = 10 * time.Millisecond // at most one urgent message in that time
	heartbeatGap = 20 * time.Millisecond // least time between those of HeartbeatSoon
	lateTick     = time.Second           // a tick this late is worth a line in the log
)

// Mesh replicates usage counters for one process: it publishes changed counters,
// heartbeats with acknowledgements and snapshots, merges what it receives, and keeps the
// peer table. It decides nothing about limits.
//
// The goroutine of Run owns all of it. HeartbeatSoon, Duplicate and the
// Sends may be called from anywhere and never wait for the bus.
type Mesh struct {
	o       Options
	metrics *metrics
	peers   peerTable
	queue   queue
	secret  atomic.Pointer[wire.Secret] // used by the goroutine of Run

	// Below here only the goroutine of Run, or of the steps, reads and writes.
	outbox        outbox
	requested     uint64 // number of our newest request
	snapshots     snapshots
	receivers     Receivers
	refusals      *loglimit.Rate // lines about refused messages, by region
	started       time.Duration
	lastHeartbeat time.Duration
	lastTick      time.Duration
	due           dues
}

// New returns a Mesh; Run starts it.
func New(o Options) (*Mesh, error) {
	m := &Mesh{
		o: o, peers: peerTable{Table: o.Members}, queue: queue{ready: make(chan struct{}, 1)},
		snapshots: snapshots{pending: map[quota.Process]*wire.SnapshotRequest{}}, refusals: loglimit.NewRate(1, 10*time.Second),
	}
	m.secret.Store(o.Secret)
	var err error
	if m.metrics, err = newMetrics(o.Meter, m.ages); err != nil {
		return nil, fmt.Errorf("mesh metrics: %w", err)
	}
	return m, nil
}

// SetReceivers sets what gets the messages that are not for the Mesh itself, before Run.
func (m *Mesh) SetReceivers(r Receivers) { m.receivers = r }

// SetSecret signs, seals and accepts messages by another Secret from now on, which belongs to
// the Mesh. It may be called from anywhere.
func (m *Mesh) SetSecret(s *wire.Secret) { m.secret.Store(s) }

// Run carries messages until ctx ends. Then it publishes what has not been
// published and that it leaves, and returns nil. The bus must outlive it.
//
// It waits, and calls the steps below.
func (m *Mesh) Run(ctx context.Context) error {
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
		case <-m.o.Counters.Urgent():
			m.urgent()
		case <-m.queue.ready:
			m.publishQueued()
		case <-timer.C:
			m.Advance()
			armed = never
		}
	}
}

func (m *Mesh) tick() {
	now := m.o.Now()
	if late := now - m.lastTick - TickEvery; late > lateTick {
		m.o.Logger.Warn("the mesh's tick came late: this process stood still or is overloaded", "late", late)
	}
	m.lastTick = now
	m.o.Counters.Sweep()
	m.peers.forget(now, m.o.Regions())
	m.publishChanges(now)
	m.publishQueued()
	m.sendRequests(now)
}

// Duplicate returns another process with our region and instance name that started
// before us and was received from within members.SilentAfter. We are the second then, and stay
// silent: peers would take us for it, and drop what it publishes.
func (m *Mesh) Duplicate() (quota.Process, bool) {
	m.peers.Lock()
	defer m.peers.Unlock()
	if m.peers.duplicateAt == 0 || m.o.Now()-m.peers.duplicateAt > members.SilentAfter {
		return quota.Process{}, false
	}
	return m.peers.duplicate, true
}

func (m *Mesh) silenced() bool {
	_, yes := m.Duplicate()
	return yes
}

// The steps of a mesh are what Run does without its goroutine and its timer; the
// simulator calls them in its own time. Begin comes first, Receive for each message,
// Reconnected when the bus is back, and Advance at Due or after any other call or a change
// of the counters.
//
//	Begin ─▶ ┌ Receive, Reconnected ┐ ─▶ Leave
//	         └ Advance, at Due      ┘

// never is later than every due time.
const never = time.Duration(1<<63 - 1)

// dues is when the work that waits for its time is to be done, by Options.Now.
type dues struct {
	tick, heartbeat, urgent, snapshot time.Duration
}

// Begin is the first step.
func (m *Mesh) Begin() {
	m.started = m.o.Now()
	m.lastTick = m.started
	m.due = dues{tick: m.started + TickEvery, heartbeat: m.started, urgent: never, snapshot: never}
}

// Due is when Advance has to be called next, by Options.Now; it may be past.
func (m *Mesh) Due() time.Duration {
	return min(m.due.tick, m.due.heartbeat, m.due.urgent, m.due.snapshot)
}

// Advance does what is due, and what HeartbeatSoon and the counters request.
func (m *Mesh) Advance() {
	if signal.Taken(m.o.Counters.Urgent()) {
		m.urgent()
	}
	if signal.Taken(m.queue.ready) {
		m.publishQueued()
	}
	now := m.o.Now()
	if m.due.tick <= now {
		m.due.tick += TickEvery
		if m.due.tick <= now { // missed ticks are skipped
			m.due.tick = now + TickEvery
		}
		m.tick()
	}
	if m.due.heartbeat <= now {
		m.sendHeartbeat(false)
	}
	if m.due.urgent <= now {
		m.due.urgent = never
		m.urgent()
	}
	if m.due.snapshot <= now {
		m.due.snapshot = never
		m.sendNextChunk()
	}
}

// Leave is the last step: it publishes what is unpublished, and that this process leaves.
func (m *Mesh) Leave() {
	m.publishAll()
	m.publishQueued()
	m.outbox.endSpan(false)
	m.sendHeartbeat(true)
	m.snapshots.abandon()
}

// Reconnected publishes what waits. What the bus has lost shows in the numbers of the next
// messages.
func (m *Mesh) Reconnected() {
	now := m.o.Now()
	m.snapshots.abandon()
	m.snapshotSoon(now)
	m.publishChanges(now)
	m.heartbeatSoon()
}
