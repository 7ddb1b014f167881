package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	// PeerAlarm is how far a region's clock may be from ours before people are
	// told: sums of global limits survive that, logs and tokens often do not.
	PeerAlarm = time.Second
	// peerSilence is how long a peer may be unheard before its offset is no longer
	// shown as a metric: a line that stands still looks like a clock that does.
	peerSilence = time.Minute
	// maxPeers bounds what is kept; a topology has a handful.
	maxPeers = 256
)

// PeerOptions are what PeerOffsets needs; all of them have defaults.
type PeerOptions struct {
	// Now is the local monotonic clock, from any origin; nil means the time since
	// NewPeerOffsets.
	Now func() time.Duration
	// Logger hears when a peer's clock goes astray and when it is back; nil means
	// nobody does.
	Logger *slog.Logger
	// Meter makes the instrument, which shows peers as long as the meter's
	// provider lives; nil means there is none.
	Meter metric.Meter
}

// PeerOffset is what is known of one peer region's clock.
type PeerOffset struct {
	Peer        string
	Offset      time.Duration // the peer's TIME − ours
	Uncertainty time.Duration // the truth is within this of Offset, either way
	Samples     int           // exchanges that this rests on, 1–8
	Age         time.Duration // since the last exchange
	Alarm       bool          // certainly further than PeerAlarm, or not certainly back yet
}

// PeerOffsets knows how far the clocks of other regions are from ours. It is for
// display and alarm only: an estimate of a peer's usage needs no more than the
// TIME in the peer's own messages. Safe for concurrent use; nothing waits.
type PeerOffsets struct {
	now func() time.Duration
	log *slog.Logger

	mu    sync.Mutex
	peers map[string]*peer
}

type peer struct {
	window peerWindow
	alarm  bool
}

// NewPeerOffsets returns PeerOffsets that know nobody.
func NewPeerOffsets(o PeerOptions) (*PeerOffsets, error) {
	fillIn(&o.Now, &o.Logger, &o.Meter)
	p := &PeerOffsets{now: o.Now, log: o.Logger, peers: map[string]*peer{}}
	gauge, err := o.Meter.Float64ObservableGauge("regiond.clock.peer_offset", metric.WithUnit("s"),
		metric.WithDescription("A peer region's clock minus ours, while the peer is heard; for display, nothing decides on it."))
	if err != nil {
		return nil, fmt.Errorf("clock metrics: %w", err)
	}
	if _, err := o.Meter.RegisterCallback(p.gauge(gauge), gauge); err != nil {
		return nil, fmt.Errorf("register clock metrics: %w", err)
	}
	return p, nil
}

// Observe takes in one exchange with a peer region: t1 and t4 are our store's
// TIME when we asked and when the answer came, t2 and t3 the peer's store's TIME
// when the question came and when it answered, all in µs since the epoch. An
// error says why these cannot be an exchange; it then changes nothing.
//
// For example, asked at 0 ms, received there at 140, answered at 150, back at 90:
// the peer is ahead by at least 150 − 90 = 60 ms and at most 140 − 0, which makes
// 100 ± 40.
func (p *PeerOffsets) Observe(name string, t1, t2, t3, t4 int64) error {
	e := exchange{T1: t1, T2: t2, T3: t3, T4: t4}
	allowed, err := e.offsets()
	if err != nil {
		return fmt.Errorf("exchange with %.64q: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.peers[name]
	if one == nil {
		if len(p.peers) >= maxPeers {
			return errors.New("exchange with one peer too many")
		}
		one = &peer{}
		p.peers[name] = one
	}
	now := p.now()
	one.window.add(evidence{at: now, possible: allowed})
	p.judge(name, one, now)
	return nil
}

// judge raises the alarm when a clock is certainly too far away, and ends it
// when it certainly is not: in between nothing is said, so that no threshold is
// crossed twice a second.
func (p *PeerOffsets) judge(name string, one *peer, now time.Duration) {
	known, _ := one.window.known(now)
	offset, within := known.middle(), known.halfWidth()
	attrs := []any{slog.String("peer", name), slog.Duration("offset", offset), slog.Duration("uncertainty", within)}
	switch {
	case !one.alarm && offset.Abs()-within > PeerAlarm:
		one.alarm = true
		p.log.Warn("a peer region's clock is far from ours: look at time synchronisation on both Redis hosts", attrs...)
	case one.alarm && offset.Abs()+within <= PeerAlarm:
		one.alarm = false
		p.log.Info("a peer region's clock is near ours again", attrs...)
	}
}

// Peers returns what is known now, by name.
func (p *PeerOffsets) Peers() []PeerOffset {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	all := make([]PeerOffset, 0, len(p.peers))
	for name, one := range p.peers {
		known, samples := one.window.known(now)
		all = append(all, PeerOffset{
			Peer: name, Offset: known.middle(), Uncertainty: known.halfWidth(), Samples: samples,
			Age: max(0, now-one.window.newest().at), Alarm: one.alarm,
		})
	}
	slices.SortFunc(all, func(a, b PeerOffset) int { return strings.Compare(a.Peer, b.Peer) })
	return all
}

func (p *PeerOffsets) gauge(g metric.Float64Observable) metric.Callback {
	return func(_ context.Context, o metric.Observer) error {
		for _, one := range p.Peers() {
			if one.Age <= peerSilence {
				o.ObserveFloat64(g, one.Offset.Seconds(), metric.WithAttributes(attribute.String("region", one.Peer)))
			}
		}
		return nil
	}
}
