package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"
)

// maxTargets bounds the seeds and dead members that are called.
const maxTargets = 128

// rejoin has the seeds and the members that have died called until they are
// alive. memberlist stops talking to dead nodes after a minute, and both sides
// of a partition believe the other dead; without this a partition would not
// heal. Each target has a goroutine of its own: one that does not answer must
// not delay the others. running is kept between the calls.
func (g *Gossip) rejoin(ctx context.Context, join joinFunc, running map[string]context.CancelFunc) {
	_, dead := g.members.addresses()
	seeds := g.options.Seeds()
	targets := slices.Concat(seeds, dead)
	for name, stop := range running {
		if !slices.Contains(targets, name) {
			stop()
			delete(running, name)
		}
	}
	for i, name := range targets {
		if running[name] == nil && len(running) < maxTargets {
			ctx, stop := context.WithCancel(ctx)
			running[name] = stop
			go (&target{name: name, seed: i < len(seeds), g: g, join: join}).run(ctx)
		}
	}
}

// joinFunc is one full exchange of state with an address. It cannot be cancelled
// and takes up to 3 s to connect and 3 s more to be answered.
type joinFunc func(addr string) error

// target is a seed, or the address of a dead member.
type target struct {
	name    string // host:port as configured
	seed    bool
	g       *Gossip
	join    joinFunc
	addrs   []string // what the host resolved to last time
	failing bool     // could not be reached last time
}

func (t *target) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.call(ctx)
		switch log := t.g.options.Logger; {
		case !t.seed || ctx.Err() != nil:
		case err != nil && !t.failing:
			log.Warn("gossip seed cannot be reached, or has another cluster name or key; retrying every few seconds",
				slog.String("seed", t.name), slog.Any("error", err))
		case err == nil && t.failing:
			log.Info("gossip seed is reached again", slog.String("seed", t.name))
		}
		t.failing = err != nil
		// Jitter keeps processes that lost each other at the same moment from
		// calling each other at the same moment for ever.
		sleep(ctx, RejoinInterval-rand.N(RejoinInterval/5))
	}
}

// call joins each address of the target that is not alive. The name is resolved
// again only when one of them is not.
func (t *target) call(ctx context.Context) error {
	alive, _ := t.g.members.addresses()
	if len(t.addrs) > 0 && !slices.ContainsFunc(t.addrs, func(addr string) bool { return !alive[addr] }) {
		return nil
	}
	host, port, err := splitAddress(t.name)
	if err != nil {
		return err
	}
	ips, err := resolve(ctx, host)
	if err != nil {
		t.g.metrics.rejoined("unresolved")
		return fmt.Errorf("resolve %s: %w", host, err)
	}
	t.addrs = nil
	for _, ip := range ips {
		addr := net.JoinHostPort(ip.String(), strconv.Itoa(port))
		t.addrs = append(t.addrs, addr)
		if alive[addr] || ctx.Err() != nil {
			continue
		}
		result := "joined"
		if e := t.exchange(addr); e != nil {
			result, err = "failed", e
		}
		t.g.metrics.rejoined(result)
	}
	return err
}

// exchange joins once, and again if the member is not alive afterwards: when
// both sides believed the other dead, each learns in the first exchange that it
// must refute that, and sends the refutation in the second.
func (t *target) exchange(addr string) error {
	if err := t.join(addr); err != nil {
		return err
	}
	if alive, _ := t.g.members.addresses(); alive[addr] {
		return nil
	}
	return t.join(addr)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// resolve returns the addresses of a host, at least one.
func resolve(ctx context.Context, host string) ([]net.IP, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err == nil && len(ips) == 0 {
		err = errors.New("no address")
	}
	return ips, err
}
