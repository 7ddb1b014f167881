package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/internal/telemetry"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
	meshsync "github.com/regiond/regiond/sync"
)

// Options are what one process is started with, beside the topology.
type Options struct {
	Config    string // topology file; "" for the built-in topology
	Region    string // that this process serves; "" for the only one
	Instance  string // of this process among those of its region
	HTTP      string // listener addresses; "" for the topology's
	GRPC      string
	Admin     string
	Gossip    string
	Processes int64 // of this region, at least
	// MaxConnections bounds the connections of the data listener; 0 for what this process's
	// files and memory allow.
	MaxConnections int64
	Budget         time.Duration // of a decision in Redis, queueing included
	Deadline       time.Duration // of a whole answer
	Drain          time.Duration // how long to serve on after SIGTERM
	TextLog        bool          // the log is read by a person
	DenialLog      telemetry.DenialOptions
	Version        string // of the program
	Commit         string

	// WrapBus and Transport let the demo and tests cut connections; nil otherwise.
	WrapBus   func(meshsync.Bus) meshsync.Bus
	Transport memberlist.Transport

	// DemoState is what the page shows of a demo, as JSON, and Demo answers its controls; nil
	// otherwise.
	DemoState func() any
	Demo      http.Handler

	// Seams for tests in fake time; nil otherwise.
	dialRedis func(ctx context.Context, network, addr string) (net.Conn, error)
	memoryUS  func() int64 // the clock of an embedded store
}

// Validate returns the first option that is out of bounds, named as a flag.
func (o *Options) Validate() error {
	switch {
	case o.Config != "" && o.Region == "":
		return errors.New("--config needs --region: which of its regions is this?")
	case o.Config == "" && o.Region != "":
		return errors.New("--region needs --config")
	case o.Processes < 1:
		return errors.New("--processes is at least 1")
	case o.Budget <= 0 || o.Deadline < o.Budget:
		return errors.New("--redis-budget is positive, and --deadline no shorter")
	case o.MaxConnections < 0:
		return errors.New("--max-connections is not negative")
	case o.Drain < 0:
		return errors.New("--drain is not negative")
	}
	return o.DenialLog.Validate()
}

// LoadTopology reads the topology that Config names, or returns the built-in one. With an error it may return one too: rls.Load.
func (o *Options) LoadTopology() (*region.Topology, []region.Problem, error) {
	if o.Config == "" {
		return region.Default(), nil, nil
	}
	top, found, err := rls.Load(o.Config, warnings.OfFile)
	if err != nil {
		return top, nil, err
	}
	if _, ok := top.Region(o.Region); !ok {
		return nil, nil, fmt.Errorf("%s has %w", o.Config, top.NoRegion(o.Region))
	}
	return top, found, nil
}
