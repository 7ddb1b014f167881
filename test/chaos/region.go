//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/chaos/netns"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/redisserver"
)

// Addresses within each region: every namespace has all ports for itself.
const (
	httpAddr  = "127.0.0.1:8080"
	adminAddr = "127.0.0.1:9090"
	bareAddr  = "127.0.0.1:8081"
	redisAddr = "127.0.0.1:6379"
	natsAddr  = "127.0.0.1:4222"
	// gossipPort is on the lines between regions.
	gossipPort = 7946
)

// Region is one region: its network, its processes, and the gateway that asks it.
type Region struct {
	Name string

	number int
	ns     *netns.Namespace
	addr   netip.Addr // on the lines between regions
	other  netip.Addr // a second address there
	moved  bool       // gossip is at the second

	redis, nats, regiond, bare *process

	watchers []*process // the replica of Redis and its sentinels, where there are any

	clock  *redisserver.Clock // nil unless it can be stepped
	proxy  *faultproxy.Proxy  // nil unless it is between regiond and Redis
	target traffic.Target
	admin  *traffic.Client
	store  *redis.Client // the administrator's
}

// open makes the namespace and the clients, until t ends.
func (r *Region) open(t testing.TB) error {
	ns, err := netns.New(r.Name)
	if err != nil {
		return err
	}
	t.Cleanup(ns.Close)
	r.ns = ns
	r.target = traffic.Target{Region: r.Name, Regiond: traffic.NewClient(httpAddr, ns.Dial), Bare: traffic.NewClient(bareAddr, ns.Dial)}
	r.admin = traffic.NewClient(adminAddr, ns.Dial)
	r.store = redis.NewClient(&redis.Options{
		Addr: redisAddr, Dialer: ns.Dial, MaxRetries: -1, DialerRetries: 1, Protocol: 2,
		ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, PoolSize: 2,
	})
	t.Cleanup(func() {
		r.admin.HangUp()
		_ = r.store.Close() // fails only when it is closed already
	})
	return nil
}

// ask has a listener of the region answer, and reads what it answers into v.
func (r *Region) ask(c *traffic.Client, method, path, body string, v any) error {
	status, answer, err := c.Do(method, path, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s: %w", r.Name, method, path, err)
	}
	return nil
}

// gossip is where the region gossips.
func (r *Region) gossip() string { return netip.AddrPortFrom(r.addr, gossipPort).String() }

// redisAddr is where regiond finds Redis.
func (r *Region) redisAddr() string {
	if r.proxy != nil {
		return r.proxy.Addr()
	}
	return redisAddr
}

// processes are those that have been started.
func (r *Region) processes() (all []*process) {
	for _, p := range []*process{r.regiond, r.redis, r.nats} {
		if p != nil {
			all = append(all, p)
		}
	}
	return append(all, r.watchers...)
}

// run starts the processes of a region. regiond comes last and need not wait: it is
// ready when it is.
func (w *World) run(r *Region) (err error) {
	if w.options.Clock {
		r.clock = redisserver.NewClock(w.t)
	}
	if r.redis, err = w.launchRedis(r); err != nil {
		return err
	}
	if w.options.Sentinel == r.Name {
		if err := w.watch(r); err != nil {
			return err
		}
	}
	if w.options.Proxy {
		r.proxy = faultproxy.StartIn(w.t, faultproxy.Network{Listen: r.ns.Listen, Dial: r.ns.Dial}, redisAddr)
	}
	if !w.options.Embedded {
		if err := w.launchNATS(r); err != nil {
			return err
		}
	}
	if r.bare, err = launch(r.ns, w.dir, "bare", []string{BareEnv + "=" + bareAddr}, w.options.Binaries.Bare); err != nil {
		return err
	}
	for _, addr := range []string{redisAddr, bareAddr} {
		if err := w.listens(r, addr); err != nil {
			return err
		}
	}
	return w.launchRegiond(r)
}

// listens waits until the address accepts connections.
func (w *World) listens(r *Region, addr string) error {
	_, err := w.Await(readyWithin, r.Name+": "+addr+" listens", func() error {
		conn, err := r.ns.Dial(context.Background(), "tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return err
}

func (w *World) launchRedis(r *Region) (*process, error) {
	var env []string
	if r.clock != nil {
		env = r.clock.Env()
	}
	_, port, _ := net.SplitHostPort(redisAddr)
	args := []string{w.options.Binaries.Redis, "--port", port, "--bind", "127.0.0.1", "--save", ""}
	if w.options.Disk {
		dir := filepath.Join(w.dir, r.Name+"-disk")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		args = append(args, "--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec")
	}
	return launch(r.ns, w.dir, "redis", env, args...)
}

func (w *World) launchNATS(r *Region) error {
	config, err := w.natsConfig(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.natsFile(r), []byte(config), 0o600); err != nil {
		return err
	}
	r.nats, err = launch(r.ns, w.dir, "nats", w.natsEnv(r), w.options.Binaries.NATS, "-c", w.natsFile(r))
	return err
}

// natsFile is the configuration of a region's NATS.
func (w *World) natsFile(r *Region) string { return filepath.Join(w.dir, r.Name+"-nats.conf") }

// launchRegiond starts the region's regiond. One that has moved gossips at the region's
// second address, which the file does not name.
func (w *World) launchRegiond(r *Region) (err error) {
	if err := w.writeFile(r); err != nil {
		return err
	}
	args := []string{
		w.options.Binaries.Regiond, "serve", "--config", w.file(r), "--region", r.Name,
		"--instance", "one", "--log-format", "json",
	}
	if r.moved {
		args = append(args, "--gossip", netip.AddrPortFrom(r.other, gossipPort).String())
	}
	r.regiond, err = launch(r.ns, w.dir, "regiond", nil, args...)
	return err
}

func (w *World) writeFile(r *Region) error {
	return os.WriteFile(w.file(r), []byte(w.topology()), 0o600)
}

// file is the topology that a region's regiond reads.
func (w *World) file(r *Region) string { return filepath.Join(w.dir, r.Name+".yaml") }
