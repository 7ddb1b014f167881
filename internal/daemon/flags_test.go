package daemon

import (
	"flag"
	"io"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter/redisstore"
)

// testOptions reads the flags that tests start a daemon with.
func testOptions(args []string) (*Options, error) {
	o := &Options{Instance: "one"}
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Config, "config", "", "")
	f.StringVar(&o.Region, "region", "", "")
	f.StringVar(&o.Instance, "instance", "one", "")
	f.StringVar(&o.HTTP, "http", "", "")
	f.StringVar(&o.Admin, "admin", "", "")
	f.Int64Var(&o.Processes, "processes", 1, "")
	f.DurationVar(&o.Budget, "redis-budget", redisstore.DefaultBudget, "")
	f.StringVar(&o.GRPC, "grpc", "", "")
	f.DurationVar(&o.Deadline, "deadline", httpapi.DefaultDeadline, "")
	f.DurationVar(&o.Drain, "drain", 5*time.Second, "")
	f.Int64Var(&o.MaxConnections, "max-connections", 0, "")
	f.BoolVar(&o.TextLog, "text", false, "")
	f.StringVar(&o.DenialLog.Path, "denial-log", "", "")
	f.StringVar(&o.DenialLog.Tenant, "denial-log-tenant", "hash", "")
	f.Float64Var(&o.DenialLog.Sample, "denial-log-sample", 1, "")
	f.Int64Var(&o.DenialLog.Rate, "denial-log-rate", 100, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.Validate()
}
