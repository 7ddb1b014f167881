// Command regiond is a rate limiter for APIs that run in several regions. README.md
// says what it guarantees, topology.yaml shows how it is configured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/demo"
)

// version is set by the Makefile (-ldflags "-X main.version=…") for a release.
var version string

const usage = `regiond is a rate limiter for APIs that run in several regions.

  regiond serve                                    one region on loopback, nothing to configure
  regiond serve --config topology.yaml --region R  one region of a topology
  regiond demo                                     three regions in one process, to try cuts on
  regiond validate [FILE]                          checks a topology (default topology.yaml)
  regiond check TENANT [-d user=42] [--cost N]     asks a running regiond once
  regiond explain TENANT [-d user=42]              what a check would get now, and why
  regiond regions                                  what a running regiond sees of the others
  regiond top                                      who was denied or used most, live in a terminal
  regiond bench [--rate N] [--target URL]          asks running regionds at a fixed rate, and how they did
  regiond healthcheck                              exits 0 when a running regiond is ready
  regiond version

regiond COMMAND -h lists the flags of a command.
`

func main() {
	redis.SetLogger(silence{})
	os.Exit(dispatch(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// silence keeps go-redis from writing to stderr past our log, which reports once
// that Redis is away and once that it is back.
type silence struct{}

// Printf implements the logger of go-redis.
func (silence) Printf(context.Context, string, ...any) {}

// dispatch is main without the process: tests call it.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]cli.Command{
		"serve":       serve,
		"demo":        demo.Command(demoNode),
		"regions":     cli.Regions,
		"top":         cli.Top,
		"validate":    cli.Validate,
		"check":       cli.Check,
		"explain":     cli.Explain,
		"bench":       cli.Bench,
		"healthcheck": cli.Healthcheck,
		"version":     cli.ReadBuild(version).Print,
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(stdout, usage)
		return cli.ExitOK
	}
	cmd, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "regiond: %q is not a command\n\n%s", args[0], usage)
		return cli.ExitUsage
	}
	code, err := cmd(ctx, args[1:], stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return cli.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "regiond "+args[0]+": "+err.Error())
	}
	return code
}
