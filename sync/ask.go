package sync

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// askEvery is the least time between two requests to one region, and how long the
// chunks of a digest may pause before it is asked for again.
const askEvery = time.Second

// asks is what this process wants digests of, by region.
type asks map[string]*asking

type asking struct {
	at     time.Duration // of the newest request; 0: none yet
	wanted bool          // messages may have been missed since
}

// ask asks a region for a digest as soon as askEvery allows. missed means that
// messages were missed; else the reason shows in what is known of its processes.
func (m *Mesh) ask(region string, missed bool) {
	a := m.asks.of(region)
	a.wanted = a.wanted || missed
	m.askDue(m.o.Now())
}

// askAll asks every region that is known.
func (m *Mesh) askAll() {
	for _, region := range m.roster.regions() {
		m.asks.of(region).wanted = true
	}
	m.askDue(m.o.Now())
}

func (as asks) of(region string) *asking {
	a := as[region]
	if a == nil {
		a = &asking{}
		as[region] = a
	}
	return a
}

// askDue sends the requests that are due. Whatever gets lost, the request or a
// chunk, it is asked for again until all is there. While the bus refuses messages
// none is due: a bus may deliver before it takes anything, and what is asked for
// then has to go out with the first message that is taken.
func (m *Mesh) askDue(now time.Duration) {
	m.owed = true
	if m.outbox.down || m.roster.silenced(now) {
		return
	}
	m.owed = false
	wants := m.roster.wants(now)
	for region := range m.asks {
		if _, known := wants[region]; !known {
			delete(m.asks, region)
		}
	}
	for _, region := range slices.Sorted(maps.Keys(wants)) { // the same requests in the same order
		a, w := m.asks.of(region), wants[region]
		if !a.wanted && !w.undigested && !w.unechoed {
			continue
		}
		m.owed = true
		since := a.at
		if !a.wanted {
			since = max(since, w.progress)
		}
		if since == 0 || now-since >= askEvery {
			m.request(region, w.unechoed, a, now)
		}
	}
}

func (m *Mesh) request(region string, echo bool, a *asking, now time.Duration) {
	m.outbox.buf = wire.AppendSnapshotRequest(m.outbox.buf[:0], &wire.SnapshotRequest{From: m.o.Self, OwnState: echo, Missing: m.missing(region, now)})
	span := m.start(context.Background(), trace.SpanKindProducer, "request", SubjectSnapshot+region, nil)
	err := m.o.Bus.Publish(SubjectSnapshot+region, m.outbox.buf, header(span)...)
	concluded(span, err, "bus")
	m.told(kindRequest, err)
	if err != nil {
		a.wanted = true
		return
	}
	a.at, a.wanted = max(now, 1), false
}

// missing lists the regions that we do not hear, but for the one that is asked. It
// may have heard them longer than we did: whoever is counted on by different
// groups one after the other has to hear what the group before has used. Nobody is
// missed who had no time to be heard yet.
func (m *Mesh) missing(asked string, now time.Duration) []string {
	if m.o.Regions == nil || !m.settled {
		return nil
	}
	var names []string
	for _, region := range m.o.Regions() {
		if region != asked && region != m.o.Self.Region && !m.roster.hears(region, now) {
			names = append(names, region)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// settle is the moment from which on who is not heard is missed.
func (m *Mesh) settle(now time.Duration) {
	if m.settled || now-m.started <= SilentAfter {
		return
	}
	m.settled = true
	if len(m.missing("", now)) > 0 {
		m.askAll()
	}
}

// digested notes a chunk of a digest that was folded.
func (m *Mesh) digested(from quota.Process, c wire.Chunk, echo bool, now time.Duration) {
	if !m.roster.chunk(from, c, echo, now) {
		return
	}
	m.metrics.digested(from.Region)
	m.signal()
}

// want is what a region's processes still owe us.
type want struct {
	undigested bool          // a digest of one that is heard is missing
	unechoed   bool          // one that is heard has not handed back our own totals
	progress   time.Duration // when a chunk of it came last
}

// wants is that of every region of which a process is known. The silent are not
// asked: they are once they are heard. An echo is owed by each process: its siblings
// may have started later than what it remembers of us.
func (r *roster) wants(now time.Duration) map[string]want {
	r.mu.Lock()
	defer r.mu.Unlock()
	wants := make(map[string]want, len(r.peers))
	for n, p := range r.peers {
		w := wants[n.region]
		heard := now-p.ReceivedAt <= SilentAfter
		w.undigested = w.undigested || heard && !p.Synced
		w.unechoed = w.unechoed || heard && !p.echoed && n.region != r.self.Region
		w.progress = max(w.progress, p.progress)
		wants[n.region] = w
	}
	return wants
}

// hears reports whether every process of a region that is known was heard lately,
// and there is one.
func (r *roster) hears(region string, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := false
	for n, p := range r.peers {
		if n.region != region {
			continue
		}
		if now-p.ReceivedAt > SilentAfter {
			return false
		}
		known = true
	}
	return known
}

// siblingSilent reports whether a process of our own region is missed.
func (r *roster) siblingSilent(now time.Duration) bool {
	return slices.ContainsFunc(r.list(), func(p Peer) bool {
		return p.Region == r.self.Region && now-p.ReceivedAt > SilentAfter
	})
}
