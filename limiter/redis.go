package limiter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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

// RedisOptions says which Redis a RedisStore uses and how patient it is.
type RedisOptions struct {
	Addr string // host:port
	// Credentials are asked for at each new connection, so that a renewed
	// password needs no restart; nil, or an empty password, means none.
	Credentials func() (username, password string)
	TLS         *tls.Config // nil for none
	ClientName  string      // shown by CLIENT LIST, no spaces
	// Budget is how long a decision may take, queueing included; 0 means
	// DefaultRedisBudget.
	Budget time.Duration
	Logger *slog.Logger
	// script replaces the decision script in tests that move time by hand.
	script *script
}

// RedisStore is the Store on a region's Redis. A charge is sent once and never
// again by itself: only replies that mean "not executed" are followed by another
// attempt. Create it with NewRedisStore and keep Run running; it is safe for
// concurrent use.
type RedisStore struct {
	client    *redis.Client
	script    script
	budget    time.Duration
	breaker   *breaker
	collector *collector
	log       *slog.Logger
	metrics   *storeMetrics
	probed    atomic.Bool
	calls     atomic.Uint64 // numbers calls for their nonce
	nonce     string        // tells our calls from another process's
}

// NewRedisStore prepares a store. It does not dial: a region may start while its
// Redis is away.
func NewRedisStore(o RedisOptions, m *Metrics) (*RedisStore, error) {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return nil, fmt.Errorf("redis address %q: %w", o.Addr, err)
	}
	if o.Budget < 0 || o.Logger == nil || m == nil {
		return nil, errors.New("redis store: needs a logger and metrics, and no negative budget")
	}
	if o.Budget == 0 {
		o.Budget = DefaultRedisBudget
	}
	s := &RedisStore{
		client:  redis.NewClient(clientOptions(o)),
		script:  decideScript(),
		budget:  o.Budget,
		breaker: newBreaker(),
		log:     o.Logger,
		metrics: &m.store,
		nonce:   strconv.FormatUint(uint64(rand.Uint32()), 36),
	}
	if o.script != nil {
		s.script = *o.script
	}
	s.collector = &collector{budget: o.Budget, send: s.send}
	m.watchBreaker(s.breaker.open)
	return s, nil
}

// clientOptions are those of a client that charges: go-redis's defaults send a
// script up to four times when replies are lost, and wait seconds for each.
func clientOptions(o RedisOptions) *redis.Options {
	return &redis.Options{
		Addr:                  o.Addr,
		CredentialsProvider:   o.Credentials,
		TLSConfig:             o.TLS,
		ClientName:            o.ClientName,
		Protocol:              3,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           redisDialTimeout,
		DialerRetries:         1,
		ReadTimeout:           max(redisIOTimeout, o.Budget),
		WriteTimeout:          max(redisIOTimeout, o.Budget),
		PoolTimeout:           redisPoolTimeout,
		PoolSize:              redisPoolSize,
		MinIdleConns:          redisMinIdle,
		PipelinePoolSize:      -1,
		ConnMaxIdleTime:       5 * time.Minute,
		ConnMaxLifetime:       time.Hour,
		ConnMaxLifetimeJitter: 10 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Decide implements Store. The budget covers the wait behind other calls.
func (s *RedisStore) Decide(ctx context.Context, calls []Call, verdicts []Verdict) error {
	if s.breaker.open() {
		return &StoreError{Reason: quota.ReasonBreakerOpen, Err: errBreakerOpen}
	}
	err := s.collector.submit(ctx, calls, verdicts)
	if e := (*StoreError)(nil); errors.As(err, &e) && e.Ambiguous {
		s.metrics.ambiguous(len(calls))
	}
	return err
}

var errBreakerOpen = errors.New("the store failed a moment ago")

// send carries one batch to Redis and back, and tells the breaker how it went.
func (s *RedisStore) send(ctx context.Context, calls []Call, verdicts []Verdict) error {
	start := time.Now()
	err := s.evalsha(ctx, calls, verdicts)
	refused := err
	for i := range verdicts {
		if e := (*StoreError)(nil); errors.As(verdicts[i].Err, &e) {
			refused = e // Redis runs the script and refuses to write
		}
	}
	s.metrics.called(time.Since(start), len(calls), refused)
	if refused == nil {
		s.breaker.succeeded()
	} else {
		s.lose(refused)
	}
	return err
}

// lose opens the breaker, and says so once.
func (s *RedisStore) lose(why error) {
	if s.breaker.trip(time.Now()) {
		s.log.Warn("redis is away, fail modes answer until it is back", "error", why)
	}
}

func (s *RedisStore) evalsha(ctx context.Context, calls []Call, verdicts []Verdict) error {
	nonce := s.nonce + "." + strconv.FormatUint(s.calls.Add(1), 36)
	args := make([]any, 2, 16+12*len(calls))
	args[0], args[1] = "EVALSHA", s.script.sha
	args = appendCalls(args, nonce, calls)
	reply, err := s.once(ctx, args...)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		s.metrics.reloaded()
		if _, err = s.once(ctx, "SCRIPT", "LOAD", s.script.source); err == nil {
			reply, err = s.once(ctx, args...)
		}
	}
	if err != nil {
		return classify(err)
	}
	if err := parseReplies(reply, nonce, calls, verdicts); err != nil {
		return &StoreError{Reason: quota.ReasonRedisRefused, Ambiguous: true, Err: err}
	}
	return nil
}

// once sends a command exactly once, whatever happens to its reply.
func (s *RedisStore) once(ctx context.Context, args ...any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// onceCmd is a command that no kind of go-redis client sends again: MaxRetries
// alone does not bind a cluster client.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells go-redis so.
func (onceCmd) NoRetry() bool { return true }

// classify tells what an error says about the call: refused and certainly not
// executed, never sent, or sent with an unknown outcome.
func classify(err error) *StoreError {
	var (
		reply   redis.Error
		op      *net.OpError
		network net.Error
	)
	timeout := errors.As(err, &network) && network.Timeout() // context.DeadlineExceeded is one, too
	switch {
	case errors.As(err, &reply) && !errors.Is(err, redis.ErrClosed):
		return &StoreError{Reason: quota.ReasonRedisRefused, Err: err}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return &StoreError{Reason: quota.ReasonRedisTimeout, Err: err}
	case errors.Is(err, redis.ErrClosed):
		return &StoreError{Reason: quota.ReasonRedisDown, Err: err}
	case errors.As(err, &op) && op.Op == "dial" && !timeout:
		return &StoreError{Reason: quota.ReasonRedisDown, Err: err}
	case timeout:
		sent := op == nil || op.Op != "dial"
		return &StoreError{Reason: quota.ReasonRedisTimeout, Ambiguous: sent, Err: err}
	default:
		return &StoreError{Reason: quota.ReasonRedisDown, Ambiguous: true, Err: err}
	}
}

// Run keeps the script loaded and probes: each second while all is well, at once
// and then ten times a second while the breaker is open. It returns when ctx ends.
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
		case <-s.breaker.wake:
		}
		s.probe(ctx)
		timer.Reset(s.nextProbe())
	}
}

