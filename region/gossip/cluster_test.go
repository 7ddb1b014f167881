package gossip_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/gossiptest"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	ms   = time.Millisecond
	s    = time.Second
	boot = 1_790_000_000_000_000
)

// cluster is a network with processes on it, in a bubble's time.
type cluster struct {
	t     *testing.T
	net   *gossiptest.Network
	seeds []string
	lost  atomic.Bool // nobody is told of a seed any more
	boots int64
}

// process is one that runs.
type process struct {
	*gossip.Gossip
	cluster *cluster
	table   *members.Table
	addr    string
	log     *capture.Log
	hash    func(string) // sets its config hash
	stop    func()       // ends Run and waits for it
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, net: gossiptest.New(40 * ms)}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // the last: the library's probes end by their timeouts
	return c
}

func address(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// start starts a process of region r<i>, at an address that is a seed when it
// is among c.seeds. change may change its options.
func (c *cluster) start(region, instance, addr string, change ...func(*gossip.Options)) *process {
	c.t.Helper()
	c.boots++
	p := &process{
		cluster: c, addr: addr, log: &capture.Log{},
		table: members.New(quota.Process{Region: region, Instance: instance, Boot: boot + c.boots}),
	}
	var mu sync.Mutex
	hash := "h1"
	o := gossip.Options{
		Members: p.table, Version: "v1", Cluster: "prod",
		Transport: c.net.Transport(addr), Seeds: c.known, Logger: logger(p.log),
		ConfigHash: func() string { mu.Lock(); defer mu.Unlock(); return hash },
		Regions:    func(name string) bool { return !strings.HasPrefix(name, "unknown") },
	}
	for _, f := range change {
		f(&o)
	}
	p.hash = func(h string) { mu.Lock(); defer mu.Unlock(); hash = h }
	var err error
	if p.Gossip, err = gossip.New(o); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("%s: Run ended with %v, want nil", p.addr, err)
		}
	})
	c.t.Cleanup(p.stop)
	return p
}

// known is the seeds that processes are told of.
func (c *cluster) known() []string {
	if c.lost.Load() {
		return nil
	}
	return c.seeds
}

// startAll starts n processes, one a region, all but the last of them seeds, and waits until
// all see all.
func (c *cluster) startAll(n int) []*process {
	c.t.Helper()
	var ps []*process
	for i := range n - 1 {
		c.seeds = append(c.seeds, address(i+1))
	}
	for i := range n {
		ps = append(ps, c.start(fmt.Sprintf("r%d", i+1), "a", address(i+1)))
	}
	c.await(10*s, func() bool { return whole(ps, n) })
	return ps
}

// crash takes a process off the network and ends it: it cannot leave.
func (p *process) crash() {
	p.cluster.net.Unplug(p.addr)
	p.stop()
}

// await returns how long it takes until done, at most limit.
func (c *cluster) await(limit time.Duration, done func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		if done() {
			return time.Since(start)
		}
		if time.Since(start) >= limit {
			c.t.Fatalf("not within %v", limit)
		}
		time.Sleep(20 * ms)
	}
}

// whole reports that all of ps see n alive.
func whole(ps []*process, n int) bool {
	return !slices.ContainsFunc(ps, func(p *process) bool { return p.count(members.Alive) != n })
}

func (p *process) count(state members.Word) int {
	n := 0
	for _, m := range p.Members() {
		if m.Gossip.State == state {
			n++
		}
	}
	return n
}

// sees returns the state of name in p's view, "" when it has none.
func (p *process) sees(name string) members.Word { return p.member(name).Gossip.State }

// member is the latest start of name in p's view.
func (p *process) member(name string) (latest members.Member) {
	for _, m := range p.Members() {
		if m.Name() == name {
			latest = m
		}
	}
	return latest
}

func addresses(ps []*process) []string {
	var addrs []string
	for _, p := range ps {
		addrs = append(addrs, p.addr)
	}
	return addrs
}

// logged returns how often a text is in what was logged.
func logged(log *capture.Log, text string) int { return strings.Count(log.String(), text) }

func logger(to *capture.Log) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
