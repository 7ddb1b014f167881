package limiter

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/quota"
)

const (
	// maxRedirects follows a slot that has moved, then one that is moving.
	maxRedirects = 2
	// tryAgain is the pause before a call whose keys are half moved is sent again.
	tryAgain = time.Millisecond
	// mostCanaries is how many probe keys are tried to find one on a primary. One that
	// holds a hundredth of the slots is found among 500 all but surely.
	mostCanaries = 1024
)

// cluster is the nodeSet of a Redis Cluster. Who holds which slot is learnt anew with
// each probe, and from redirections; a call waits for neither.
type cluster struct {
	client *redis.ClusterClient
	make   *nodes
	known  atomic.Pointer[map[*redis.Client]*node] // replaced, never changed
	// canaries has the probe keys in use, by their number. They belong to slots, not to
	// servers: a replica that takes over is asked for what its primary had confirmed.
	canaries map[int]*canary
}

var errNoMap = &StoreError{Reason: quota.ReasonRedisDown, Err: errors.New("no node of the redis cluster has reported its slots yet")}

func newCluster(o RedisOptions, f *nodes) *cluster {
	c := &cluster{client: clusterClient(o), make: f, canaries: map[int]*canary{}}
	c.known.Store(&map[*redis.Client]*node{})
	return c
}

// of implements nodeSet. It fails until the first probe has learnt the slots.
func (c *cluster) of(ctx context.Context, key string) (*node, error) {
	known := *c.known.Load()
	if len(known) == 0 {
		return nil, errNoMap
	}
	client, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, &StoreError{Reason: quota.ReasonRedisDown, Err: err}
	}
	if n := known[client]; n != nil {
		return n, nil
	}
	return c.learn(client), nil
}

// learn adds a primary that a redirection has shown before a probe did. It may be
// lost to another that is added at the same time, and is then added again.
func (c *cluster) learn(client *redis.Client) *node {
	known := c.known.Load()
	more := map[*redis.Client]*node{client: c.node(client)}
	for k, n := range *known {
		more[k] = n
	}
	if c.known.CompareAndSwap(known, &more) {
		return more[client]
	}
	if n := (*c.known.Load())[client]; n != nil {
		return n
	}
	return more[client]
}

func (c *cluster) node(client *redis.Client) *node {
	n := c.make.node(client)
	n.canary = nil
	n.carry = func(ctx context.Context, calls []Call, verdicts []Verdict) error {
		return c.carry(ctx, n, calls, verdicts)
	}
	return n
}

// current implements nodeSet.
func (c *cluster) current() []*node {
	var all []*node
	for _, n := range *c.known.Load() {
		all = append(all, n)
	}
	return all
}

// refresh implements nodeSet: it asks for the slots, and gives each primary a canary
// that lies in one of its own. It is for one goroutine.
func (c *cluster) refresh(ctx context.Context) ([]*node, error) {
	var mu sync.Mutex
	var clients []*redis.Client
	err := c.client.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		clients = append(clients, client)
		return nil
	})
	if err != nil {
		return nil, err
	}
	old, now := *c.known.Load(), map[*redis.Client]*node{}
	for _, client := range clients {
		if now[client] = old[client]; now[client] == nil {
			now[client] = c.node(client)
		}
	}
	for _, n := range now {
		n.canary = nil
	}
	c.mark(ctx, now)
	c.known.Store(&now)
	return c.current(), nil
}

// mark finds a canary for each primary, the lowest that lies with it. One that holds
// hardly a slot may stay without.
func (c *cluster) mark(ctx context.Context, primaries map[*redis.Client]*node) {
	missing := len(primaries)
	for i := 0; i < mostCanaries && missing > 0; i++ {
		key := c.canaryKey(i)
		client, err := c.client.MasterForKey(ctx, key)
		if err != nil {
			continue // no server holds that slot
		}
		n := primaries[client]
		if n == nil || n.canary != nil {
			continue
		}
		if c.canaries[i] == nil {
			c.canaries[i] = &canary{key: key}
		}
		n.canary = c.canaries[i]
		missing--
	}
}

func (c *cluster) canaryKey(i int) string {
	return probeKey + ":{" + strconv.Itoa(i) + "}:" + c.make.template.nonce
}

// close implements nodeSet.
func (c *cluster) close() error { return c.client.Close() }

