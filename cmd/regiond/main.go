// Command regiond is a rate limiter for APIs that run in several regions. README.md
// says what it guarantees, topology.yaml shows how it is configured.
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/internal/demo"
)

// The linker sets them for a release and an image (-ldflags "-X main.version=…"); else they are what Go has stamped.
var version, commit, date string

func main() {
	redis.SetLogger(silence{})
	os.Exit(cli.Run(context.Background(), program(), os.Args[1:], os.Stdout, os.Stderr))
}

// silence keeps go-redis from writing to stderr past our log, which reports once
// that Redis is away and once that it is back.
type silence struct{}

// Printf implements the logger of go-redis.
func (silence) Printf(context.Context, string, ...any) {}

// program is regiond with all of its commands.
func program() *cobra.Command {
	b := cli.ReadBuild(cli.Build{Version: version, Commit: commit, Date: date})
	return cli.New(b, serve(b), demo.Command(demoNode(b)), cli.Validate(daemon.CheckFiles), cli.Schema(), cli.Check(), cli.Explain(),
		cli.Regions(), cli.Limits(), cli.Top(), cli.Bench(), cli.Healthcheck(), b.Command())
}
