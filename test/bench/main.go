//go:build linux

// Command bench measures the figures that goals are stated for and prints them beside
// the goals, in about four minutes. It starts regiond, Redis and a bare net/http server
// as processes and alternates between what it compares, so that other work of the
// machine affects both; ratios are medians over the rounds. No figure makes it fail, but
// a load whose checks were answered by fail modes does.
//
//	go run ./test/bench                 all goals, from the repository's root
//	go run ./test/bench -only warm      one scenario
//	go run ./test/bench -only envoy -envoy-ratelimit FILE
//	go run ./test/bench -only grpc -envoy-ratelimit FILE
//	go run ./test/bench -old FILE       this tree against an older binary; fails beyond the bounds
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	if config := os.Getenv(bareEnv); config != "" {
		exit(serveBare(config))
	}
	only := flag.String("only", "", "run only the scenario of that `name`")
	old := flag.String("old", "", "compare with that older `binary` of regiond")
	envoy := flag.String("envoy-ratelimit", "", "a `binary` of envoyproxy/ratelimit to measure beside")
	flag.Parse()
	exit(run(*only, *old, *envoy))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// scenario measures some figures.
type scenario struct {
	name, about string
	measure     func(*stage, figures)
}

func scenarios(envoy string) []scenario {
	pkg := func(path, bench, benchtime string) func(*stage, figures) {
		return func(_ *stage, out figures) {
			cmd := exec.Command("go", "test", "-run", "^$", "-bench", bench, "-benchtime", benchtime, "./"+path) //nolint:noctx // Ctrl-C reaches it too
			cmd.Stderr = os.Stderr
			text, err := cmd.Output()
			out.parse(string(text))
			if err != nil {
				check(fmt.Errorf("%s: %w\n%s", path, err, text))
			}
		}
	}
	return []scenario{
		{"api", "checks over HTTP beside a server that does nothing", api},
		{"warm", "checks on logs that are older than their window", warm},
		{"envoy", "checks beside envoyproxy/ratelimit", envoyRatelimit(envoy)},
		{"grpc", "Envoy's rate limit service beside envoyproxy/ratelimit's", envoyCalls(envoy)},
		{"scopes", "global and regional limits in a mesh of three", scopes},
		{"telemetry", "checks with traces and metrics, and without", telemetry},
		{"limiter", "scripts, shared calls, and memory of Redis", pkg("limiter/redisstore", "^Benchmark(Collector|Windows|Entry|Expired)$", "1x")},
		{"memory", "a million partitions in a ledger", pkg("sync/ledger", "^BenchmarkMemory$/^1000000$", "1x")},
	}
}

// run prints what was measured even if a scenario fails.
func run(only, old, envoy string) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "regiond")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", binary, "./cmd/regiond").CombinedOutput(); err != nil { //nolint:noctx // Ctrl-C reaches it too
		return fmt.Errorf("build regiond: %w\n%s", err, out)
	}
	if old != "" {
		_, err := guarded(binary, func(s *stage) error { return compare(s, old, os.Stdout) })
		return err
	}
	began, out, loads, failed := time.Now(), figures{}, []*load(nil), error(nil)
	for _, sc := range scenarios(envoy) {
		if only != "" && only != sc.name {
			continue
		}
		fmt.Fprintf(os.Stderr, "%4.0f s  %s: %s\n", time.Since(began).Seconds(), sc.name, sc.about)
		some, err := guarded(binary, func(s *stage) error { sc.measure(s, out); return nil })
		if err != nil {
			fmt.Fprintln(os.Stderr, "       ", err)
			failed = fmt.Errorf("%s: %w", sc.name, err)
		}
		loads = append(loads, some...)
	}
	fmt.Printf("\n%s, %s/%s, %d processors, %.0f s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Since(began).Seconds())
	others := printLoads(os.Stdout, loads)
	fmt.Println()
	rows := table()
	if only != "" {
		rows = measured(rows, out)
	}
	return errors.Join(out.print(os.Stdout, rows), others, failed)
}

// guarded gives f a stage, and returns the loads that ran on it and what check and must
// have found.
func guarded(binary string, f func(*stage) error) (loads []*load, err error) {
	s := newStage(binary)
	defer s.end()
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			log, _ := os.ReadFile(s.log.Name()) // the error itself matters more
			err = fmt.Errorf("%w; the processes logged:\n%s", f.error, log)
		default:
			panic(f)
		}
		loads = s.loads
	}()
	return nil, f(s)
}

func measured(rows []row, out figures) (some []row) {
	for _, r := range rows {
		if _, ok := out[r.figure]; ok {
			some = append(some, r)
		}
	}
	return some
}