// carry sends calls to a primary: one script call for each tenant, since a cluster
// runs no script across slots, all in one pipeline. What was answered with "not
// here" was not executed, and follows where the answer points.
func (c *cluster) carry(ctx context.Context, n *node, calls []Call, verdicts []Verdict) error {
	shardCalls := byTenant(calls)
	c.send(ctx, n, shardCalls)
	c.resend(ctx, n, shardCalls)
	failed := 0
	for _, t := range shardCalls {
		if elsewhere(t.err) {
			t.err = c.follow(ctx, n.budget, t)
		}
		err := t.outcome()
		if err != nil {
			failed++
		}
		t.gather(err, verdicts)
	}
	if failed == len(shardCalls) {
		return verdicts[0].Err
	}
	return nil
}

// shardCall is one script call on its way.
type shardCall struct {
	part
	nonce string
	args  []any
	reply any
	err   error
}

func (t *shardCall) outcome() error {
	if t.err != nil {
		e := classify(t.err)
		e.moving = elsewhere(t.err)
		return e
	}
	return readReply(t.reply, t.nonce, t.calls, t.verdicts)
}

// byTenant divides calls by what their keys' braces enclose, in order.
func byTenant(calls []Call) []*shardCall {
	var shardCalls []*shardCall
	index := make(map[string]*shardCall, len(calls))
	for i := range calls {
		tag := hashTag(calls[i].slotKey())
		t := index[tag]
		if t == nil {
			t = &shardCall{}
			index[tag], shardCalls = t, append(shardCalls, t)
		}
		t.add(i, &calls[i])
	}
	return shardCalls
}

// hashTag is the part of a key that decides its slot; our keys all have one.
func hashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// send sends shardCalls in one pipeline, each once.
func (c *cluster) send(ctx context.Context, n *node, shardCalls []*shardCall) {
	pipe := n.client.Pipeline()
	sent := make([]onceCmd, len(shardCalls))
	for i, t := range shardCalls {
		if t.args == nil {
			t.nonce, t.args = n.command(t.calls)
		}
		sent[i] = onceCmd{redis.NewCmd(ctx, t.args...)}
		_ = pipe.Process(ctx, sent[i]) // it only joins the pipeline
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, t := range shardCalls {
		t.reply, t.err = sent[i].Result()
	}
}

// resend brings the script to a server that has forgotten it, and the shardCalls after it
// that were not executed for that. The outcome of those without an answer is unknown; they
// are not among these.
func (c *cluster) resend(ctx context.Context, n *node, shardCalls []*shardCall) {
	var again []*shardCall
	for _, t := range shardCalls {
		if t.err != nil && strings.HasPrefix(t.err.Error(), noScript) {
			again = append(again, t)
		}
	}
	if len(again) == 0 {
		return
	}
	if err := n.reload(ctx); err != nil {
		for _, t := range again {
			t.err = err
		}
		return
	}
	c.send(ctx, n, again)
}

// follow sends a shard call to the server that holds its slot now, again and again while the slot
// is on its way. It stops while there is time for an answer: a call that is cut
// off on its way may have been charged, one that was answered "not here" was not.
func (c *cluster) follow(ctx context.Context, budget time.Duration, t *shardCall) error {
	last := t.err
	for enough(ctx, budget/4) {
		cmd := onceCmd{redis.NewCmd(ctx, t.args...)}
		err := c.client.Process(ctx, cmd)
		switch {
		case err == nil:
			t.reply = cmd.Val()
			return nil
		case strings.HasPrefix(err.Error(), noScript):
			if err := c.reload(ctx); err != nil {
				return err
			}
			continue
		case !elsewhere(err):
			return err
		}
		last = err
		select {
		case <-ctx.Done():
			return last
		case <-time.After(tryAgain):
		}
	}
	return last
}

// enough is whether ctx has that much time left.
func enough(ctx context.Context, least time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > least
}

// reload brings the script to every primary: the new home of a slot has not
// necessarily been probed.
func (c *cluster) reload(ctx context.Context) error {
	c.make.template.metrics.reloads.Add(ctx, 1)
	source := c.make.template.script.source
	return c.client.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.Process(ctx, onceCmd{redis.NewCmd(ctx, "SCRIPT", "LOAD", source)})
	})
}

// elsewhere is whether an error says that another server is to be asked, or the
// same one a moment later: the slot has moved or is moving.
func elsewhere(err error) bool {
	if reply := redis.Error(nil); !errors.As(err, &reply) {
		return false
	}
	for _, code := range [...]string{"MOVED ", "ASK ", "TRYAGAIN"} {
		if strings.HasPrefix(err.Error(), code) {
			return true
		}
	}
	return false
}
