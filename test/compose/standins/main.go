// Command standins sees to the images that docker-compose.multi.yml and Dockerfile
// name. Each one that is missing is pulled; where no registry can be reached it
// builds a stand-in under the same tag, of programs that this machine has or that
// Debian and the Go module proxy serve. So the compose file runs as it is on a
// machine without an image registry.
//
// A stand-in has a label with its contents. An image without that label is
// the real one and is never touched. `standins clean` removes stand-ins, what
// building regiond left behind, and what an interrupted test did.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "standins: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		fmt.Fprintln(out, "no Docker engine answers here, so there is nothing to do:", err)
		return nil
	}
	switch strings.Join(args, " ") {
	case "":
		return provide(ctx, out)
	case "clean":
		return clean(ctx, out)
	}
	return fmt.Errorf("takes no arguments, or clean; got %q", args)
}

// provide pulls or builds every image, and returns an error that names the missing ones.
func provide(ctx context.Context, out io.Writer) error {
	work, err := os.MkdirTemp("", "standins")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var errs []error
	for _, s := range standIns(ctx, work) {
		if err := s.provide(ctx, out); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.tag, err))
		}
	}
	return errors.Join(errs...)
}

func (s *standIn) provide(ctx context.Context, out io.Writer) error {
	have, err := inspect(ctx, s.tag)
	if err != nil {
		return err
	}
	if have.there && have.contents == "" {
		fmt.Fprintf(out, "%-32s is here and is no stand-in: left as it is\n", s.tag)
		return nil
	}
	if !have.there && pull(ctx, s.tag) {
		fmt.Fprintf(out, "%-32s pulled\n", s.tag)
		return nil
	}
	if s.files == nil {
		fmt.Fprintf(out, "%-32s %s\n", s.tag, s.contents)
		return nil
	}
	if have.contents == s.contents {
		fmt.Fprintf(out, "%-32s stand-in, up to date: %s\n", s.tag, have.contents)
		return nil
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%-32s stand-in built: %s\n", s.tag, s.contents)
	return nil
}
