package clock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/instruments"
)

const (
	// PeerAlarm is how far a region's clock may be from ours before it is logged: sums
	// of global limits survive that, logs and tokens often do not.
	PeerAlarm = time.Second
	// peerSilence is the age of a peer's last exchange from which on its offset is not
	// shown as a metric: a constant line would look like a stable clock.
	peerSilence = time.Minute
	// peerDriftPPM is how far two stores' clocks drift apart while offsets are remembered: twice what a kernel slews. Where
	// it is more only the newest exchange counts, which shows offsets all the same.
	peerDriftPPM = 1000
)

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
	bounds // between our store's clock and the peer's
	alarm  bool
}

// NewPeerOffsets returns PeerOffsets without peers. The Logger of its options receives the beginning and the end of each
// peer's alarm.
func NewPeerOffsets(o Options) (*PeerOffsets, error) {
	o.setDefaults()
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
		one = &peer{}
		p.peers[name] = one
	}
	one.narrow(max(p.now(), one.at), allowed, within(peerDriftPPM)) // two that arrive at once may be out of order
	p.updateAlarm(name, one)
	return nil
}

// updateAlarm raises the alarm when a clock is certainly too far away, and clears it
// when it certainly is not. In between nothing changes, so noise does not toggle it.
func (p *PeerOffsets) updateAlarm(name string, one *peer) {
	offset, uncertain := one.possible.middle(), one.possible.halfWidth()
	attrs := []any{slog.String("peer", name), slog.Duration("offset", offset), slog.Duration("uncertainty", uncertain)}
	switch {
	case !one.alarm && offset.Abs()-uncertain > PeerAlarm:
		one.alarm = true
		p.log.Warn("a peer region's clock is far from ours: check time synchronization on both Redis hosts", attrs...)
	case one.alarm && offset.Abs()+uncertain <= PeerAlarm:
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
		known := one.after(now, within(peerDriftPPM))
		all = append(all, PeerOffset{
			Peer: name, Offset: known.middle(), Uncertainty: known.halfWidth(),
			Age: max(0, now-one.at), Alarm: one.alarm,
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
	i = i.widened(resolution + drifted(time.Duration(t4-t1)*resolution, peerDriftPPM))
	if i.lo >= i.hi {
		return interval{}, fmt.Errorf("the peer took %d µs to answer, but the whole exchange only %d", t3-t2, t4-t1)
	}
	return i, nil
}
