package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

// defaultLimit is what a test may take: those that the table names take a few
// seconds at most, and a busy machine is not to turn a kill into a mistake.
const defaultLimit = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the tool and returns its exit code.
func command(ctx context.Context, args []string, out, complaints io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(complaints)
	workers := flags.Int("p", runtime.GOMAXPROCS(0), "how many mutants are tried at the same time")
	limit := flags.Duration("limit", defaultLimit, "what one test may take")
	list := flags.Bool("list", false, "only list the mutants and what they break")
	flags.Usage = func() {
		fmt.Fprintln(complaints, "usage: go run ./test/mutants [flags] [mutant …]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	ms, err := choose(table(), flags.Args())
	if err == nil && (*workers < 1 || *limit <= 0) {
		err = errors.New("-p is at least 1, and -limit more than 0")
	}
	if err != nil {
		fmt.Fprintln(complaints, "mutants:", err)
		return 2
	}
	if *list {
		printList(out, ms)
		return 0
	}
	root, err := findRoot()
	if err != nil {
		fmt.Fprintln(complaints, "mutants:", err)
		return 2
	}
	code, err := trials(ctx, root, ms, *workers, *limit, out)
	if err != nil {
		fmt.Fprintln(complaints, "mutants:", err)
		return 1
	}
	return code
}

// findRoot is the folder of go.mod, from wherever inside it we are.
func findRoot() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s: run this inside the repository", here)
		}
	}
}

// trials tries all mutants, tells of each in the table's order, and returns the exit
// code.
func trials(ctx context.Context, root string, ms []mutant, workers int, limit time.Duration, out io.Writer) (int, error) {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 1, fmt.Errorf("make room for binaries: %w", err)
	}
	defer os.RemoveAll(tmp)
	l := &lab{root: root, tmp: tmp, limit: limit}
	r := newReport(out, ms)
	start := time.Now()
	b := measure(ctx, l, ms, workers)
	r.measured(b, time.Since(start))
	done := make([]chan result, len(ms))
	for i := range done {
		done[i] = make(chan result, 1)
	}
	go each(len(ms), workers, func(i int) { done[i] <- try(ctx, l, b, ms[i]) })
	for i := range done {
		told := <-done[i]
		if err := context.Cause(ctx); err != nil {
			return 1, fmt.Errorf("interrupted: %w", err)
		}
		r.tell(told)
	}
	return r.sum(time.Since(start)), nil
}
