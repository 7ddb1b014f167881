// Command sim runs seeded worlds of regions in virtual time and says what it saw:
// region-hours, hard states, violations; then how exact global limits are. It exits
// with 1 if an invariant did not hold or a hard state was never reached.
//
//	go run ./test/sim/cmd/sim              two minutes of worlds, from seed 1 on
//	go run ./test/sim/cmd/sim -seed 4711   that one world
//	go run ./test/sim/cmd/sim -strict      worlds of limits with a bound, judged without excuses
//	go run ./test/sim/cmd/sim -strict -lasts 10m -hours 10000   so many region-hours of them
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/regiond/regiond/test/sim"
	"github.com/regiond/regiond/test/sim/accuracy"
)

// gcPercent lets garbage pile up longer: worlds are small, and make a lot of it.
const gcPercent = 400

func main() {
	lasts := flag.Duration("time", 0, "how long worlds are begun; 0 is two minutes, or with -hours as long as it takes")
	hours := flag.Float64("hours", 0, "how many region-hours are run; 0: no matter how many")
	from := flag.Uint64("from", 1, "the first seed")
	seed := flag.Uint64("seed", 0, "run this one world only; 0 means many")
	world := flag.Duration("lasts", 0, "how long a world lasts, virtually, and short pauses in it; 0 leaves it to the seed, and long ones")
	strict := flag.Bool("strict", false, "worlds of limits with a bound, in which everything goes wrong; says how many region-hours were played")
	brief := flag.Bool("brief", false, "say in a line how long was played until a mistake showed")
	flag.Parse()
	debug.SetGCPercent(gcPercent)
	if *lasts == 0 && *hours == 0 {
		*lasts = 2 * time.Minute
	}
	os.Exit(run(*lasts, *hours, *from, *seed, *world, *strict, *brief))
}

func run(lasts time.Duration, hours float64, from, seed uint64, world time.Duration, strict, brief bool) int {
	one := sim.RunSeed
	if strict {
		one = sim.RunStrictSeed
	}
	if seed != 0 {
		r := one(seed, world)
		return tell(&r, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if lasts > 0 {
		ctx, cancel = context.WithTimeout(ctx, lasts)
	}
	defer cancel()
	r := sim.Campaign(ctx, from, world, time.Duration(hours*float64(time.Hour)), one)
	if brief {
		fmt.Println(r.Brief())
		return min(1, len(r.Failed))
	}
	if strict {
		return tell(&r, nil)
	}
	code := tell(&r, r.Missing())
	fmt.Println()
	if err := accuracy.Report(context.Background(), os.Stdout, accuracy.Simulated, runtime.GOMAXPROCS(0)); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return 1
	}
	return code
}

func tell(r *sim.Report, missing []string) int {
	r.Print(os.Stdout)
	switch {
	case r.Err != nil:
		fmt.Fprintln(os.Stderr, "sim:", r.Err)
		return 1
	case len(missing) > 0:
		fmt.Fprintf(os.Stderr, "sim: never reached: %s; run longer with SIMTIME=…, or see what keeps worlds from it\n", strings.Join(missing, "; "))
		return 1
	case len(r.Failed) > 0:
		return 1
	}
	return 0
}
