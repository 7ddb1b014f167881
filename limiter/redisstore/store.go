package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Defaults of Options. A limiter must be faster than what it protects:
// what cannot be had within these times is not worth waiting for.
const (
	DefaultBudget = 40 * time.Millisecond
	dialTimeout   = 250 * time.Millisecond
	poolTimeout   = 100 * time.Millisecond
	// ioTimeout is only a backstop behind the watchdog, which judges earlier.
	ioTimeout = 500 * time.Millisecond
	// poolSize: queue.MostCalls are under way at once, then the prober and the region's turns; the rest replaces
	// connections that a timeout has closed.
	poolSize = 16
	// minIdle are kept ready: to dial takes as long as some calls. With two in use the pool is full. So where all
	// connections fall silent together, no new one is made that would answer: the server is away, and all that wait
	// are told in time. Two are left for who needs one while the first are made.
	minIdle = poolSize - 2
)

// Options says which Redis a Store uses and how long it waits.
type Options struct {
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
	// Budget is how long a decision may take, queueing included: a check that would take
	// longer is turned away, and a server that is silent for so long is away. 0 means
	// DefaultBudget. No server is away before DeadAfter.
	Budget time.Duration
	Logger *slog.Logger
	// Epoch is the key of a hash whose field epoch begins with the epoch of the data in this
	// server. Under a Bound with another epoch nothing is admitted; "" takes that of the
	// calls. In a cluster only the server that has the hash compares.
	Epoch string
	// Unknown is called before a server is sent the script that it does not know, so before anything is decided on one that
	// has taken over or was started anew; nil: nothing is.
	Unknown func(ctx context.Context)
	// Tracer makes a span of each script call that a sampled request travels in; nil
	// makes none, and costs nothing.
	Tracer trace.Tracer
	// Meter makes the instruments; nil makes none.
	Meter metric.Meter
	// TimeLua replaces now.lua, which defines TIME, in tests that move time by hand.
	TimeLua string
	// Clock is what is known of the server's clock; in a cluster, of that which holds rl:region. The samples come from
	// whoever calls Eval. Each call under a Bound has a fence by it; nil: none has.
	Clock *clock.Clock
	// DeadAfter is the least silence of a server that counts as away; 0 means 42 ms.
	DeadAfter time.Duration
}

func (o *Options) validate() error {
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
		o.Budget = DefaultBudget
	}
	return nil
}

// Store is a store.Store on a region's Redis. Create it with New and keep Run running; it is
// safe for concurrent use.
type Store struct {
	nodeSet nodeSet
	wake    chan struct{} // has an element when a breaker has opened
	log     *slog.Logger
	metrics *metrics
	probed  atomic.Bool
	resets  atomic.Int64   // what resetsKey held when last read
	mapless loglimit.Fault // the slot map cannot be read
	tight   loglimit.Fault // the budget is too short
	budget  time.Duration
}

// nodeSet is the servers that decide: one, or every primary of a cluster.
type nodeSet interface {
	// of returns the server that decides about a key, and all of its tenant. It never blocks.
	of(ctx context.Context, key string) (*node, error)
	// current returns all servers that decide, as last known; refresh asks for them.
	current() []*node
	refresh(ctx context.Context) ([]*node, error)
	close() error
}

// single is a nodeSet of one.
type single struct{ *node }

func newSingle(o Options, n *node) single {
	n.place.Store(&place{clock: o.Clock})
	return single{n}
}

func (s single) of(context.Context, string) (*node, error) { return s.node, nil }
func (s single) current() []*node                          { return []*node{s.node} }
func (s single) refresh(context.Context) ([]*node, error)  { return s.current(), nil }
func (s single) close() error                              { return s.client.Close() }

// New prepares a store. It does not dial: a region may start while its
// Redis is away.
func New(o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{wake: make(chan struct{}, 1), log: o.Logger, budget: o.Budget}
	var err error
	if s.metrics, err = newMetrics(o.Meter, s.Available); err != nil {
		return nil, fmt.Errorf("redis store: %w", err)
	}
	node := newNodes(o, s.wake, s.metrics)
	switch o.Mode {
	case quota.RedisStandalone, "":
		s.nodeSet = newSingle(o, node(redis.NewClient(clientOptions(o).Simple())))
	case quota.RedisSentinel:
		// Each connection is made to the primary that the sentinels name then, and those to
		// another are closed when it changes.
		s.nodeSet = newSingle(o, node(redis.NewFailoverClient(clientOptions(o).Failover())))
	case quota.RedisCluster:
		s.nodeSet = newCluster(o, node)
	default:
		return nil, fmt.Errorf("redis store: no mode %q", o.Mode)
	}
	return s, nil
}

