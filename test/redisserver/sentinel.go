package redisserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Master is the name of the primary in Sentinel's configuration.
const Master = "region"

// Watched is a primary with a replica, and three sentinels that watch them. It is
// for the test's own goroutine.
type Watched struct {
	t         TB
	Servers   []*Server // the primary first
	Sentinels []*Server
}

// StartWatched starts all of it; sentinels call the primary dead after down. args
// go to the two servers.
func StartWatched(t TB, down time.Duration, args ...string) *Watched {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	primary := Start(t, Options{Args: args})
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := Start(t, Options{Args: append([]string{"--replicaof", host + " " + port}, args...)})
	w := &Watched{t: t, Servers: []*Server{primary, replica}}
	config := fmt.Sprintf("sentinel monitor %s %s %s 2\nsentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s %d\n",
		Master, host, port, Master, down.Milliseconds(), Master, 10*down.Milliseconds())
	for range 3 {
		w.Sentinels = append(w.Sentinels, startSentinel(t, config))
	}
	await(t, "the sentinels to know each other and the replica", w.whole)
	return w
}

// startSentinel starts one with a configuration of its own, which it rewrites.
func startSentinel(t TB, config string) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, Options{sentinel: file})
}

func (w *Watched) whole() bool {
	for _, s := range w.Sentinels {
		m, err := s.client.Do(context.Background(), "SENTINEL", "MASTER", Master).Result()
		if text := fmt.Sprint(m); err != nil || !strings.Contains(text, "num-slaves:1") || !strings.Contains(text, "num-other-sentinels:2") {
			return false
		}
	}
	role, err := w.Servers[1].client.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(role, "master_link_status:up")
}

// Addrs are the addresses of the sentinels.
func (w *Watched) Addrs() []string {
	var addrs []string
	for _, s := range w.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Primary is the server that a majority of the sentinels names; nil for none.
func (w *Watched) Primary() *Server {
	votes := map[string]int{}
	for _, s := range w.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, PipelinePoolSize: -1})
		if at, err := c.GetMasterAddrByName(context.Background(), Master).Result(); err == nil {
			votes[net.JoinHostPort(at[0], at[1])]++
		}
		_ = c.Close() // it is done
	}
	for _, s := range w.Servers {
		if votes[s.Addr()] >= 2 {
			return s
		}
	}
	return nil
}

// AwaitPrimary returns when the sentinels name another server than old.
func (w *Watched) AwaitPrimary(old *Server) *Server {
	w.t.Helper()
	var now *Server
	await(w.t, "another server to take over", func() bool {
		now = w.Primary()
		return now != nil && now != old
	})
	return now
}

// Failovers is how often the sentinels have named another primary, or tried to.
func (w *Watched) Failovers() int64 {
	w.t.Helper()
	most := int64(0)
	for _, s := range w.Sentinels {
		reply, err := s.client.Do(context.Background(), "SENTINEL", "MASTER", Master).Result()
		fields, _ := reply.(map[any]any)
		n, wrong := strconv.ParseInt(fmt.Sprint(fields["config-epoch"]), 10, 64)
		if err != nil || wrong != nil {
			w.t.Fatalf("a sentinel does not say its config-epoch: %v, %v", reply, err)
		}
		most = max(most, n)
	}
	return most
}
