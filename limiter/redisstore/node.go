package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/redisstore/queue"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// node is one server that decides, or the one that sentinels name. It has a breaker
// and a queue of its own, so that one primary of a cluster that is away costs the
// tenants of the others nothing.
//
//	decide ─▶ breaker ─▶ queue ─▶ send ─▶ scriptCall: EVALSHA, one or a pipeline of them
type node struct {
	client  client
	addr    string // as it was configured, or learnt from another server of a cluster
	script  script
	budget  time.Duration
	breaker *breaker
	queue   *queue.Queue
	log     *slog.Logger
	metrics *metrics
	calls   *atomic.Uint64        // numbers calls for their nonce
	nonce   string                // distinguishes our calls from those of other processes
	place   atomic.Pointer[place] // set by the prober; nil: it has none
	checked time.Time             // when the user was last found to have all rights; the prober's, as lacks
	lacks   string                // what it was last found to lack, "" for nothing
	unknown func(context.Context) // Options.Unknown
	cluster rerouter              // nil for a server that holds all keys
	ahead   atomic.Int64          // µs by which TIME was ahead of this host's clock when the server last answered
}

// client is what is used of a *redis.Client. A node does not name that type, nor does rerouter: every package that has a Store
// would be compiled with 1,500 of its methods.
type client interface {
	processor
	Close() error
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	Get(ctx context.Context, key string) *redis.StringCmd
	InfoMap(ctx context.Context, sections ...string) *redis.InfoCmd
	Ping(ctx context.Context) *redis.StatusCmd
	Pipeline() redis.Pipeliner
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
	ScriptExists(ctx context.Context, hashes ...string) *redis.BoolSliceCmd
	Set(ctx context.Context, key string, value any, expiration time.Duration) *redis.StatusCmd
	Time(ctx context.Context) *redis.TimeCmd
	Unlink(ctx context.Context, keys ...string) *redis.IntCmd
}

// processor is a client of one server, or of a cluster.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// rerouter is the cluster that a node is part of.
type rerouter interface {
	// once sends a command to the server that holds its key now.
	once(ctx context.Context, args ...any) (any, error)
	// reload has n bring its script to every primary.
	reload(ctx context.Context, n *node) error
}

// newNodes returns what makes the nodes of one store.
func newNodes(o Options, wake chan struct{}, m *metrics) func(client *redis.Client) *node {
	decide := decideScript(o.TimeLua, o.Epoch)
	calls, nonce := new(atomic.Uint64), strconv.FormatUint(uint64(rand.Uint32()), 36)
	return func(client *redis.Client) *node {
		n := &node{
			client: client, addr: client.Options().Addr, script: decide, budget: o.Budget, breaker: &breaker{wake: wake},
			log: o.Logger, metrics: m, calls: calls, nonce: nonce, unknown: o.Unknown,
		}
		n.queue = queue.New(queue.Options{
			Budget: o.Budget, DeadAfter: o.DeadAfter, Send: n.send, Ping: n.ping, Dead: n.lose, Tracer: o.Tracer, Addr: n.addr,
		})
		return n
	}
}

// decide fills the verdicts of calls.
func (n *node) decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if n.breaker.open() {
		store.Fail(verdicts, errBreakerOpen)
		return
	}
	n.queue.Submit(ctx, calls, verdicts)
}

var (
	errAway        = errors.New("the store failed a moment ago")
	errBreakerOpen = &store.Error{Reason: quota.ReasonBreakerOpen, Err: errAway}
)

// send is Send of the queue. It reports the result to the breaker.
func (n *node) send(ctx context.Context, calls []store.Call, verdicts []store.Verdict) (endedUS int64) {
	start := time.Now()
	endedUS = n.exec(ctx, calls, verdicts)
	took := time.Since(start)
	var refused *store.Error
	for i := range verdicts {
		if e := fault(verdicts[i].Err); e != nil {
			refused = e // of the server, or Redis runs the script and refuses to write
		}
	}
	n.metrics.called(ctx, took, len(calls), refused)
	if refused != nil && refused.Reason != quota.ReasonRedisTimeout { // late is the watchdog's to judge
		n.lose(refused)
	}
	return endedUS
}

// fault returns err if it counts as a failure of the server, and nil for an error of a
// single partition, of a slot that is being migrated, or of a call that was not sent.
func fault(err error) *store.Error {
	if e, ok := errors.AsType[*store.Error](err); ok && !errors.Is(e, errMoving) && e.Reason != quota.ReasonOverloaded {
		return e
	}
	return nil
}

