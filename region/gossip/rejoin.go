package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"
)

// maxCalls bounds the calls that are under way.
const maxCalls = 32

// caller calls those who should be there and are not: the seeds, and those who
// have died. The library stops talking to the dead after a minute, and both
// sides of a cut believe the other dead; without this nothing would ever heal.
type caller struct {
	roster  *roster
	metrics *metrics
	log     *slog.Logger
	join    func(addr string) error // one full exchange, up to a few seconds
	lookup  func(ctx context.Context, host string) ([]net.IP, error)

	wg sync.WaitGroup

	mu       sync.Mutex
	busy     map[string]bool     // targets being called
	resolved map[string][]string // a seed's addresses, when it was last called
	failing  map[string]bool     // seeds that could not be reached last time
}

func newCaller(r *roster, m *metrics, log *slog.Logger, join func(string) error) *caller {
	return &caller{
		roster: r, metrics: m, log: log, join: join, lookup: resolve,
		busy: map[string]bool{}, resolved: map[string][]string{}, failing: map[string]bool{},
	}
}

// round starts a call to each target that needs one and waits for none: one
// that does not answer must not delay the others. everybody calls those who are
// alive too, who may not know us.
func (c *caller) round(ctx context.Context, seeds []string, everybody bool) {
	reached, dead := c.view()
	if everybody {
		dead = append(dead, reached.others()...)
		reached = reached.onlySelf()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, target := range append(seeds[:len(seeds):len(seeds)], dead...) {
		if reached.all(c.resolved[target]) {
			c.report(target, nil) // it may have called us
			continue
		}
		if c.busy[target] || len(c.busy) >= maxCalls {
			continue
		}
		c.busy[target] = true
		c.wg.Go(func() { c.call(ctx, target, reached, i < len(seeds)) })
	}
}

// call calls every address of one target that is not reached.
func (c *caller) call(ctx context.Context, target string, reached addresses, seed bool) {
	addrs, err := c.addresses(ctx, target)
	if err != nil {
		c.metrics.rejoined("unresolved")
	}
	for _, addr := range addrs {
		if _, ok := reached[addr]; ok || ctx.Err() != nil {
			continue
		}
		if e := c.exchange(addr); e != nil {
			c.metrics.rejoined("failed")
			err = e
			continue
		}
		c.metrics.rejoined("joined")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, target)
	if !seed || ctx.Err() != nil {
		return
	}
	c.resolved[target] = addrs
	c.report(target, err)
}

// exchange has both sides tell what they know. When both had thought the other
// dead, each only learns in the first exchange that it has to object, and tells
// in the second.
func (c *caller) exchange(addr string) error {
	if err := c.join(addr); err != nil {
		return err
	}
	if reached, _ := c.view(); reached.all([]string{addr}) {
		return nil
	}
	return c.join(addr)
}

// report logs what has changed about a seed; c.mu is held.
func (c *caller) report(seed string, err error) {
	was := c.failing[seed]
	c.failing[seed] = err != nil
	switch {
	case err != nil && !was:
		c.log.Warn("gossip seed cannot be reached, or has another cluster name or key; it will be tried again and again",
			slog.String("seed", seed), slog.Any("error", err))
	case err == nil && was:
		c.log.Info("gossip seed is reached again", slog.String("seed", seed))
	}
}

func (c *caller) addresses(ctx context.Context, target string) ([]string, error) {
	host, port, err := splitAddress(target)
	if err != nil {
		return nil, err
	}
	ips, err := c.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	addrs := make([]string, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	}
	return addrs, nil
}

// addresses at which somebody is alive; true is ourselves.
type addresses map[string]bool

// all reports that there are some, and that all of them are in a.
func (a addresses) all(some []string) bool {
	for _, addr := range some {
		if _, ok := a[addr]; !ok {
			return false
		}
	}
	return len(some) > 0
}

func (a addresses) others() []string {
	var others []string
	for addr, self := range a {
		if !self {
			others = append(others, addr)
		}
	}
	return others
}

func (a addresses) onlySelf() addresses {
	only := addresses{}
	for addr, self := range a {
		if self {
			only[addr] = true
		}
	}
	return only
}

// view returns where somebody is alive, and where somebody died.
func (c *caller) view() (reached addresses, dead []string) {
	reached = addresses{}
	for _, m := range c.roster.all() {
		switch m.State {
		case Alive:
			reached[m.Addr] = m.Self
		case Dead:
			dead = append(dead, m.Addr)
		case Left:
		}
	}
	return reached, dead
}

// wait returns when no call is under way.
func (c *caller) wait() { c.wg.Wait() }

// pause is the time until the next round: jitter keeps processes that lost sight
// of each other at once from calling at once for ever.
func pause(random func(time.Duration) time.Duration) time.Duration {
	return RejoinInterval - random(RejoinInterval/5)
}
