package limiter

import (
	"context"
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
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// node is one server that decides, or the one that sentinels name. It has a breaker
// and a queue of its own, so that one primary of a cluster that is away costs the
// tenants of the others nothing.
//
//	Decide ─▶ breaker ─▶ collector ─ send ─▶ carry ─▶ client
type node struct {
	client    *redis.Client
	script    script
	budget    time.Duration
	breaker   *breaker
	collector *collector
	log       *slog.Logger
	metrics   *storeMetrics
	calls     *atomic.Uint64 // numbers calls for their nonce
	nonce     string         // distinguishes our calls from those of other processes
	canary    *canary        // of the prober's goroutine
	// carry brings calls to the server and their verdicts back.
	carry func(ctx context.Context, calls []Call, verdicts []Verdict) error
}

// nodes makes the nodes of one store.
type nodes struct {
	template node
	wake     chan struct{}
	tracer   trace.Tracer // nil while tracing is off
}

func newNodes(o RedisOptions, wake chan struct{}, m *storeMetrics) *nodes {
	f := &nodes{wake: wake, tracer: o.Tracer, template: node{
		script: decideScript(), budget: o.Budget, log: o.Logger, metrics: m,
		calls: new(atomic.Uint64), nonce: strconv.FormatUint(uint64(rand.Uint32()), 36),
	}}
	if o.script != nil {
		f.template.script = *o.script
	}
	return f
}

// node returns a node on a client.
func (f *nodes) node(client *redis.Client) *node {
	n := f.template
	n.client, n.breaker = client, newBreaker(f.wake)
	n.canary = &canary{key: probeKey + ":" + n.nonce}
	n.collector = &collector{budget: n.budget, send: n.send, spans: newScriptSpans(f.tracer, client.Options().Addr)}
	n.carry = n.evalsha
	return &n
}

func (n *node) decide(ctx context.Context, calls []Call, verdicts []Verdict) error {
	if n.breaker.open() {
		return &StoreError{Reason: quota.ReasonBreakerOpen, Err: errBreakerOpen}
	}
	return n.collector.submit(ctx, calls, verdicts)
}

var errBreakerOpen = errors.New("the store failed a moment ago")

// send carries one batch to Redis and back, and reports the result to the breaker.
func (n *node) send(ctx context.Context, calls []Call, verdicts []Verdict) error {
	start := time.Now()
	err := n.carry(ctx, calls, verdicts)
	refused := fault(err)
	for i := range verdicts {
		if e := fault(verdicts[i].Err); e != nil {
			refused = e // Redis runs the script and refuses to write
		}
	}
	n.metrics.called(ctx, time.Since(start), len(calls), refused)
	if refused == nil {
		n.breaker.succeeded()
	} else {
		n.lose(refused)
	}
	return err
}

// fault returns err if it counts as a failure of the server, and nil for an error of a
// single partition or of a slot that is being migrated.
func fault(err error) error {
	if e := (*StoreError)(nil); errors.As(err, &e) && !e.moving {
		return e
	}
	return nil
}

// lose opens the breaker and logs it once.
func (n *node) lose(why error) {
	if n.breaker.trip(time.Now()) {
		n.metrics.outages.Add(context.Background(), 1)
		n.log.Warn("redis is away, fail modes decide until it is back", "error", why)
	}
}

// evalsha runs the script for calls whose keys may all be asked together.
func (n *node) evalsha(ctx context.Context, calls []Call, verdicts []Verdict) error {
	nonce, args := n.command(calls)
	reply, err := n.once(ctx, args...)
	if err != nil && strings.HasPrefix(err.Error(), noScript) {
		if err = n.reload(ctx); err == nil {
			reply, err = n.once(ctx, args...)
		}
	}
	if err != nil {
		return classify(err)
	}
	return readReply(reply, nonce, calls, verdicts)
}

// command is the script's command for calls, and the nonce that its reply must bear.
func (n *node) command(calls []Call) (nonce string, args []any) {
	nonce = n.nonce + "." + strconv.FormatUint(n.calls.Add(1), 36)
	args = make([]any, 2, 16+12*len(calls))
	args[0], args[1] = "EVALSHA", n.script.sha
	return nonce, appendCalls(args, nonce, calls)
}

// readReply parses a reply. With another nonce the outcome of the calls is unknown.
func readReply(reply any, nonce string, calls []Call, verdicts []Verdict) error {
	if err := parseReplies(reply, nonce, calls, verdicts); err != nil {
		return &StoreError{Reason: quota.ReasonRedisRefused, Ambiguous: true, Err: err}
	}
	return nil
}

// once sends a command exactly once, whatever happens to its reply.
func (n *node) once(ctx context.Context, args ...any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	if err := n.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// reload brings the script to a server that has forgotten it.
func (n *node) reload(ctx context.Context) error {
	n.metrics.reloads.Add(ctx, 1)
	_, err := n.once(ctx, "SCRIPT", "LOAD", n.script.source)
	return err
}

// onceCmd is a command that no kind of go-redis client sends again: MaxRetries
// alone does not bind a cluster client.
type onceCmd struct{ *redis.Cmd }

// NoRetry implements an interface of go-redis.
func (onceCmd) NoRetry() bool { return true }

const noScript = "NOSCRIPT"

// classify derives from an error what became of the call: refused and certainly not
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

// probe asks for all that a decision needs.
func (n *node) probe(ctx context.Context) {
	err := n.mark(ctx)
	if err == nil {
		err = n.load(ctx)
	}
	if err == nil {
		start := time.Now()
		if err = n.client.Ping(ctx).Err(); err == nil && time.Since(start) > n.budget {
			err = fmt.Errorf("redis answers in %v, the budget is %v", time.Since(start).Round(time.Millisecond), n.budget)
		}
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled): // stopping
	case err != nil:
		n.lose(err)
	case n.breaker.probed(time.Now()):
		n.log.Info("redis is back, decisions are exact again")
	}
}

func (n *node) load(ctx context.Context) error {
	known, err := n.client.ScriptExists(ctx, n.script.sha).Result()
	if err != nil {
		return err
	}
	if len(known) == 1 && known[0] {
		return nil
	}
	return n.client.ScriptLoad(ctx, n.script.source).Err()
}

// advise warns of a server that may forget counters under memory pressure.
func (n *node) advise(ctx context.Context) {
	info, err := n.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return // the probe reports what is wrong; INFO may also be denied by the ACL
	}
	if p := info["Memory"]["maxmemory_policy"]; p != "" && p != "noeviction" {
		n.log.Warn("redis may evict usage under memory pressure, which resets limits; set maxmemory-policy noeviction",
			"maxmemory_policy", p)
	}
}

