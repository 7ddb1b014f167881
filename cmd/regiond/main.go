// Command regiond is a rate limiter for APIs that run in several regions. See
// README.md for what it promises and topology.yaml for how it is told what to do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"
)

// Exit codes. A denial is 1 for `check`; a mistake in flags or configuration is 2.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `regiond is a rate limiter for APIs that run in several regions.

  regiond serve                                    one region on loopback, nothing to configure
  regiond serve --config topology.yaml --region R  one region of a topology
  regiond demo                                     three regions in one process, to try cuts on
  regiond validate [FILE]                          checks a topology (default topology.yaml)
  regiond check TENANT [-d user=42] [--cost N]     asks a running regiond once
  regiond regions                                  what a running regiond sees of the others
  regiond bench [--rate N] [--target URL]          asks running regionds at a fixed rate, and how they did
  regiond healthcheck                              exits 0 when a running regiond is ready
  regiond version

regiond COMMAND -h lists the flags of a command.
`

// command is one sub-command: it returns the exit code, or an error that main
// prints and turns into one.
type command func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error)

func main() {
	redis.SetLogger(silence{})
	os.Exit(dispatch(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// silence keeps go-redis from writing to stderr past our log, which says once
// that Redis is away and once that it is back.
type silence struct{}

// Printf implements the logger of go-redis.
func (silence) Printf(context.Context, string, ...any) {}

// dispatch is main without the process: tests call it.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]command{
		"serve":       serve,
		"demo":        runDemo,
		"regions":     regionsCommand,
		"validate":    validate,
		"check":       check,
		"bench":       bench,
		"healthcheck": healthcheck,
		"version":     printVersion,
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	cmd, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "regiond: %q is not a command\n\n%s", args[0], usage)
		return exitUsage
	}
	code, err := cmd(ctx, args[1:], stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "regiond "+args[0]+": "+err.Error())
	}
	return code
}

// newFlags returns the flag set of a command, for parse.
func newFlags(name, synopsis string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "usage: regiond %s\n", synopsis)
		f.PrintDefaults()
	}
	return f
}

// outputFlag defines -o, which says who reads the output: a person or a script.
func outputFlag(f *flag.FlagSet) *string {
	format := "text"
	f.Func("o", "output: `text` or json (default text)", func(v string) error {
		if v != "text" && v != "json" {
			return errors.New("is text or json")
		}
		format = v
		return nil
	})
	return &format
}

// parse reads flags that may stand before, between and after the words of a
// command line, and returns the words. It prints the flags only to who asks for
// them with -h: dispatch says what is wrong, and a page of flags would hide it.
func parse(f *flag.FlagSet, args []string) ([]string, error) {
	var words []string
	out, usage := f.Output(), f.Usage
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	for {
		err := f.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(out)
			usage()
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%w; -h lists the flags", err)
		}
		if f.NArg() == 0 {
			return words, nil
		}
		words, args = append(words, f.Arg(0)), f.Args()[1:]
	}
}
