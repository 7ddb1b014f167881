package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/redisstore/queue"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

const (
	// maxRedirects follows a slot that has moved, then one that is moving.
	maxRedirects = 2
	// tryAgain is the pause before a call whose keys are half moved is sent again.
	tryAgain = time.Millisecond
	// mostTags is how many tags are tried to find one of a primary's own. One that
	// holds a hundredth of the slots is found among 500 all but surely.
	mostTags = 1024
)

// cluster is the nodeSet of a Redis Cluster. Who holds which slot is learnt anew with
// each probe, and from redirections; a call waits for neither.
type cluster struct {
	client *redis.ClusterClient
	make   func(*redis.Client) *node
	learnt atomic.Bool       // the slots are known
	known  sync.Map          // *redis.Client → *node
	home   *clock.Clock      // of the primary that holds regionKey
	places map[string]*place // of the others, by their tags
}

var errNoMap = &store.Error{Reason: quota.ReasonRedisDown, Err: errors.New("no node of the redis cluster has reported its slots yet")}

func newCluster(o Options, node func(*redis.Client) *node) *cluster {
	return &cluster{client: clusterClient(o), make: node, home: o.Clock, places: map[string]*place{}}
}

// of implements nodeSet. It fails until the first probe has learnt the slots.
func (c *cluster) of(ctx context.Context, key string) (*node, error) {
	if !c.learnt.Load() {
		return nil, errNoMap
	}
	client, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, &store.Error{Reason: quota.ReasonRedisDown, Err: err}
	}
	return c.node(client), nil
}

// node returns the node of a primary, a new one when a probe or a redirection has shown
// the primary for the first time.
func (c *cluster) node(client *redis.Client) *node {
	if n, ok := c.known.Load(client); ok {
		return n.(*node)
	}
	made := c.make(client)
	made.cluster = c
	made.queue.Apart()
	n, _ := c.known.LoadOrStore(client, made)
	return n.(*node)
}

// current implements nodeSet.
func (c *cluster) current() []*node {
	if !c.learnt.Load() {
		return nil
	}
	var all []*node
	c.known.Range(func(_, n any) bool {
		all = append(all, n.(*node))
		return true
	})
	return all
}

// refresh implements nodeSet: it asks for the slots, and finds a place for each primary.
// It is for one goroutine.
func (c *cluster) refresh(ctx context.Context) ([]*node, error) {
	var mu sync.Mutex
	primaries := map[*redis.Client]*node{}
	err := c.client.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		primaries[client] = c.node(client)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.known.Range(func(client, _ any) bool {
		if primaries[client.(*redis.Client)] == nil {
			c.known.Delete(client)
		}
		return true
	})
	c.findPlaces(ctx, primaries)
	c.learnt.Store(len(primaries) > 0)
	return slices.Collect(maps.Values(primaries)), nil
}

// findPlaces gives each primary the lowest tag whose slot it has. One that holds hardly a slot may stay without.
func (c *cluster) findPlaces(ctx context.Context, primaries map[*redis.Client]*node) {
	home, _ := c.client.MasterForKey(ctx, regionKey)
	found := map[*node]bool{}
	for i := 0; i < mostTags && len(found) < len(primaries); i++ {
		tag := strconv.Itoa(i)
		client, err := c.client.MasterForKey(ctx, "{"+tag+"}")
		if err != nil {
			continue // no server holds that slot
		}
		n := primaries[client]
		if n == nil || found[n] {
			continue
		}
		found[n] = true
		if client == home {
			n.place.Store(&place{tag: tag, clock: c.home})
			continue
		}
		if c.places[tag] == nil {
			c.places[tag] = &place{tag: tag}
			if c.home != nil {
				c.places[tag].clock, _ = clock.New(clock.Options{Now: c.home.Now, Logger: n.log}) // fails only with a Meter
			}
		}
		n.place.Store(c.places[tag])
	}
	for _, n := range primaries {
		if !found[n] {
			n.place.Store(nil)
		}
	}
}

// once implements rerouter.
func (c *cluster) once(ctx context.Context, args ...any) (any, error) {
	return once(ctx, c.client, args...)
}

// reload implements rerouter.
func (c *cluster) reload(ctx context.Context, n *node) error {
	return c.client.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error { return n.reload(ctx, client) })
}

// close implements nodeSet.
func (c *cluster) close() error { return c.client.Close() }

// byTenant divides calls by what their keys' braces enclose, in order.
func byTenant(calls []store.Call) []*scriptCall {
	var parts []*scriptCall
	index := make(map[string]*scriptCall, len(calls))
	for i := range calls {
		tag := hashTag(calls[i].Keys[0])
		t := index[tag]
		if t == nil {
			t = &scriptCall{}
			index[tag], parts = t, append(parts, t)
		}
		t.add(i, &calls[i])
		if c := &t.calls[len(t.calls)-1]; c.Record != "" {
			c.Record = recordBeside(c.Keys[0], c.Record)
		}
	}
	return parts
}

// recordBeside is where the record of a call with a key is: the tenant's own slot may be another.
func recordBeside(key, record string) string {
	if hashTag(record) != hashTag(key) {
		return store.RecordKey("", record)
	}
	return record
}

// hashTag is the part of a key that decides its slot; our keys all have one.
func hashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// follow sends what has moved to where it is now, some at once, in half of the budget: those
// of a call that did not move wait for all of them.
func (n *node) follow(ctx context.Context, parts []*scriptCall) {
	ctx, cancel := context.WithTimeout(ctx, n.budget/2)
	defer cancel()
	var wg sync.WaitGroup
	turns := make(chan struct{}, queue.MostCalls) // fewer than a server has connections
	for _, p := range parts {
		if !elsewhere(p.err) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			if p.err = n.followOne(ctx, p); p.err != nil {
				p.err = fmt.Errorf("%w: %w", errMoving, p.err)
			}
			<-turns
		})
	}
	wg.Wait()
}

// followOne sends a script call to the server that holds its slot now, again and again while
// the slot is on its way. It stops while there is time for an answer: a call that is cut
// off on its way may have been charged, one that was answered "not here" was not.
func (n *node) followOne(ctx context.Context, p *scriptCall) error {
	deadline, _ := ctx.Deadline()
	last := p.err
	for time.Until(deadline) > n.budget/8 {
		reply, err := n.cluster.once(ctx, n.command(p)...)
		switch {
		case err == nil:
			p.reply = reply
			return nil
		case strings.HasPrefix(err.Error(), noScript): // its new home has not necessarily been probed
			if err := n.cluster.reload(ctx, n); err != nil {
				return err
			}
		case !elsewhere(err):
			return err
		default:
			last = err
			time.Sleep(tryAgain)
		}
	}
	return last
}

// elsewhere is whether an error says that another server is to be asked, or the
// same one a moment later: the slot has moved or is moving.
func elsewhere(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply) && slices.ContainsFunc([]string{"MOVED ", "ASK ", "TRYAGAIN"}, func(code string) bool {
		return strings.HasPrefix(reply.Error(), code)
	})
}
