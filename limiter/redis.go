package limiter

import (
	"cmp"
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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

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

// RedisOptions says which Redis a RedisStore uses and how long it waits.
type RedisOptions struct {
	Mode quota.RedisMode // "" means standalone
	// Addrs are host:port: of the one server, of sentinels, or of any nodes of a
	// cluster, from which the others are learnt.
	Addrs  []string
	Master string // the name that sentinels know the primary by
	// Credentials is called for each new connection, so that a renewed
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
	nodeSet nodeSet
	wake    chan struct{} // has an element when a breaker has opened
	log     *slog.Logger
	metrics *storeMetrics
	probed  atomic.Bool
	mapless atomic.Bool // the slot map could not be read, and was logged
}

// nodeSet is the servers that decide: one, or every primary of a cluster.
type nodeSet interface {
	// of returns the server that decides about a key. It never blocks.
	of(ctx context.Context, key string) (*node, error)
	// current returns all servers that decide, as last known; refresh asks for them.
	current() []*node
	refresh(ctx context.Context) ([]*node, error)
	close() error
}

// single is a nodeSet of one.
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
		s.nodeSet = single{f.node(standaloneClient(o))}
	case quota.RedisSentinel:
		s.nodeSet = single{f.node(sentinelClient(o))}
	case quota.RedisCluster:
		s.nodeSet = newCluster(o, f)
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
		if e := (*StoreError)(nil); errors.As(cmp.Or(err, verdicts[i].Err), &e) && e.Ambiguous {
			unknown++
		}
	}
	if unknown > 0 {
		s.metrics.unknown.Add(ctx, int64(unknown))
	}
	return err
}

func (s *RedisStore) decide(ctx context.Context, calls []Call, verdicts []Verdict) error {
	n, err := s.nodeSet.of(ctx, calls[0].slotKey())
	if err != nil {
		return err
	}
	for i := range calls[1:] {
		if other, err := s.nodeSet.of(ctx, calls[1+i].slotKey()); err != nil || other != n {
			return s.fanOut(ctx, calls, verdicts)
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

// Probed reports whether Run has probed Redis once, with or without success: before
// that a first request would pay for dialling and for loading the script.
func (s *RedisStore) Probed() bool { return s.probed.Load() }

// probe asks all servers at the same time.
func (s *RedisStore) probe(ctx context.Context) {
	nodes := s.refresh(ctx)
	// Dialling anew takes more than a decision's budget; a probe may. It has this time to
	// itself: a node that does not answer for the slots is no reason to fail the others.
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { n.probe(ctx) })
	}
	wg.Wait()
}

// refresh returns all servers, as reported now or as last known.
func (s *RedisStore) refresh(ctx context.Context) []*node {
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	nodes, err := s.nodeSet.refresh(ctx)
	if lost := err != nil && ctx.Err() == nil; s.mapless.Swap(lost) != lost && lost {
		s.log.Warn("no node of the redis cluster reports its slots; the last known slots are used", "error", err)
	}
	if err != nil {
		return s.nodeSet.current()
	}
	return nodes
}

// advise warns of servers that may forget counters under memory pressure.
func (s *RedisStore) advise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	for _, n := range s.nodeSet.current() {
		n.advise(ctx)
	}
}

// Available reports whether every server of the store was answering when last asked.
func (s *RedisStore) Available() bool {
	nodes := s.nodeSet.current()
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.breaker.open() })
}

// TimeUS reads the store's clock, microseconds since the epoch: in a cluster, that
// of the primary which holds the first probe.
func (s *RedisStore) TimeUS(ctx context.Context) (int64, error) {
	n, err := s.nodeSet.of(ctx, probeKey)
	if err != nil {
		return 0, fmt.Errorf("read the time of redis: %w", err)
	}
	return n.timeUS(ctx)
}

// Reset implements Store with SCAN and UNLINK: keys of one tenant, without
// stalling the others. Charges made meanwhile may or may not be forgotten.
func (s *RedisStore) Reset(ctx context.Context, tenant string) error {
	prefix := string(appendPrefix(nil, tenant))
	n, err := s.nodeSet.of(ctx, prefix)
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
func (s *RedisStore) Close() error { return s.nodeSet.close() }

// fanOut asks the servers of several calls at the same time. What fails on one
// of them is the error of its verdicts alone.
func (s *RedisStore) fanOut(ctx context.Context, calls []Call, verdicts []Verdict) error {
	parts := map[*node]*part{}
	for i := range calls {
		n, err := s.nodeSet.of(ctx, calls[i].slotKey())
		if err != nil {
			verdicts[i].Err = err
			continue
		}
		if parts[n] == nil {
			parts[n] = &part{}
		}
		parts[n].add(i, &calls[i])
	}
	var wg sync.WaitGroup
	for n, p := range parts {
		wg.Go(func() {
			p.gather(n.decide(ctx, p.calls, p.verdicts), verdicts)
		})
	}
	wg.Wait()
	return nil
}

// part is some of the calls of a batch.
type part struct {
	places   []int // places[i] is where calls[i] stands in the batch
	calls    []Call
	verdicts []Verdict
}

func (p *part) add(place int, c *Call) {
	p.places, p.calls, p.verdicts = append(p.places, place), append(p.calls, *c), append(p.verdicts, Verdict{})
}

// gather puts verdicts back into the batch's; err, if any, is theirs.
func (p *part) gather(err error, verdicts []Verdict) {
	for i, place := range p.places {
		verdicts[place] = p.verdicts[i]
		if err != nil {
			verdicts[place] = Verdict{Err: err}
		}
	}
}

// clientOptions are those of every client that charges: go-redis's defaults send a
// script up to four times when replies are lost, and wait seconds for each.
func clientOptions(o RedisOptions) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:                    o.Addrs,
		MasterName:               o.Master,
		SentinelUsername:         o.SentinelUsername,
		SentinelPassword:         o.SentinelPassword,
		CredentialsProvider:      o.Credentials,
		TLSConfig:                o.TLS,
		Dialer:                   o.Dial,
		ClientName:               o.ClientName,
		DisableIdentity:          true, // CLIENT SETINFO is unknown before Redis 7.2, even to an ACL
		Protocol:                 3,
		MaxRetries:               -1,
		MaxRedirects:             maxRedirects,
		ContextTimeoutEnabled:    true,
		DialTimeout:              redisDialTimeout,
		DialerRetries:            1,
		ReadTimeout:              max(redisIOTimeout, o.Budget),
		WriteTimeout:             max(redisIOTimeout, o.Budget),
		PoolTimeout:              redisPoolTimeout,
		PoolSize:                 redisPoolSize,
		MinIdleConns:             redisMinIdle,
		PipelinePoolSize:         -1,
		ConnMaxIdleTime:          5 * time.Minute,
		ConnMaxLifetime:          time.Hour,
		ConnMaxLifetimeJitter:    10 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func standaloneClient(o RedisOptions) *redis.Client {
	return redis.NewClient(clientOptions(o).Simple())
}

// sentinelClient follows the primary: each connection is made to the one that
// the sentinels name then, and those to another are closed when it changes.
func sentinelClient(o RedisOptions) *redis.Client {
	return redis.NewFailoverClient(clientOptions(o).Failover())
}

// clusterClient has one client for each server. It follows redirections, retries
// nothing, and does not send COMMAND.
func clusterClient(o RedisOptions) *redis.ClusterClient {
	c := clientOptions(o).Cluster()
	c.DisableRoutingPolicies = true
	return redis.NewClusterClient(c)
}
