package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/regiond/regiond/quota"
)

// maxWorldProcesses is how many addresses each region of a world has.
const maxWorldProcesses = 8

// nodeRegion is one region: a clock of its own, a Redis or none, and the processes that
// serve it.
type nodeRegion struct {
	w         *world
	name      string
	place     int
	started   int          // processes, ever
	aheadUS   atomic.Int64 // of true time
	redis     *miniredis.Miniredis
	away      atomic.Bool // nobody can reach the Redis
	processes []*node
}

// Clocks of the regions differ by less than a window, and by more than a message
// takes.
func newNodeRegion(w *world, name string, place int, redis bool) *nodeRegion {
	s := &nodeRegion{w: w, name: name, place: place}
	s.aheadUS.Store(int64(place) * 1_700_000)
	if redis {
		s.redis = miniredis.NewMiniRedis()
		s.redis.ClockTTL(true)
	}
	return s
}

func (s *nodeRegion) addr(process int) string {
	return fmt.Sprintf("10.0.%d.%d:7946", s.place+1, process+1)
}

func (s *nodeRegion) redisField() string {
	if s.redis == nil {
		return "{embedded: true}"
	}
	return `{addrs: ["redis.` + s.name + `:6379"]}`
}

func (s *nodeRegion) close() {
	if s.redis != nil {
		s.redis.Close()
	}
}

// nowUS is the region's clock.
func (s *nodeRegion) nowUS() int64 { return time.Now().UnixMicro() + s.aheadUS.Load() }

// dial connects a process with the region's Redis.
func (s *nodeRegion) dial(context.Context, string, string) (net.Conn, error) {
	if s.away.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	c, err := s.redis.Dial()
	return &redisConn{Conn: c, home: s}, err
}

// redisConn sets the Redis's clock before each command: by itself a miniredis has
// the time of day, or time that stands still.
type redisConn struct {
	net.Conn
	home *nodeRegion
}

func (c *redisConn) Write(b []byte) (int, error) {
	if c.home.away.Load() {
		_ = c.Close() // as a host that has gone
		return 0, net.ErrClosed
	}
	c.home.redis.SetTime(time.UnixMicro(c.home.nowUS()))
	return c.Conn.Write(b)
}

// one is the region's only process, or its first.
func (s *nodeRegion) one() *node { return s.processes[0] }

// ask is one check of the tenant that all is about.
func (p *node) ask(cost int64) quota.Decision {
	p.w.t.Helper()
	return p.askFor("acme", cost)
}

func (p *node) askFor(tenant string, cost int64) quota.Decision {
	p.w.t.Helper()
	d, err := p.limiter.Check(context.Background(), quota.Request{Tenant: tenant, Cost: cost})
	if err != nil {
		p.w.t.Fatal(err)
	}
	return d
}

// explained is what a check would get, and why.
func (p *node) explained(tenant string) (quota.Decision, quota.CeilingTerms) {
	p.w.t.Helper()
	d, err := p.limiter.Peek(context.Background(), quota.Request{Tenant: tenant, Cost: 1, Explain: true})
	if err != nil {
		p.w.t.Fatal(err)
	}
	return d, d.Explanation.Limits[0].CeilingTerms
}

// estimate is what the process believes that another region has used.
func (p *node) estimate(of *nodeRegion) int64 {
	p.w.t.Helper()
	return p.estimateFor("acme", of)
}

func (p *node) estimateFor(tenant string, of *nodeRegion) int64 {
	p.w.t.Helper()
	_, terms := p.explained(tenant)
	for _, peer := range terms.Peers {
		if peer.Region == of.name {
			return peer.Estimate
		}
	}
	p.w.t.Fatalf("%s knows no region %s", p.home.name, of.name)
	return 0
}
