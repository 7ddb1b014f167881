//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The Redis of a region with Options.Sentinel: a primary at redisAddr, a replica, and
// sentinels, each at a port of the region's namespace.
const (
	master      = "region"
	replicaAddr = "127.0.0.1:6380"
	sentinels   = 3
	// primaryDown is how long sentinels wait before they call the primary dead.
	primaryDown = time.Second
)

func sentinelAddr(i int) string { return fmt.Sprintf("127.0.0.1:%d", 26379+i) }

// watch starts a region's replica and sentinels, and waits until they have found each other:
// before, a failover would not come about.
func (w *World) watch(r *Region) error {
	if err := w.listens(r, redisAddr); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(replicaAddr)
	host, primary, _ := net.SplitHostPort(redisAddr)
	replica, err := launch(r.ns, w.dir, "replica", nil, w.options.Binaries.Redis, "--port", port, "--bind", host,
		"--save", "", "--replicaof", host+" "+primary)
	if err != nil {
		return err
	}
	r.watchers = append(r.watchers, replica)
	config := fmt.Sprintf("sentinel monitor %s %s %s 2\nsentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s %d\n",
		master, host, primary, master, primaryDown.Milliseconds(), master, 10*primaryDown.Milliseconds())
	for i := range sentinels {
		file := filepath.Join(w.dir, fmt.Sprintf("%s-sentinel-%d.conf", r.Name, i)) // each rewrites its own
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(sentinelAddr(i))
		s, err := launch(r.ns, w.dir, fmt.Sprintf("sentinel-%d", i), nil, w.options.Binaries.Redis, file, "--sentinel", "--port", port, "--bind", host)
		if err != nil {
			return err
		}
		r.watchers = append(r.watchers, s)
		if err := w.listens(r, sentinelAddr(i)); err != nil {
			return err
		}
	}
	if err := w.listens(r, replicaAddr); err != nil {
		return err
	}
	_, err = w.Await(readyWithin, "the sentinels of "+r.Name+" know each other and the replica", r.watched)
	return err
}

// watched objects until every sentinel sees the others, and a replica that follows.
func (r *Region) watched() error {
	for i := range sentinels {
		said, err := r.asks(sentinelAddr(i), "SENTINEL", "MASTER", master)
		if err != nil {
			return err
		}
		if !strings.Contains(said, "num-slaves:1") || !strings.Contains(said, "num-other-sentinels:2") {
			return errors.New("a sentinel sees " + said)
		}
	}
	said, err := r.asks(replicaAddr, "INFO", "replication")
	if err == nil && !strings.Contains(said, "master_link_status:up") {
		err = errors.New("the replica does not follow: " + said)
	}
	return err
}

// promoted objects until a majority of the sentinels names the replica.
func (r *Region) promoted() error {
	votes := 0
	for i := range sentinels {
		said, err := r.asks(sentinelAddr(i), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
		_, port, _ := net.SplitHostPort(replicaAddr)
		if err == nil && strings.Contains(said, port) {
			votes++
		}
	}
	if votes <= sentinels/2 {
		return fmt.Errorf("%d of %d sentinels name the replica", votes, sentinels)
	}
	return nil
}

// asks gives one of a region's Redis servers one command.
func (r *Region) asks(addr string, command ...any) (string, error) {
	c := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: r.ns.Dial, MaxRetries: -1, DialerRetries: 1, Protocol: 3, PoolSize: 1,
		ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	defer c.Close()
	said, err := c.Do(context.Background(), command...).Result()
	return fmt.Sprint(said), err
}

// Behind has a region's replica fall behind the primary for a time before a fault takes the primary
// away: what was written meanwhile is lost when the replica takes over. It needs Options.Sentinel.
func (w *World) Behind(name string, lag time.Duration, away Fault) Fault {
	r := w.region(name)
	inject := away.Inject
	away.Name += fmt.Sprintf(" with a replica %v behind", lag)
	away.Inject = func() error {
		// The primary asks for no password, and so refuses whoever has one.
		_, err := r.asks(replicaAddr, "CONFIG", "SET", "masterauth", "none")
		_, gone := r.asks(redisAddr, "CLIENT", "KILL", "TYPE", "replica")
		time.Sleep(lag)
		var offsets [2]int64
		for i, addr := range []string{redisAddr, replicaAddr} {
			said, failed := r.asks(addr, "INFO", "replication")
			_, rest, _ := strings.Cut(said, map[string]string{redisAddr: "master_repl_offset:", replicaAddr: "slave_repl_offset:"}[addr])
			rest, _, _ = strings.Cut(rest, "\r")
			var syntax error
			offsets[i], syntax = strconv.ParseInt(rest, 10, 64)
			err = errors.Join(err, failed, syntax)
		}
		w.History.Note(fmt.Sprintf("the replica is %d bytes behind", offsets[0]-offsets[1]))
		if offsets[0] <= offsets[1] {
			err = errors.Join(err, errors.New("the replica is not behind"))
		}
		return errors.Join(err, gone, inject())
	}
	return away
}

// FailOver takes a region's primary away until its replica has taken over. It needs
// Options.Sentinel.
func (w *World) FailOver(name string, away Fault) Fault {
	promoted := Fault{Name: "failover", Inject: nothing, Heal: func() error {
		at, err := w.Await(10*time.Second, "the replica is promoted", w.region(name).promoted)
		w.History.Note(fmt.Sprintf("the replica is promoted, as seen at %v", at))
		return err
	}}
	return Both(away, promoted)
}
