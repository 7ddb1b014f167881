package limiter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// Defaults of RedisOptions. A limiter must be faster than what it protects:
// what cannot be had within these times is not worth waiting for.
const (
	DefaultRedisBudget = 10 * time.Millisecond
	redisDialTimeout   = 250 * time.Millisecond
	redisPoolTimeout   = 5 * time.Millisecond
	// redisIOTimeout is only a backstop behind each call's own deadline, and so
	// never shorter than the budget.
	redisIOTimeout = 100 * time.Millisecond
	// redisPoolSize: maxFlushers calls are under way at once, then the prober and
	// the clock; the rest replaces connections that a timeout has closed.
	redisPoolSize = 8
	redisMinIdle  = 4
)

// RedisOptions says which Redis a RedisStore uses and how patient it is.
type RedisOptions struct {
	Mode quota.RedisMode // "" means standalone
	// Addrs are host:port: of the one server, of sentinels, or of any nodes of a
	// cluster, which tell of the others.
	Addrs  []string
	Master string // the name that sentinels know the primary by
	// Credentials are asked for at each new connection, so that a renewed
	// password needs no restart; nil, or an empty password, means none.
	Credentials func() (username, password string)
	// SentinelUsername and SentinelPassword are for the sentinels themselves; "" for none.
	SentinelUsername, SentinelPassword string

	TLS        *tls.Config // nil for none
	ClientName string      // shown by CLIENT LIST, no spaces
	// Dial replaces TCP to any of the servers, in programs and tests that hold their Redis
	// themselves; TLS is not used then. nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Budget is how long a decision may take, queueing included; 0 means
	// DefaultRedisBudget.
	Budget time.Duration
	Logger *slog.Logger
	// Tracer makes a span of each script call that a sampled request travels in; nil
	// makes none, and costs nothing.
	Tracer trace.Tracer
	// script replaces the decision script in tests that move time by hand.
	script *script
}

func (o *RedisOptions) validate() error {
	if len(o.Addrs) == 0 {
		return errors.New("redis store: needs an address")
	}
	for _, addr := range o.Addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("redis address %q: %w", addr, err)
		}
	}
	if o.Budget < 0 || o.Logger == nil {
		return errors.New("redis store: needs a logger, and no negative budget")
	}
	if o.Budget == 0 {
		o.Budget = DefaultRedisBudget
	}
	return nil
}

// RedisStore is the Store on a region's Redis. A charge is sent once and never
// again by itself: only replies that mean "not executed" are followed by another
// attempt. Create it with NewRedisStore and keep Run running; it is safe for
// concurrent use.
type RedisStore struct {
	fleet   fleet
	wake    chan struct{} // has an element when a breaker has opened
	log     *slog.Logger
	metrics *storeMetrics
	probed  atomic.Bool
	mapless atomic.Bool // the servers were not told, and the log says so
}

// fleet is the servers that decide: one, or every primary of a cluster.
type fleet interface {
	// of returns who decides about a key. It waits for nobody.
	of(ctx context.Context, key string) (*node, error)
	// current returns whoever decides about some key, as last known; refresh asks.
	current() []*node
	refresh(ctx context.Context) ([]*node, error)
	close() error
}

// single is a fleet of one.
type single struct{ *node }

func (s single) of(context.Context, string) (*node, error) { return s.node, nil }
func (s single) current() []*node                          { return []*node{s.node} }
func (s single) refresh(context.Context) ([]*node, error)  { return s.current(), nil }
func (s single) close() error                              { return s.client.Close() }

// NewRedisStore prepares a store. It does not dial: a region may start while its
// Redis is away.
func NewRedisStore(o RedisOptions, m *Metrics) (*RedisStore, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, errors.New("redis store: needs metrics")
	}
	s := &RedisStore{wake: make(chan struct{}, 1), log: o.Logger, metrics: &m.store}
	f := newNodes(o, s.wake, &m.store)
	switch o.Mode {
	case quota.RedisStandalone, "":
		s.fleet = single{f.node(standaloneClient(o))}
	case quota.RedisSentinel:
		s.fleet = single{f.node(sentinelClient(o))}
	case quota.RedisCluster:
		s.fleet = newCluster(o, f)
	default:
		return nil, fmt.Errorf("redis store: no mode %q", o.Mode)
	}
	m.store.begin()
	m.watchBreaker(func() bool { return !s.Available() })
	return s, nil
}

