package store

import (
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
)

const (
	// unseen is by how much a clock may step back and nothing follows: loan.Terms.Slack makes up for it.
	unseen = 50 * time.Millisecond
	// watchFor is how long an answer shows something of the clock: a loan held then is over after it.
	watchFor = 30 * time.Second
)

// Watch knows how far a server's clock must have come, by what it has shown in the epoch in force. Under a clock that
// has stepped back a bound is closed until another epoch begins, or the clock has caught up: loans held would be used
// for too long. Safe for concurrent use.
type Watch struct {
	mu            sync.Mutex
	epoch, former uint32
	us            int64         // TIME, of an answer that came
	at            time.Duration // then, by the monotonic clock of this process
}

// Bound is b as it may be used now, at a time before it is sent: not under a TIME before that which must have come.
func (w *Watch) Bound(b quota.Bound, now time.Duration) quota.Bound {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b.Epoch {
	case 0, w.former: // it is closed, or answered by a server that goes by another
	case w.epoch:
		if w.us > 0 && now-w.at <= watchFor {
			b.OpenFromUS = max(b.OpenFromUS, w.least(now)-unseen.Microseconds())
		}
	default:
		w.epoch, w.former, w.us = b.Epoch, w.epoch, 0
	}
	return b
}

// Saw takes in the TIME of an answer under a bound's epoch that has come by now.
func (w *Watch) Saw(epoch uint32, us int64, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch == w.epoch && (w.us == 0 || now-w.at > watchFor || us > w.least(now)) {
		w.us, w.at = us, now
	}
}

// least is where the clock is at least, if it has not stepped: a thousandth is more than clocks differ in pace.
func (w *Watch) least(now time.Duration) int64 {
	return w.us + ((now - w.at) * 999 / 1000).Microseconds()
}
