package redisserver

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	slots            = 16384
	// formWithin bounds the wait for a cluster to agree, or for a replica to take over.
	formWithin = 30 * time.Second
)

// Cluster is a Redis Cluster of three primaries with a replica each, on loopback.
// It is for the test's own goroutine.
type Cluster struct {
	t       TB
	Servers []*Server // primaries first, then the replica of each
}

// StartCluster starts a cluster whose nodes consider another dead after timeout, and
// returns when all of it is there. args go to every server.
func StartCluster(t TB, timeout time.Duration, args ...string) *Cluster {
	t.Helper()
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
		"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1", // a replica is shown from its first byte on, which may be a ping
	}, args...)
	c := &Cluster{t: t}
	for range 2 * clusterPrimaries {
		c.Servers = append(c.Servers, Start(t, Options{Args: args}))
	}
	c.form()
	return c
}

func (c *Cluster) form() {
	c.t.Helper()
	ctx := context.Background()
	for i, s := range c.Servers {
		// With epochs of their own they have nothing to settle.
		c.must(s.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(), "set an epoch")
		if i < clusterPrimaries {
			from, to := i*slots/clusterPrimaries, (i+1)*slots/clusterPrimaries-1
			c.must(s.client.ClusterAddSlotsRange(ctx, from, to).Err(), "add slots")
		}
	}
	c.meet(c.Servers)
	c.await("every node to know the others", func() bool {
		for _, s := range c.Servers {
			nodes, err := s.client.ClusterNodes(ctx).Result()
			if err != nil || strings.Count(nodes, "\n") != len(c.Servers) || strings.Contains(nodes, "handshake") {
				return false
			}
		}
		return true
	})
	for i := range clusterPrimaries {
		id := c.ID(c.Servers[i])
		c.await("a replica to follow", func() bool {
			return c.Servers[clusterPrimaries+i].client.ClusterReplicate(ctx, id).Err() == nil
		})
	}
	c.meet(c.Servers[clusterPrimaries:]) // who meets, tells whom it follows
	c.await("the cluster to be whole", c.whole)
}

// meet introduces nodes to all others: by gossip alone, that takes seconds.
func (c *Cluster) meet(nodes []*Server) {
	c.t.Helper()
	for _, s := range nodes {
		for _, o := range c.Servers {
			if host, port, _ := net.SplitHostPort(o.Addr()); o != s {
				c.must(s.client.ClusterMeet(context.Background(), host, port).Err(), "meet")
			}
		}
	}
}

// whole is whether every node finds the cluster well, and every primary has its
// replica at hand.
func (c *Cluster) whole() bool {
	for i, s := range c.Servers {
		ctx := context.Background()
		info, err := s.client.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
			return false
		}
		told, err := s.ranges(ctx)
		if err != nil || len(told) != clusterPrimaries {
			return false
		}
		for _, r := range told {
			if len(r.Nodes) != 2 {
				return false
			}
		}
		role, err := s.client.Info(ctx, "replication").Result()
		if err != nil || i < clusterPrimaries && !strings.Contains(role, "state=online") ||
			i >= clusterPrimaries && !strings.Contains(role, "master_link_status:up") {
			return false
		}
	}
	return true
}

// ranges are the slots and their owners, as this node sees them. CLUSTER SHARDS, for which
// the client has a method, is missing before Redis 7.
func (s *Server) ranges(ctx context.Context) ([]redis.ClusterSlot, error) {
	cmd := redis.NewClusterSlotsCmd(ctx, "CLUSTER", "SLOTS")
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// ID is the name that a node has in the cluster.
func (c *Cluster) ID(s *Server) string {
	c.t.Helper()
	id, err := s.client.Do(context.Background(), "CLUSTER", "MYID").Text()
	c.must(err, "ask for the id")
	return id
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	for _, s := range c.Servers {
		if slot, err := s.client.ClusterKeySlot(context.Background(), key).Result(); err == nil {
			return int(slot)
		}
	}
	c.t.Fatal("no node of the cluster computes the slot of a key")
	return 0
}

// Primary is the node that holds a slot, as a majority of the nodes that answer
// sees it; nil while they do not agree.
func (c *Cluster) Primary(slot int) *Server {
	votes := map[string]int{}
	for _, s := range c.Servers {
		told, err := s.ranges(context.Background())
		for _, r := range told {
			if err == nil && r.Start <= slot && slot <= r.End {
				votes[r.Nodes[0].Addr]++
			}
		}
	}
	for _, s := range c.Servers {
		if 2*votes[s.Addr()] > len(c.Servers) {
			return s
		}
	}
	return nil
}

// Owner is Primary, once they agree: replicas learn of a move by gossip.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	var owner *Server
	c.await("nodes to agree on the owner of a slot", func() bool {
		owner = c.Primary(slot)
		return owner != nil
	})
	return owner
}

// Replica is a node that follows a primary.
func (c *Cluster) Replica(primary *Server) *Server {
	c.t.Helper()
	id := c.ID(primary)
	for _, s := range c.Servers {
		nodes, err := s.client.ClusterNodes(context.Background()).Result()
		if err != nil {
			continue
		}
		for line := range strings.Lines(nodes) {
			if strings.Contains(line, "myself,slave "+id) {
				return s
			}
		}
	}
	c.t.Fatalf("%s has no replica", primary.Addr())
	return nil
}

// AwaitPrimary returns when another node than old holds a slot, and which.
func (c *Cluster) AwaitPrimary(slot int, old *Server) *Server {
	c.t.Helper()
	var now *Server
	c.await("a replica to take over", func() bool {
		now = c.Primary(slot)
		return now != nil && now != old
	})
	return now
}

// Begin declares that a slot is moving. Keys follow by MoveKeys, End closes.
func (c *Cluster) Begin(slot int, from, to *Server) {
	c.t.Helper()
	ctx := context.Background()
	c.must(to.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ID(from)).Err(), "import a slot")
	c.must(from.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ID(to)).Err(), "migrate a slot")
}

// MoveKeys moves up to most keys of a slot that is moving, and returns how many it moved.
func (c *Cluster) MoveKeys(slot, most int, from, to *Server) int {
	c.t.Helper()
	ctx := context.Background()
	keys, err := from.client.ClusterGetKeysInSlot(ctx, slot, most).Result()
	c.must(err, "list the keys of a slot")
	host, port, _ := net.SplitHostPort(to.Addr())
	for _, key := range keys {
		err := from.client.Migrate(ctx, host, port, key, 0, 2*time.Second).Err()
		c.must(err, "migrate a key")
	}
	return len(keys)
}

// End gives a slot to its new owner, everywhere.
func (c *Cluster) End(slot int, to *Server) {
	c.t.Helper()
	id := c.ID(to)
	c.must(to.client.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err(), "give a slot")
	for _, s := range c.Servers {
		_ = s.client.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err() // replicas refuse, and hear of it
	}
}

func (c *Cluster) must(err error, what string) {
	c.t.Helper()
	if err != nil && !errors.Is(err, redis.Nil) {
		c.t.Fatalf("%s in the cluster: %v", what, err)
	}
}

func (c *Cluster) await(what string, holds func() bool) {
	c.t.Helper()
	await(c.t, what, holds)
}

// await polls until something that servers do by themselves has happened.
func await(t TB, what string, holds func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(formWithin); time.Now().Before(end); <-poll.C {
		if holds() {
			return
		}
	}
	t.Fatalf("waited %v for %s", formWithin, what)
}
