package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/region"
)

// maxTargets bounds the seeds and dead members that are called.
const maxTargets = 128

// target is a seed or a member that has died. It is called until it is alive.
type target struct {
	stop context.CancelFunc
	ips  []net.IP // what its name has resolved to, whose streams are not a stranger's
}

// rejoin has the seeds and the members that have died called until they are
// alive. memberlist stops talking to dead nodes after a minute, and both sides
// of a partition believe the other dead; without this a partition would not
// heal. Each target has a goroutine of its own: one that does not answer must
// not delay the others.
func (g *Gossip) rejoin(ctx context.Context) {
	_, dead := g.members.addresses()
	seeds := g.options.Seeds()
	names := slices.Concat(seeds, dead)
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, t := range g.targets {
		if !slices.Contains(names, name) {
			t.stop()
			delete(g.targets, name)
		}
	}
	for i, name := range names {
		if g.targets[name] == nil && len(g.targets) < maxTargets {
			ctx, stop := context.WithCancel(ctx)
			g.targets[name] = &target{stop: stop}
			go g.call(ctx, name, g.targets[name], i < len(seeds))
		}
	}
}

// call joins a target, host:port, whenever it is not alive, until ctx ends.
func (g *Gossip) call(ctx context.Context, name string, t *target, seed bool) {
	var addrs []string // what the host resolved to last time
	var failing loglimit.Fault
	for ctx.Err() == nil {
		var err error
		if alive, _ := g.members.addresses(); len(addrs) == 0 || slices.ContainsFunc(addrs, func(addr string) bool { return !alive[addr] }) {
			addrs, err = g.joinAll(ctx, name, t, alive)
		}
		switch log := g.options.Logger; {
		case !seed || ctx.Err() != nil:
		case err != nil && failing.Begins():
			log.Warn("gossip seed cannot be reached, or has another cluster name or key; retrying every few seconds",
				slog.String("seed", name), slog.Any("error", err))
		case err == nil && failing.Ends():
			log.Info("gossip seed is reached again", slog.String("seed", name))
		}
		// Jitter keeps processes that lost each other at the same moment from
		// calling each other at the same moment for ever.
		sleep(ctx, RejoinInterval-rand.N(RejoinInterval/5))
	}
}

// joinAll resolves a target and joins each of its addresses that is not alive.
func (g *Gossip) joinAll(ctx context.Context, name string, t *target, alive map[string]bool) (addrs []string, err error) {
	host, port, err := region.SplitAddress(name)
	if err != nil {
		return nil, err
	}
	ips, err := resolve(ctx, host)
	if err != nil {
		g.metrics.rejoins.Add(1, "result", "unresolved")
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	g.mu.Lock()
	t.ips = ips
	g.mu.Unlock()
	for _, ip := range ips {
		addr := net.JoinHostPort(ip.String(), strconv.Itoa(port))
		addrs = append(addrs, addr)
		if alive[addr] || ctx.Err() != nil {
			continue
		}
		result := "joined"
		if e := g.join(addr); e != nil {
			result, err = "failed", e
		}
		g.metrics.rejoins.Add(1, "result", result)
	}
	return addrs, err
}

// join exchanges state with an address, and again if the member is not alive
// afterwards: when both sides believed the other dead, each learns in the first
// exchange that it must refute that, and sends the refutation in the second. An
// exchange cannot be cancelled; it takes up to 3 s to connect and 3 s more.
func (g *Gossip) join(addr string) (err error) {
	for range 2 {
		ml := g.list.Load()
		if alive, _ := g.members.addresses(); err != nil || ml == nil || alive[addr] {
			break
		}
		_, err = ml.Join([]string{addr})
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// resolve returns at least one address: of a name, or the address that host is.
func resolve(ctx context.Context, host string) ([]net.IP, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return net.DefaultResolver.LookupIP(ctx, "ip", host)
}