// errMoving is part of an error of another server than the one that was asked.
var errMoving = errors.New("the slot has moved or is moving")

// lose opens the breaker, logs it once, and answers all that wait.
func (n *node) lose(why *store.Error) {
	if n.breaker.trip(time.Now()) {
		n.metrics.outages.Add(1)
		n.log.Warn("redis is away, fail modes decide until it is back", "error", why)
	}
	n.queue.Drain(&store.Error{Reason: why.Reason, Err: errAway})
}

// scriptCall is one EVALSHA on its way: some calls of a batch.
type scriptCall struct {
	subset
	nonce string // of the command that was sent last
	reply any
	err   error
}

// exec runs the script for calls: once, or in a cluster once for each tenant, since a
// script runs across no slots, all in one pipeline. It returns when this server had done so, 0
// if it did not do so alone.
func (n *node) exec(ctx context.Context, calls []store.Call, verdicts []store.Verdict) (endedUS int64) {
	parts := []*scriptCall{{subset: subset{calls: calls, verdicts: verdicts}}}
	if n.cluster != nil {
		parts = byTenant(calls)
	}
	endedUS = n.pipeline(ctx, parts)
	if again := forgotten(parts); len(again) > 0 { // not executed: the server does not know the script
		if err := n.reload(ctx, n.client); err == nil {
			endedUS = n.pipeline(ctx, again)
		} else {
			for _, p := range again {
				p.err = err
			}
		}
	}
	if n.cluster != nil && slices.ContainsFunc(parts, func(p *scriptCall) bool { return elsewhere(p.err) }) {
		n.follow(ctx, parts)
		endedUS = 0
	}
	for _, p := range parts {
		n.finish(ctx, p, mostOtherTimes)
		p.gather(verdicts)
	}
	return endedUS
}

// mostOtherTimes is how often calls are sent again for errOtherTime: the answer has said what TIME it is.
const mostOtherTimes = 2

// finish fills the verdicts of a script call, and sends again what took TIME for another.
func (n *node) finish(ctx context.Context, p *scriptCall, times int) {
	if err := p.outcome(); err != nil {
		store.Fail(p.verdicts, err)
		return
	}
	n.ahead.Store(p.verdicts[0].StoreUS - time.Now().UnixMicro())
	again := &scriptCall{}
	for i := range p.verdicts {
		if errors.Is(p.verdicts[i].Err, errOtherTime) {
			again.add(i, &p.calls[i])
		}
	}
	if len(again.calls) > 0 && times > 0 {
		n.pipeline(ctx, []*scriptCall{again})
		n.finish(ctx, again, times-1)
		again.gather(p.verdicts)
	}
}

// pipeline sends each once, together, and returns when the server had run them, 0 if it did not answer.
func (n *node) pipeline(ctx context.Context, parts []*scriptCall) (endedUS int64) {
	pipe := n.client.Pipeline()
	sent := make([]onceCmd, len(parts))
	for i, p := range parts {
		sent[i] = onceCmd{redis.NewCmd(ctx, n.command(p)...)}
		_ = pipe.Process(ctx, sent[i]) // it only joins the pipeline
	}
	ended := pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, p := range parts {
		p.reply, p.err = sent[i].Result()
		if all, _ := p.reply.([]any); len(all) > 0 {
			p.err = nil // go-redis fails all of a pipeline whose connection breaks behind a reply
		}
	}
	if ended.Err() != nil {
		return 0
	}
	return ended.Val().UnixMicro()
}

// fence is a bound for a call that is sent now.
func (n *node) fence(b quota.Bound) quota.Bound {
	switch at := n.place.Load(); {
	case at == nil:
		return b.Within(0, 0, false)
	case at.clock == nil: // nobody watches it
		return b
	default:
		return b.Within(at.clock.Fence(b.Epoch, n.budget))
	}
}

// forgotten returns those that were not executed because the server does not know the script.
func forgotten(parts []*scriptCall) (again []*scriptCall) {
	for _, p := range parts {
		if p.err != nil && strings.HasPrefix(p.err.Error(), noScript) {
			again = append(again, p)
		}
	}
	return again
}