// Decide implements Store. The budget covers the wait behind other calls.
func (s *Store) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if set, one := s.nodeSet.(single); one {
		set.decide(ctx, calls, verdicts)
	} else {
		s.fanOut(ctx, calls, verdicts)
	}
	s.metrics.unknown.Add(ambiguous(verdicts))
}

// fanOut asks the servers of several calls at the same time.
func (s *Store) fanOut(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	by := map[*node][]int{}
	for i := range calls {
		if n, err := s.nodeSet.of(ctx, calls[i].Keys[0]); err != nil {
			verdicts[i].Err = err
		} else {
			by[n] = append(by[n], i)
		}
	}
	var wg sync.WaitGroup
	for n, places := range by {
		if len(places) == len(calls) {
			n.decide(ctx, calls, verdicts)
			break
		}
		wg.Go(func() {
			p := &subset{}
			for _, i := range places {
				p.add(i, &calls[i])
			}
			n.decide(ctx, p.calls, p.verdicts)
			p.gather(verdicts)
		})
	}
	wg.Wait()
}

// ambiguous counts the calls that may have been charged without an answer.
func ambiguous(verdicts []store.Verdict) (n int64) {
	for i := range verdicts {
		if e, ok := errors.AsType[*store.Error](verdicts[i].Err); ok && e.Ambiguous {
			n++
		}
	}
	return n
}

// subset is some of the calls of a batch.
type subset struct {
	places   []int // places[i] is where calls[i] stands in the batch
	calls    []store.Call
	verdicts []store.Verdict
}

func (p *subset) add(place int, c *store.Call) {
	p.places, p.calls, p.verdicts = append(p.places, place), append(p.calls, *c), append(p.verdicts, store.Verdict{})
}

// gather puts verdicts back into the batch's.
func (p *subset) gather(verdicts []store.Verdict) {
	for i, place := range p.places {
		verdicts[place] = p.verdicts[i]
	}
}

// Run keeps the script loaded and probes: each second while all is well, at once
// and then ten times a second while a server is away. It returns when ctx ends.
func (s *Store) Run(ctx context.Context) error {
	s.probe(ctx)
	s.probed.Store(true)
	for _, n := range s.nodeSet.current() {
		n.advise(ctx)
	}
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

func (s *Store) nextProbe() time.Duration {
	if s.Available() {
		return idleInterval
	}
	return probeInterval
}

// Probed reports whether Run has probed Redis once, with or without success: before
// that a first request would pay for dialling and for loading the script.
func (s *Store) Probed() bool { return s.probed.Load() }

// probe asks all servers at the same time.
func (s *Store) probe(ctx context.Context) {
	nodes := s.refresh(ctx)
	// Dialling anew takes more than a decision's budget; a probe may. It has this time to
	// itself: a node that does not answer for the slots is no reason to fail the others.
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { n.probe(ctx) })
	}
	wg.Go(func() { s.readResets(ctx) })
	wg.Wait()
	s.compareBudget(nodes)
}

// compareBudget exports what the slowest server needs for one call, and warns when that is
// more than the budget: checks are then decided only while no other waits.
func (s *Store) compareBudget(nodes []*node) {
	need := time.Duration(0)
	for _, n := range nodes {
		need = max(need, n.queue.Need())
	}
	if need == 0 {
		return
	}
	s.metrics.need.Store(int64(need))
	if s.tight.Is(need > s.budget) {
		s.log.Warn("redis takes longer for one check than it may; raise --redis-budget, or bring redis nearer",
			"needed", need, "redis_budget", s.budget)
	}
}

// refresh returns all servers, as reported now or as last known.
func (s *Store) refresh(ctx context.Context) []*node {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nodes, err := s.nodeSet.refresh(ctx)
	if s.mapless.Is(err != nil && ctx.Err() == nil) {
		s.log.Warn("no node of the redis cluster reports its slots; the last known slots are used", "error", err)
	}
	if err != nil {
		return s.nodeSet.current()
	}
	return nodes
}

// Available reports whether every server of the store was answering when last asked.
func (s *Store) Available() bool {
	nodes := s.nodeSet.current()
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.breaker.open() })
}

const (
	// resetsKey holds another number after each ResetAll by any process of the region.
	resetsKey = "rl:resets"
	// resetsTTL is far longer than a process takes to read it. Its end counts as a reset.
	resetsTTL = 10 * time.Minute
	// scanPage is how many keys one step of SCAN looks at.
	scanPage = 1000
)

// readResets reads Resets.
func (s *Store) readResets(ctx context.Context) {
	n, err := s.nodeSet.of(ctx, resetsKey)
	if err != nil {
		return
	}
	if id, err := n.client.Get(ctx, resetsKey).Int64(); err == nil || errors.Is(err, redis.Nil) {
		s.resets.Store(id)
	}
}

