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

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/internal/telemetry"
	"github.com/regiond/regiond/limiter/redisstore"
)

// serve is the command `serve`: one process of one region until a signal ends it.
func serve(build cli.Build) *cobra.Command {
	o, format := &daemon.Options{Version: build.Version, Commit: build.Commit}, ""
	c := &cobra.Command{
		Use:   "serve",
		Short: "One region: on loopback, or of a topology",
		Long: `Serves one region. Without flags it runs on loopback and counts in memory.
Exit code 1 when another start may succeed, 2 when flags or files have to change first.`,
		Example: `  regiond serve
  regiond serve --config topology.yaml --region eu-west`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Instance == "" {
				if o.Instance, err = os.Hostname(); err != nil {
					return fmt.Errorf("--instance is needed: %w", err)
				}
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return run(c.Context(), o, format, c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.Config, "config", "", "topology `file`; without it one region runs on loopback, in memory")
	f.StringVar(&o.Region, "region", "", "which `region` of the topology this process serves")
	f.StringVar(&o.Instance, "instance", "", "`name` of this process among several of its region (default the host name)")
	f.StringVar(&o.HTTP, "http", "", "data listener `host:port` (default the topology's)")
	f.StringVar(&o.GRPC, "grpc", "", "listener of Envoy's rate limit service, `host:port` (default the topology's)")
	f.StringVar(&o.Admin, "admin", "", "admin listener `host:port` (default the topology's)")
	f.StringVar(&o.Gossip, "gossip", "", "gossip `host:port` of one process among several of its region (default the topology's); an embedded NATS takes the port after it")
	f.Int64Var(&o.Processes, "processes", 1, "regiond processes of this region, at least: each counts its share while Redis is away")
	f.DurationVar(&o.Budget, "redis-budget", redisstore.DefaultBudget, "how long a check may take, waiting included, before it is turned away; a Redis that is silent for as long is away")
	f.DurationVar(&o.Deadline, "deadline", httpapi.DefaultDeadline, "how long a whole answer may take; at least --redis-budget")
	f.DurationVar(&o.Drain, "drain", 5*time.Second, "on SIGTERM, how long to go on serving while not ready; Ctrl-C does not drain")
	f.Int64Var(&o.MaxConnections, "max-connections", 0, "connections of the data listener, at most; more displace those without a valid request (default what files and memory allow)")
	f.StringVar(&o.DenialLog.Path, "denial-log", "", "`file` to which each denial is appended as a line of JSON, - for standard output")
	f.StringVar(&o.DenialLog.Tenant, "denial-log-tenant", "hash", "what the denial log `shows` of a tenant: off, hash or raw")
	f.Float64Var(&o.DenialLog.Sample, "denial-log-sample", 1, "proportion of denials that the denial log has, 0 to 1")
	f.Int64Var(&o.DenialLog.Rate, "denial-log-rate", 100, "lines per second of the denial log, at most; more are counted and dropped")
	f.StringVar(&format, "log-format", "auto", "`format`: text, json, or auto, text on a terminal")
	cli.CompleteRegions(c, "region", func([]string) string { return o.Config })
	cli.Complete(c, "denial-log-tenant", "off", "hash", "raw")
	cli.Complete(c, "log-format", "text", "json", "auto")
	return c
}

// run serves until ctx or a signal ends it.
func run(ctx context.Context, o *daemon.Options, format string, stderr io.Writer) error {
	format = telemetry.LogFormat(stderr, format)
	o.TextLog = format == "text"
	level := &slog.LevelVar{}
	log, err := telemetry.NewLogger(stderr, format, level)
	if err != nil {
		return err
	}
	if _, ok := stderr.(*os.File); ok { // anything else does not block
		out := telemetry.NewAsyncWriter(stderr)
		go out.Run(log)
		defer out.Close()
		if log, err = telemetry.NewLogger(out, format, level); err != nil {
			return err
		}
	}
	top, warnings, err := o.LoadTopology()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn(w.Text(o.Config))
	}
	// Before the banner: its reader may send a signal at once.
	if o.DenialLog.Path == "-" {
		signal.Ignore(syscall.SIGPIPE) // whose reader may end; regiond goes on
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	d, err := daemon.New(o, top, log, level)
	if err != nil {
		return cli.Exit{Code: exitCode(err), Err: err}
	}
	d.Banner(stderr)
	ctx, cancel := context.WithCancel(ctx)
	var gc sync.WaitGroup
	gc.Go(func() { daemon.TuneGC(ctx) })
	defer gc.Wait()
	defer cancel()
	if err := d.Run(ctx, signals); err != nil {
		return cli.Exit{Code: cli.ExitFailed, Err: err}
	}
	return nil
}

// exitCode is ExitFailed when another start may succeed, since an address was in use
// or a name did not resolve, and ExitUsage for errors of configuration.
func exitCode(err error) int {
	var address *net.OpError
	var name *net.DNSError
	if errors.As(err, &address) || errors.As(err, &name) {
		return cli.ExitFailed
	}
	return cli.ExitUsage
}

// demoNode builds daemons for the demo.
func demoNode(build cli.Build) demo.NewNode {
	return func(o demo.NodeOptions) (demo.Node, error) {
		return daemon.New(&daemon.Options{
			Version: build.Version, Commit: build.Commit,
			Region: o.Region, Instance: "demo", Processes: 1, WrapBus: o.WrapBus, Transport: o.Transport,
			DemoState: o.State, Demo: o.Control,
			Budget: redisstore.DefaultBudget, Deadline: httpapi.DefaultDeadline,
		}, o.Topology, o.Logger, &slog.LevelVar{})
	}
}