// Decide implements Store. The budget covers the wait behind other calls.
func (s *RedisStore) Decide(ctx context.Context, calls []Call, verdicts []Verdict) error {
	err := s.decide(ctx, calls, verdicts)
	unknown := 0
	for i := range verdicts {
		failed := err
		if failed == nil {
			failed = verdicts[i].Err
		}
		if failed == nil {
			continue
		}
		if e := (*StoreError)(nil); errors.As(failed, &e) && e.Ambiguous {
			unknown++
		}
	}
	if unknown > 0 {
		s.metrics.ambiguous(ctx, unknown)
	}
	return err
}

func (s *RedisStore) decide(ctx context.Context, calls []Call, verdicts []Verdict) error {
	n, err := s.fleet.of(ctx, calls[0].slotKey())
	if err != nil {
		return err
	}
	for i := range calls[1:] {
		if other, err := s.fleet.of(ctx, calls[1+i].slotKey()); err != nil || other != n {
			return s.scatter(ctx, calls, verdicts)
		}
	}
	return n.decide(ctx, calls, verdicts)
}

// Run keeps the script loaded and probes: each second while all is well, at once
// and then ten times a second while a server is away. It returns when ctx ends.
func (s *RedisStore) Run(ctx context.Context) error {
	s.probe(ctx)
	s.probed.Store(true)
	s.advise(ctx)
	timer := time.NewTimer(s.nextProbe())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.wake:
		}
		s.probe(ctx)
		timer.Reset(s.nextProbe())
	}
}

func (s *RedisStore) nextProbe() time.Duration {
	if s.Available() {
		return idleInterval
	}
	return probeInterval
}

// Probed reports whether Run has asked Redis once, for better or worse: before
// that a first request would pay for dialling and for loading the script.
func (s *RedisStore) Probed() bool { return s.probed.Load() }

// probe asks all servers at the same time.
func (s *RedisStore) probe(ctx context.Context) {
	nodes := s.refresh(ctx)
	// Dialling anew takes more than a decision's budget; a probe may. It has this time to
	// itself: one node that does not tell who holds the slots says nothing against the others.
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { n.probe(ctx) })
	}
	wg.Wait()
}

// refresh returns all servers, as they are told now or as last known.
func (s *RedisStore) refresh(ctx context.Context) []*node {
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	nodes, err := s.fleet.refresh(ctx)
	if lost := err != nil && ctx.Err() == nil; s.mapless.Swap(lost) != lost && lost {
		s.log.Warn("no node of the redis cluster tells who holds the slots; what was known goes on being used", "error", err)
	}
	if err != nil {
		return s.fleet.current()
	}
	return nodes
}

// advise warns of servers that may forget counters under memory pressure.
func (s *RedisStore) advise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	for _, n := range s.fleet.current() {
		n.advise(ctx)
	}
}

// Available reports whether every server of the store was answering when last asked.
func (s *RedisStore) Available() bool {
	nodes := s.fleet.current()
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.breaker.open() })
}

// TimeUS reads the store's clock, microseconds since the epoch: in a cluster, that
// of the primary which holds the first probe.
func (s *RedisStore) TimeUS(ctx context.Context) (int64, error) {
	n, err := s.fleet.of(ctx, probeKey)
	if err != nil {
		return 0, fmt.Errorf("read the time of redis: %w", err)
	}
	return n.timeUS(ctx)
}

// Reset implements Store with SCAN and UNLINK: keys of one tenant, without
// stalling the others. Charges made meanwhile may or may not be forgotten.
func (s *RedisStore) Reset(ctx context.Context, tenant string) error {
	prefix := string(appendPrefix(nil, tenant))
	n, err := s.fleet.of(ctx, prefix)
	if err != nil {
		return err
	}
	pattern := globEscape(prefix) + "*"
	isCounter := func(key string) bool { return strings.HasPrefix(key, prefix+counterMark) }
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := n.client.Scan(ctx, cursor, pattern, 1000).Result()
		if keys = slices.DeleteFunc(keys, isCounter); err == nil && len(keys) > 0 {
			err = n.client.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			return classify(err)
		}
		cursor = next
	}
	return nil
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Close closes the connections. Call it after Run has returned.
func (s *RedisStore) Close() error { return s.fleet.close() }
