//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// benchEnv makes of the test binary one of the processes that the benchmarks
// measure, or that stand around it; it holds a benchChild.
const benchEnv = "REGIOND_BENCH_CHILD"

// benchChild is such a process: a regiond with these flags, a bare server, or,
// without either, the other regions and the NATS that joins them. It says where it listens in one line
// and ends with its standard input, so at the latest with who started it.
type benchChild struct {
	Serve []string
	Bare  *benchBare
	Crowd benchCrowd // what changes in it without being asked for over HTTP
	Told  bool       // it begins with having heard as much of both other regions
}

// runBenchChild is the child's main.
func runBenchChild(config string) (code int) {
	var c benchChild
	err := json.Unmarshal([]byte(config), &c)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	switch {
	case err != nil:
	case len(c.Serve) > 0:
		err = c.serve(ctx)
	case c.Bare != nil:
		err = c.Bare.serve(ctx)
	default:
		err = c.surround(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		return 1
	}
	return 0
}

// serve is regiond as `serve` runs it, whose region is busy beyond what this one
// process is asked: a crowd is admitted by nobody, and published.
func (c *benchChild) serve(ctx context.Context) error {
	o, err := testOptions(c.Serve)
	if err != nil {
		return err
	}
	top, _, err := o.LoadTopology()
	if err != nil {
		return err
	}
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	log, err := NewLogger(os.Stderr, "json", level)
	if err != nil {
		return err
	}
	d, err := New(o, top, log, level)
	if err != nil {
		return err
	}
	var feeding sync.WaitGroup
	defer feeding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go TuneGC(ctx)
	if c.Crowd.Count > 0 {
		if d.neighbours == nil {
			return errors.Join(errors.New("a region alone tells nobody of a crowd"), d.Close())
		}
		cd := newBenchCrowded(c.Crowd, d.neighbours.ceilings.Ledger(), d.timeUS)
		cd.fill()
		if err := c.hear(cd, d.neighbours.now()); err != nil {
			return errors.Join(err, d.Close())
		}
		if c.Crowd.Changed > 0 {
			feeding.Go(func() { cd.run(ctx) })
		}
	}
	signals := make(chan os.Signal, 1)
	context.AfterFunc(ctx, func() { signals <- os.Interrupt })
	fmt.Println(d.dataAt.Addr(), d.adminAt.Addr())
	return d.Run(context.Background(), signals)
}

// hear has a ledger know of the others what it should know at once.
func (c *benchChild) hear(cd *benchCrowded, at time.Duration) error {
	if !c.Told {
		return nil
	}
	for _, name := range benchPeers() {
		if err := cd.told(name, at); err != nil {
			return err
		}
	}
	return nil
}