// outcome fills the verdicts from the reply. With another nonce the outcome is unknown.
func (p *scriptCall) outcome() error {
	if p.err != nil {
		return classify(p.err)
	}
	if err := parseReplies(p.reply, p.nonce, p.calls, p.verdicts); err != nil {
		return &store.Error{Reason: quota.ReasonRedisRefused, Ambiguous: true, Err: err}
	}
	return nil
}

// command is the script's command for a call that is sent now. The reply must bear its nonce.
func (n *node) command(p *scriptCall) (args []any) {
	p.nonce = n.nonce + "." + strconv.FormatUint(n.calls.Add(1), 36)
	args = make([]any, 2, 16+12*len(p.calls))
	args[0], args[1] = "EVALSHA", n.script.sha
	return appendCalls(args, p.nonce, p.calls, time.Now().UnixMicro()+n.ahead.Load(), n.fence)
}

// once sends a command exactly once, whatever happens to its reply.
func once(ctx context.Context, client processor, args ...any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	if err := client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// reload brings the script to a server that has forgotten it.
func (n *node) reload(ctx context.Context, client processor) error {
	n.metrics.reloads.Add(1)
	return n.bring(ctx, client)
}

// bring brings the script to a server that does not know it.
func (n *node) bring(ctx context.Context, client processor) error {
	if n.unknown != nil {
		n.unknown(ctx)
	}
	_, err := once(ctx, client, "SCRIPT", "LOAD", n.script.source)
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
func classify(err error) *store.Error {
	var (
		reply   redis.Error
		op      *net.OpError
		network net.Error
	)
	timeout := errors.As(err, &network) && network.Timeout() // context.DeadlineExceeded is one, too
	switch {
	case errors.Is(err, errMoving) && elsewhere(err): // asked again until there was no time left: refused by no server, and not executed
		return &store.Error{Reason: quota.ReasonRedisTimeout, Err: err}
	case errors.As(err, &reply) && !errors.Is(err, redis.ErrClosed):
		return &store.Error{Reason: quota.ReasonRedisRefused, Err: err}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted): // that says nothing of the server
		return &store.Error{Reason: quota.ReasonOverloaded, Err: err}
	case errors.Is(err, redis.ErrClosed), errors.As(err, &op) && op.Op == "dial" && !timeout:
		return &store.Error{Reason: quota.ReasonRedisDown, Err: err}
	case timeout:
		sent := op == nil || op.Op != "dial"
		return &store.Error{Reason: quota.ReasonRedisTimeout, Ambiguous: sent, Err: err}
	default:
		return &store.Error{Reason: quota.ReasonRedisDown, Ambiguous: true, Err: err}
	}
}

// probe asks for all that a decision needs. A server that is slow to answer stays in use,
// and one that was away is not used again until it answers in time.
func (n *node) probe(ctx context.Context) {
	before := n.queue.LastAnswered()
	err := n.write(ctx)
	if err == nil {
		err = n.load(ctx)
	}
	start := time.Now()
	if err == nil {
		err = n.client.Ping(ctx).Err()
	}
	failed := classify(err)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled): // stopping
	case err != nil && (failed.Reason == quota.ReasonOverloaded || failed.Reason == quota.ReasonRedisTimeout &&
		(n.queue.LastAnswered() != before || n.queue.Patience() > dialTimeout)):
		// It was not asked, answers others, or has more time than a probe.
	case err != nil:
		n.lose(failed)
	case time.Since(start) <= n.queue.Patience() && n.breaker.probed(time.Now()):
		n.log.Info("redis is back, decisions are exact again")
	}
}

// ping asks for a sign of life. An error that is a reply is one too.
func (n *node) ping(ctx context.Context) *store.Error {
	err := n.client.Ping(ctx).Err()
	if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
		return nil
	}
	return classify(err)
}

func (n *node) load(ctx context.Context) error {
	known, err := n.client.ScriptExists(ctx, n.script.sha).Result()
	if err != nil {
		return err
	}
	if len(known) == 1 && known[0] {
		return nil
	}
	return n.bring(ctx, n.client)
}

// advise warns of a server that may forget counters under memory pressure.
func (n *node) advise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	info, err := n.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return // the probe reports what is wrong; INFO may also be denied by the ACL
	}
	if p := info["Memory"]["maxmemory_policy"]; p != "" && p != "noeviction" {
		n.log.Warn("redis may evict usage under memory pressure, which resets limits; set maxmemory-policy noeviction",
			"maxmemory_policy", p)
	}
}
