// Command bench runs the benchmarks that the goals are stated for and prints what
// they came to beside the goals, in about eight minutes. No figure makes it fail: on a
// machine that does other things too only the ratios mean much.
//
//	go run ./cmd/regiond/internal/bench      from the repository's root
//
// It measures nothing itself. Each row of the table (table.go) names a benchmark of
// this module and one of the values that it reports; who wants to look closer runs
// that one with go test -bench.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"
)

// longest is how long everything may take: about twice what it does.
const longest = 16 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := run(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run says on progress what it does and prints the table to out. An error means
// that a benchmark did not run; what the others showed is printed all the same.
func run(ctx context.Context, out, progress io.Writer) error {
	began := time.Now()
	found := results{}
	var failed error
	for _, s := range suites() {
		fmt.Fprintf(progress, "%4.0f s  %s\n", time.Since(began).Seconds(), s.about)
		text, err := s.run(ctx, progress)
		found.read(text)
		if err != nil {
			failed = fmt.Errorf("%s in %s: %w", s.bench, s.pkg, err)
		}
	}
	fmt.Fprintf(out, "\n%s, %s/%s, %d processors, %.0f s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Since(began).Seconds())
	printTable(out, table(), found)
	return failed
}

// suite is one call of go test.
type suite struct {
	about, pkg, bench, time string
}

func (s *suite) run(ctx context.Context, progress io.Writer) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.bench, "-benchtime", s.time, "-timeout", longest.String(), "./"+s.pkg)
	// Asked to stop it ends its own children; left alone after that it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = progress
	text, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(progress, "%s\n", text)
	}
	return string(text), err
}
