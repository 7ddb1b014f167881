//go:build chaos && linux

package chaos_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/chaos/wan"
)

// binaries are what TestMain has built for all scenarios. Nothing else is shared.
var binaries chaos.Binaries

func TestMain(m *testing.M) {
	chaos.BareFromEnv()
	if lacks := chaos.Needs(); lacks != "" {
		fmt.Fprintln(os.Stderr, "the scenarios need", lacks)
		os.Exit(1)
	}
	giveBack := chaos.PutAhead()
	dir, err := chaos.Workplace()
	if err == nil {
		binaries, err = chaos.Build(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	giveBack()
	os.Exit(code)
}

// world is what most scenarios happen in: regions 80 ms apart, there and back.
func world() chaos.Options {
	return chaos.Options{
		Binaries: binaries, Seed: 1,
		Line: wan.Link{Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond},
	}
}

const (
	eu = "eu-west"
	us = "us-east"
	ap = "ap-south"
)

// blind are the modes of a region that cannot reach all others, and away that of one
// without Redis.
func blind() []string { return []string{"partitioned", "stale", "joining"} }
func away() []string  { return []string{"local"} }

// within is the same deadline for some regions.
func within(d time.Duration, names ...string) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, name := range names {
		all[name] = d
	}
	return all
}

// parts are those of the hot limit: equal weights have equal parts, and of what is left the first by name have a unit more.
func parts(names ...string) chaos.Group {
	all := slices.Sorted(slices.Values(chaos.Names()))
	each, left := chaos.HotUnits/int64(len(all)), chaos.HotUnits%int64(len(all))
	g := chaos.Group{Regions: names}
	for i, name := range all {
		if slices.Contains(names, name) {
			if g.Units += each; int64(i) < left {
				g.Units++
			}
		}
	}
	return g
}

// scenario is one row of a table of scenarios.
type scenario struct {
	name string
	chaos.Scenario
}

// run runs scenarios at their durations, and in make chaos-long at others too.
func run(t *testing.T, all []scenario) {
	for _, s := range all {
		t.Run(s.name, usual(s.Scenario).Run)
	}
}

// bounded has a scenario judge limits with a bound, with fewer requests of other kinds: two
// processors have no room for both.
func bounded(s chaos.Scenario) chaos.Scenario {
	s.Bounded, s.Rate = true, 600
	return s
}

// with is the world with further options.
func with(change func(o *chaos.Options)) chaos.Options {
	o := world()
	change(&o)
	return o
}

// usual fills in what most scenarios have.
func usual(s chaos.Scenario) chaos.Scenario {
	if s.World == (chaos.Options{}) {
		s.World = world()
	}
	if s.Profile.Name == "" {
		s.Profile = traffic.Steady()
	}
	if s.Modes == nil {
		s.Modes = blind()
	}
	s.Again = cmp.Or(s.Again, chaos.Again)
	return s
}
