// Package cli holds the commands of regiond that talk to a running one or read a
// file: check, regions, top, bench, healthcheck, validate, version. A command takes its
// arguments and returns an exit code, and an error for main to print.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
)

// Exit codes. A denial is ExitFailed for `check`; a mistake in flags or configuration is ExitUsage.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Command is one sub-command. It returns the exit code, and an error for main to print.
type Command func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error)

// NewFlags returns the flag set of a command, for Parse.
func NewFlags(name, synopsis string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "usage: regiond %s\n", synopsis)
		f.PrintDefaults()
	}
	return f
}

// OutputFlag defines -o, text for a person or JSON for a script.
func OutputFlag(f *flag.FlagSet) *string {
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

// Parse reads flags that may stand before, between and after the words of a
// command line, and returns the words. It prints the flags only to who asks for
// them with -h: its caller prints what is wrong, and a page of flags would hide it.
func Parse(f *flag.FlagSet, args []string) ([]string, error) {
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
