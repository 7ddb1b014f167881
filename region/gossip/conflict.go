package gossip

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// A namesake is a process at another address under our name. When one is
// mentioned, nobody knows whether it is alive: after a crash and a new start
// elsewhere, everybody still remembers the old address for some seconds. So it
// is called by its name, directly: only a process of that name answers.
//
//	mentioned ──call──▶ answers, older than we ──▶ Conflict, as long as it answers
//	                └─▶ answers, younger than we ─▶ one warning; it is told the same
//	                └─▶ silent ───────────────────▶ nothing; the name is ours in a while
const (
	// callAgain is how often a namesake is called.
	callAgain = 5 * time.Second
	// callTries bounds one call: packets get lost.
	callTries = 3
	// believed is how long an answer counts, three calls.
	believed = 3 * callAgain
	// mentioned is how long a namesake is called after the last mention.
	mentioned = time.Minute
	// maxQuarrels bounds the names of others that are remembered as contested.
	maxQuarrels = 64
)

// conflicts knows our namesake, if there is one, and logs those of others.
type conflicts struct {
	metrics *metrics
	wake    chan struct{}

	mu       sync.Mutex
	self     Member    // Region, Instance, Boot; Addr once it is known
	other    Member    // under our name, as last mentioned
	seen     time.Time // when it was
	answered time.Time // when it last answered
	called   time.Time
	quarrels map[string]bool // names contested elsewhere: true when not logged yet
}

// at says where we are ourselves.
func (c *conflicts) at(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self.Addr = addr
}

// NotifyConflict is called under the library's lock when a node is mentioned
// with another address than the one that is known and alive. The library has
// refused it already.
func (c *conflicts) NotifyConflict(existing, other *memberlist.Node) {
	c.metrics.conflict()
	m, err := memberOf(other)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if existing.Name != c.self.Name() {
		if _, known := c.quarrels[existing.Name]; !known && len(c.quarrels) < maxQuarrels {
			c.quarrels[existing.Name] = true
		}
	} else {
		if m.Addr != c.other.Addr || m.Boot != c.other.Boot {
			c.answered, c.called = time.Time{}, time.Time{}
		}
		c.other, c.seen = m, time.Now()
	}
	signal(c.wake)
}

// current returns the namesake that makes us the second, if one does.
func (c *conflicts) current(now time.Time) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered.IsZero() || now.Sub(c.answered) > believed || !c.other.startedBefore(c.self) {
		return Member{}, false
	}
	return c.other, true
}

// contested reports that somebody holds our name in others' eyes, alive or not:
// they refuse us meanwhile, although we see them.
func (c *conflicts) contested(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.seen.IsZero() && now.Sub(c.seen) < mentioned
}

// due returns the namesake when it is time to call it.
func (c *conflicts) due(now time.Time) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	interesting := !c.seen.IsZero() && now.Sub(c.seen) < mentioned ||
		!c.answered.IsZero() && now.Sub(c.answered) < believed
	if !interesting || now.Sub(c.called) < callAgain {
		return Member{}, false
	}
	c.called = now
	return c.other, true
}

// call asks whether our namesake is there. It takes up to callTries probe timeouts.
func (c *conflicts) call(ctx context.Context, ml *memberlist.Memberlist, log *slog.Logger) {
	other, due := c.due(time.Now())
	if !due {
		return
	}
	addr, err := netip.ParseAddrPort(other.Addr)
	if err != nil {
		return
	}
	for range callTries {
		if ctx.Err() != nil {
			return
		}
		if _, err := ml.Ping(other.Name(), net.UDPAddrFromAddrPort(addr)); err == nil {
			c.answer(other, log)
			return
		}
	}
}

func (c *conflicts) answer(other Member, log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other.Addr != c.other.Addr || other.Boot != c.other.Boot {
		return // another one was mentioned meanwhile
	}
	first := c.answered.IsZero()
	c.answered = time.Now()
	if !first {
		return
	}
	if other.startedBefore(c.self) {
		log.Error("another process already has this name: give this one its own with --instance, or stop the other",
			slog.String("member", other.Name()), slog.String("other", other.Addr), slog.Int64("other_boot_us", other.Boot))
		return
	}
	log.Warn("a younger process uses this name; it should refuse to become ready",
		slog.String("member", other.Name()), slog.String("other", other.Addr))
}

// report logs what has changed by itself: names contested elsewhere, once each,
// and the end of our own conflict.
func (c *conflicts) report(now time.Time, log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, fresh := range c.quarrels {
		if fresh {
			log.Warn("two addresses claim one name; the newcomer is refused while the other lives", slog.String("member", name))
			c.quarrels[name] = false
		}
	}
	if !c.answered.IsZero() && now.Sub(c.answered) > believed {
		log.Info("the other process of this name is gone", slog.String("other", c.other.Addr))
		c.answered = time.Time{}
	}
	if len(c.quarrels) == maxQuarrels {
		clear(c.quarrels)
	}
}
