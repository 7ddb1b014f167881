package clock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

const (
	// PeerAlarm is how far a region's clock may be from ours before it is logged: sums
	// of global limits survive that, logs and tokens often do not.
	PeerAlarm = time.Second
	// peerSilence is the age of a peer's last exchange from which on its offset is not
	// shown as a metric: a constant line would look like a stable clock.
	peerSilence = time.Minute
	// maxPeers bounds memory; a topology has a handful of regions.
	maxPeers = 256
	// windowSize is the number of exchanges that an offset rests on. The effect of any
	// change of a clock, however small, is gone after as many.
	windowSize = 8
)

// PeerOptions are what PeerOffsets needs; all of them have defaults.
type PeerOptions struct {
	// Now is the local monotonic clock, from any origin; nil means the time since
	// NewPeerOffsets.
	Now func() time.Duration
	// Logger receives the beginning and the end of each peer's alarm; nil discards
	// them.
	Logger *slog.Logger
	// Meter makes the gauge, which lives as long as the meter's provider; nil means
	// there is none.
	Meter metric.Meter
}

// PeerOffset is what is known of one peer region's clock.
type PeerOffset struct {
	Peer        string
	Offset      time.Duration // the peer's TIME − ours
	Uncertainty time.Duration // error bound of Offset, either way
	Age         time.Duration // since the last exchange
	Alarm       bool          // certainly further than PeerAlarm, or not certainly back yet
}

// PeerOffsets estimates how far the clocks of other regions are from ours. It is for
// display and alarms only: an estimate of a peer's usage needs no more than the
// TIME in the peer's own messages. Safe for concurrent use; nothing waits.
type PeerOffsets struct {
	now func() time.Duration
	log *slog.Logger

	mu    sync.Mutex
	peers map[string]*peer
}

type peer struct {
	window window
	alarm  bool
}

// NewPeerOffsets returns PeerOffsets without peers.
func NewPeerOffsets(o PeerOptions) (*PeerOffsets, error) {
	setDefaults(&o.Now, &o.Logger)
	p := &PeerOffsets{now: o.Now, log: o.Logger, peers: map[string]*peer{}}
	i := instruments.On(o.Meter)
	i.Gauge("regiond.clock.peer_offset", "s",
		"A peer region's clock minus ours, while its messages arrive; for display, nothing decides on it.",
		func(observe instruments.Observe) {
			for _, one := range p.Peers() {
				if one.Age <= peerSilence {
					observe(one.Offset.Seconds(), "region", one.Peer)
				}
			}
		})
	return p, i.Err()
}

// Observe adds an exchange with a peer region: t1 and t4 are our store's TIME when
// the request was sent and the response received, t2 and t3 the peer's store's TIME
// when it received the request and sent the response, all in µs since the epoch. An
// error says why these are no valid exchange; nothing changes then.
//
// For example, sent at 0 ms, received there at 140, answered at 150, back at 90: the
// peer is ahead by at least 150 − 90 = 60 ms and at most 140 − 0, so by 100 ± 40.
func (p *PeerOffsets) Observe(name string, t1, t2, t3, t4 int64) error {
	allowed, err := exchangeOffsets(t1, t2, t3, t4)
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
	one.window.add(exchange{at: now, possible: allowed})
	p.updateAlarm(name, one, now)
	return nil
}

// updateAlarm raises the alarm when a clock is certainly too far away, and clears it
// when it certainly is not. In between nothing changes, so noise does not toggle it.
func (p *PeerOffsets) updateAlarm(name string, one *peer, now time.Duration) {
	known := one.window.known(now)
	offset, within := known.middle(), known.halfWidth()
	attrs := []any{slog.String("peer", name), slog.Duration("offset", offset), slog.Duration("uncertainty", within)}
	switch {
	case !one.alarm && offset.Abs()-within > PeerAlarm:
		one.alarm = true
		p.log.Warn("a peer region's clock is far from ours: check time synchronization on both Redis hosts", attrs...)
	case one.alarm && offset.Abs()+within <= PeerAlarm:
		one.alarm = false
		p.log.Info("a peer region's clock is close to ours again", attrs...)
	}
}

// Peers returns what is known now, sorted by name.
func (p *PeerOffsets) Peers() []PeerOffset {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	all := make([]PeerOffset, 0, len(p.peers))
	for name, one := range p.peers {
		known := one.window.known(now)
		all = append(all, PeerOffset{
			Peer: name, Offset: known.middle(), Uncertainty: known.halfWidth(),
			Age: max(0, now-one.window.newest().at), Alarm: one.alarm,
		})
	}
	slices.SortFunc(all, func(a, b PeerOffset) int { return strings.Compare(a.Peer, b.Peer) })
	return all
}

// exchangeOffsets returns the offsets of the peer's clock that one exchange leaves
// possible at its end, widened by the resolution of both clocks and their drift
// between t1 and t4:
//
//	peer's store      t2 ──── t3
//	                 ╱          ╲
//	our store      t1            t4
//
// However the delay is divided, neither way took less than nothing: the peer's clock
// is ahead of ours by at least t3 − t4 and at most t2 − t1. The middle of the two is
// the usual ((t2−t1) + (t3−t4)) / 2, and half their distance half the delay.
func exchangeOffsets(t1, t2, t3, t4 int64) (interval, error) {
	for _, t := range []int64{t1, t2, t3, t4} {
		if t < 0 || t > latestUS {
			return interval{}, fmt.Errorf("TIME must be between the years 1970 and 2112, is %d µs", t)
		}
	}
	if t4 < t1 || t3 < t2 {
		return interval{}, errors.New("a clock went back during it")
	}
	i := interval{lo: time.Duration(t3-t4) * resolution, hi: time.Duration(t2-t1) * resolution}
	i = i.widened(resolution + peerDrift(time.Duration(t4-t1)*resolution))
	if i.lo >= i.hi {
		return interval{}, fmt.Errorf("the peer took %d µs to answer, but the whole exchange only %d", t3-t2, t4-t1)
	}
	return i, nil
}

// peerDrift is how far two stores' clocks may drift apart in d: each may drift from
// ours by MaxDriftPPM.
func peerDrift(d time.Duration) time.Duration { return drifted(d, 2*MaxDriftPPM) }

// exchange is the result of one, as a window keeps it.
type exchange struct {
	at       time.Duration // its end, on the local monotonic clock
	possible interval
}

// window is a ring of the last exchanges with one peer.
type window struct {
	ring [windowSize]exchange
	n    int // exchanges so far
}

// add appends an exchange. If it contradicts those before, a clock was moved, and
// they are dropped.
func (w *window) add(e exchange) {
	if w.n > 0 {
		e.at = max(e.at, w.newest().at) // two that arrived at once may be out of order
		if !w.known(e.at).overlaps(e.possible) {
			w.n = 0
		}
	}
	w.ring[w.n%windowSize] = e
	w.n++
}

// newest is the last exchange; there must be one.
func (w *window) newest() exchange { return w.ring[(w.n-1)%windowSize] }

// known is what all exchanges in the window leave possible now; there must be one.
// Quick ones count for more than slow ones without further ado. All of them overlap:
// add compared each with all before it, and time only widens.
func (w *window) known(now time.Duration) interval {
	last := w.newest()
	known := last.possible.widened(peerDrift(max(0, now-last.at)))
	for back := 2; back <= min(w.n, windowSize); back++ {
		e := w.ring[(w.n-back)%windowSize]
		known = known.and(e.possible.widened(peerDrift(max(0, now-e.at))))
	}
	return known
}