// Resets is a number that changes when a process of the region has reset a tenant: this
// one at once, another by the next probe.
func (s *Store) Resets() int64 { return s.resets.Load() }

// Eval runs a script on the server that holds key, at most once. It works before Run, and
// may wait until ctx ends.
func (s *Store) Eval(ctx context.Context, source, key string, args ...any) (any, error) {
	var at processor
	var err error
	switch set := s.nodeSet.(type) {
	case single:
		at = set.client
	case *cluster:
		if at, err = set.client.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	return once(ctx, at, append([]any{"EVAL", source, 1, key}, args...)...)
}

// CountLoss counts a loss of data, which shows in the region's hashes.
func (s *Store) CountLoss() { s.metrics.losses.Add(1) }

// Primaries are those of a cluster which do not hold regionKey, by a key that each holds, and their clocks.
func (s *Store) Primaries() map[string]*clock.Clock {
	all := map[string]*clock.Clock{}
	if c, ok := s.nodeSet.(*cluster); ok {
		for _, n := range c.current() {
			if p := n.place.Load(); p != nil && p.clock != c.home {
				all[regionKey+":{"+p.tag+"}"] = p.clock
			}
		}
	}
	return all
}

// deleteCounters unlinks those of KEYS whose generation is at most ARGV[1].
const deleteCounters = `for _, key in ipairs(KEYS) do
  local generation
  for _, field in ipairs(redis.pcall('HGETALL', key)) do generation = generation or tonumber(string.match(field, '^(%d+):')) end
  if not generation or generation <= tonumber(ARGV[1]) then redis.call('UNLINK', key) end
end
return 0`

// ResetAll implements Store with SCAN and UNLINK: keys of one tenant, without
// stalling the others. Charges made meanwhile may or may not be forgotten.
func (s *Store) ResetAll(ctx context.Context, tenant string, upTo int64) error {
	prefix := string(store.AppendPrefix(nil, tenant))
	n, err := s.nodeSet.of(ctx, prefix)
	if err != nil {
		return err
	}
	pattern := globEscape(prefix) + "*"
	var counters []string
	stays := func(key string) bool {
		counter := strings.HasPrefix(key, prefix+store.CounterMark)
		if counter && upTo > 0 {
			counters = append(counters, key)
		}
		return counter || strings.HasPrefix(key, prefix+store.LoansMark)
	}
	err = scan(ctx, n.client, pattern, func(keys []string) error {
		keys = slices.DeleteFunc(keys, stays)
		var err error
		if len(keys) > 0 {
			err = n.client.Unlink(ctx, keys...).Err()
		}
		if err == nil && len(counters) > 0 {
			err = n.client.Eval(ctx, deleteCounters, counters, upTo).Err()
			counters = counters[:0]
		}
		return err
	})
	if err != nil {
		return classify(err)
	}
	// Last, so that who reads it and asks again finds the usage gone.
	if n, err = s.nodeSet.of(ctx, resetsKey); err != nil {
		return err
	}
	id := rand.Int64()
	if err := n.client.Set(ctx, resetsKey, id, resetsTTL).Err(); err != nil {
		return classify(err)
	}
	s.resets.Store(id)
	return nil
}

// scan hands the keys of a server that match pattern to each, a page after the other.
func scan(ctx context.Context, client client, pattern string, each func(keys []string) error) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := client.Scan(ctx, cursor, pattern, scanPage).Result()
		if err == nil {
			err = each(keys)
		}
		if err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Close closes the connections. Call it after Run has returned.
func (s *Store) Close() error { return s.nodeSet.close() }

// clientOptions are those of every client that charges: go-redis's defaults send a
// script up to four times when replies are lost, and wait seconds for each.
func clientOptions(o Options) *redis.UniversalOptions {
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
		Protocol:                 2,    // with 3 go-redis looks for notifications before each reply
		MaxRetries:               -1,
		MaxRedirects:             maxRedirects,
		ContextTimeoutEnabled:    true,
		DialTimeout:              dialTimeout,
		DialerRetries:            1,
		ReadTimeout:              max(ioTimeout, 4*o.Budget, 4*o.DeadAfter),
		WriteTimeout:             max(ioTimeout, 4*o.Budget, 4*o.DeadAfter),
		PoolTimeout:              poolTimeout,
		PoolSize:                 poolSize,
		MinIdleConns:             minIdle,
		PipelinePoolSize:         -1,
		ConnMaxIdleTime:          5 * time.Minute,
		ConnMaxLifetime:          time.Hour,
		ConnMaxLifetimeJitter:    10 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// clusterClient has one client for each server. It follows redirections, retries
// nothing, and does not send COMMAND.
func clusterClient(o Options) *redis.ClusterClient {
	c := clientOptions(o).Cluster()
	c.DisableRoutingPolicies = true
	return redis.NewClusterClient(c)
}
