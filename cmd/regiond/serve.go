package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
)

// serveOptions are the flags of `serve`.
type serveOptions struct {
	config    string // "" for the built-in topology
	region    string
	instance  string
	http      string // "" for the topology's
	admin     string
	gossip    string
	processes int64
	budget    time.Duration // of a decision in Redis, queueing included
	deadline  time.Duration // of a whole answer
	drain     time.Duration
	logFormat string

	// What the demo puts between this region and the others; nil otherwise.
	wrapBus   func(meshsync.Bus) meshsync.Bus
	transport memberlist.Transport

	// What tests in fake time put between this region and its store; nil otherwise.
	dialRedis func(ctx context.Context, network, addr string) (net.Conn, error)
	memoryUS  func() int64 // the clock of an embedded store
}

func serveFlags(args []string, stderr io.Writer) (*serveOptions, error) {
	o := &serveOptions{}
	f := newFlags("serve", "serve [--config topology.yaml --region NAME] [flags]", stderr)
	f.StringVar(&o.config, "config", "", "topology `file`; without it one region runs on loopback, in memory")
	f.StringVar(&o.region, "region", "", "which region of the topology this process serves")
	f.StringVar(&o.instance, "instance", "", "`name` of this process among several of its region (default the host name)")
	f.StringVar(&o.http, "http", "", "data listener `host:port` (default the topology's)")
	f.StringVar(&o.admin, "admin", "", "admin listener `host:port` (default the topology's)")
	f.StringVar(&o.gossip, "gossip", "", "gossip `host:port` of one process among several of its region (default the topology's); an embedded NATS takes the port after it")
	f.Int64Var(&o.processes, "processes", 1, "regiond processes of this region, at least: each counts its share while Redis is away")
	f.DurationVar(&o.budget, "redis-budget", limiter.DefaultRedisBudget, "how long Redis may take for a decision before fail modes answer")
	f.DurationVar(&o.deadline, "deadline", httpapi.DefaultDeadline, "how long a whole answer may take; at least --redis-budget")
	f.DurationVar(&o.drain, "drain", 5*time.Second, "on SIGTERM, how long to go on serving while not ready; Ctrl-C does not drain")
	f.StringVar(&o.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
	words, err := parse(f, args)
	switch {
	case err != nil:
		return nil, err
	case len(words) > 0:
		return nil, fmt.Errorf("takes no words, got %q", words[0])
	case o.config != "" && o.region == "":
		return nil, errors.New("--config needs --region: which of its regions is this?")
	case o.config == "" && o.region != "":
		return nil, errors.New("--region needs --config")
	case o.processes < 1:
		return nil, errors.New("--processes is at least 1")
	case o.budget <= 0 || o.deadline < o.budget:
		return nil, errors.New("--redis-budget is positive, and --deadline no shorter")
	case o.drain < 0:
		return nil, errors.New("--drain is not negative")
	}
	if o.instance == "" {
		if o.instance, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("--instance is needed: %w", err)
		}
	}
	return o, nil
}

// loadTopology reads the topology that the flags name, or the built-in one.
func (o *serveOptions) loadTopology() (*region.Topology, []region.Warning, error) {
	if o.config == "" {
		return region.Default(), nil, nil
	}
	src, err := os.ReadFile(o.config)
	if err != nil {
		return nil, nil, err
	}
	top, warnings, err := region.Parse(o.config, src)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := top.Region(o.region); !ok {
		return nil, nil, fmt.Errorf("%s has no region %q", o.config, o.region)
	}
	return top, warnings, nil
}

// serve runs one process of one region until a signal ends it.
func serve(ctx context.Context, args []string, _, stderr io.Writer) (int, error) {
	o, err := serveFlags(args, stderr)
	if err != nil {
		return exitUsage, err
	}
	level := &slog.LevelVar{}
	o.logFormat = logFormat(stderr, o.logFormat)
	log, err := newLogger(stderr, o.logFormat, level)
	if err != nil {
		return exitUsage, err
	}
	if _, ok := stderr.(*os.File); ok { // anything else does not block
		out := newBacklog(stderr)
		go out.run(log)
		defer out.close()
		if log, err = newLogger(out, o.logFormat, level); err != nil {
			return exitUsage, err
		}
	}
	top, warnings, err := o.loadTopology()
	if err != nil {
		return exitUsage, err
	}
	for _, w := range warnings {
		log.Warn(w.Text(o.config))
	}
	// Before the greeting: who reads it may send a signal at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	d, err := newDaemon(o, top, log, level)
	if err != nil {
		return notStarted(err), err
	}
	d.greet(stderr)
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { keepGarbageSmall(ctx) })
	defer beside.Wait()
	defer cancel()
	if err := d.run(ctx, signals); err != nil {
		return exitFailed, err
	}
	return exitOK, nil
}

// notStarted is the exit code for a start that failed: another try may find a name that
// resolves by then and an address that is no longer taken, but not a mistake mended.
func notStarted(err error) int {
	var address *net.OpError
	var name *net.DNSError
	if errors.As(err, &address) || errors.As(err, &name) {
		return exitFailed
	}
	return exitUsage
}