func (s *RedisStore) nextProbe() time.Duration {
	if s.breaker.open() {
		return probeInterval
	}
	return idleInterval
}

// Probed reports whether Run has asked Redis once, for better or worse: before
// that a first request would pay for dialling and for loading the script.
func (s *RedisStore) Probed() bool { return s.probed.Load() }

// probeKey is written by each probe: a Redis that is read-only or out of memory
// answers PING all the same.
const probeKey = "rl:probe"

func (s *RedisStore) probe(ctx context.Context) {
	// Dialling anew takes more than a decision's budget; a probe may.
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	err := s.client.Set(ctx, probeKey, 1, ttlMargin).Err()
	if err == nil {
		err = s.load(ctx)
	}
	if err == nil {
		start := time.Now()
		if err = s.client.Ping(ctx).Err(); err == nil && time.Since(start) > s.budget {
			err = fmt.Errorf("redis answers in %v, the budget is %v", time.Since(start).Round(time.Millisecond), s.budget)
		}
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled): // stopping
	case err != nil:
		s.lose(err)
	case s.breaker.probed(time.Now()):
		s.log.Info("redis is back, decisions are exact again")
	}
}

func (s *RedisStore) load(ctx context.Context) error {
	known, err := s.client.ScriptExists(ctx, s.script.sha).Result()
	if err != nil {
		return err
	}
	if len(known) == 1 && known[0] {
		return nil
	}
	return s.client.ScriptLoad(ctx, s.script.source).Err()
}

// advise warns of a Redis that may forget counters under memory pressure.
func (s *RedisStore) advise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, redisDialTimeout)
	defer cancel()
	info, err := s.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return // the probe reports what is wrong; INFO may also be denied by the ACL
	}
	if p := info["Memory"]["maxmemory_policy"]; p != "" && p != "noeviction" {
		s.log.Warn("redis may evict usage under memory pressure, which resets limits; set maxmemory-policy noeviction",
			"maxmemory_policy", p)
	}
}

// Available reports whether the store was answering when last asked.
func (s *RedisStore) Available() bool { return !s.breaker.open() }

// TimeUS reads the store's clock, microseconds since the epoch.
func (s *RedisStore) TimeUS(ctx context.Context) (int64, error) {
	t, err := s.client.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("read the time of redis: %w", err)
	}
	return t.UnixMicro(), nil
}

// Reset implements Store with SCAN and UNLINK: keys of one tenant, without
// stalling the others. Charges made meanwhile may or may not be forgotten.
func (s *RedisStore) Reset(ctx context.Context, prefix string) error {
	pattern := globEscape(prefix) + "*"
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := s.client.Scan(ctx, cursor, pattern, 1000).Result()
		if err == nil && len(keys) > 0 {
			err = s.client.Unlink(ctx, keys...).Err()
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
func (s *RedisStore) Close() error { return s.client.Close() }