func (n *node) timeUS(ctx context.Context) (int64, error) {
	t, err := n.client.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("read the time of redis: %w", err)
	}
	return t.UnixMicro(), nil
}

const (
	// probeKey begins the keys that probes write: a Redis that is read-only or out of
	// memory answers PING all the same.
	probeKey = "rl:probe"
	// canaryTTL outlives every outage that a canary is to be compared across.
	canaryTTL = 10 * time.Minute
)

// canary is a number that only this process writes, one higher with each probe. A
// server that shows an older one, or none, has lost what it had confirmed: it was
// flushed, started again without its data, or a replica took over that was behind.
type canary struct {
	key       string
	confirmed int64     // the newest number that was confirmed; 0 for none
	at        time.Time // when it was
}

// mark writes the next number and looks at the one before. The writes between two
// probes are how precise it is.
func (n *node) mark(ctx context.Context) error {
	m := n.canary
	if m == nil {
		return nil
	}
	pipe := n.client.Pipeline()
	before := pipe.Get(ctx, m.key)
	pipe.Set(ctx, m.key, m.confirmed+1, canaryTTL)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	held, _ := strconv.ParseInt(before.Val(), 10, 64)
	if held < m.confirmed && time.Since(m.at) < canaryTTL-ttlMargin {
		n.metrics.losses.Add(ctx, 1)
		n.log.Warn("redis has lost writes that it had confirmed; limits may admit that much again within a window",
			"confirmed_before", time.Since(m.at).Round(time.Millisecond))
	}
	m.confirmed, m.at = m.confirmed+1, time.Now()
	return nil
}
