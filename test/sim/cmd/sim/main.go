// Command sim runs seeded worlds of regions in virtual time and reports what happened: region-hours,
// hard states, violations. First come the worlds of test/sim/testdata/corpus.txt, then random
// ones, half of the time with estimated limits, half with a bound. It exits with 1 if
// an invariant did not hold or a hard state was never reached.
//
//	go run ./test/sim/cmd/sim              two minutes of worlds
//	go run ./test/sim/cmd/sim -seed 4711   that one world
//	go run ./test/sim/cmd/sim -strict      worlds of limits with a bound only, judged without excuses
//	go run ./test/sim/cmd/sim -strict -only step,flush   of these with such faults alone
//	go run ./test/sim/cmd/sim -strict -lasts 10m -hours 10000 -kept FILE   so many region-hours of them, in several runs
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/test/sim"
)

// gcPercent lets garbage pile up longer: worlds are small, and make a lot of it.
const gcPercent = 400

func main() {
	lasts := flag.Duration("time", 0, "how long worlds are begun; 0 is two minutes, or with -hours as long as it takes")
	hours := flag.Float64("hours", 0, "how many region-hours are run of each kind; 0: no matter how many")
	from := flag.Uint64("from", 0, "the first seed after the corpus; 0: a random one")
	seed := flag.Uint64("seed", 0, "run this one world only; 0 means many")
	world := flag.Duration("lasts", 0, "how long a world lasts, virtually, and short pauses in it; 0 leaves it to the seed, and long ones")
	strict := flag.Bool("strict", false, "only worlds of limits with a bound, in which everything goes wrong; prints how many region-hours were played")
	only := flag.String("only", "", "only strict worlds with faults of these words, with commas between them; see test/sim/strictfaults.go")
	brief := flag.Bool("brief", false, "print in a line how long was played until a mistake showed")
	flag.Parse()
	debug.SetGCPercent(gcPercent)
	if *lasts == 0 && *hours == 0 {
		*lasts = 2 * time.Minute
	}
	plan := sim.Plan{Strict: *strict || *only != "", Seed: *seed, Lasts: *world, Only: *only}
	if *seed != 0 {
		r := plan.Run()
		os.Exit(tell(&r, nil))
	}
	var corpus []sim.Plan
	if !*brief && *only == "" {
		var err error
		if corpus, err = sim.Corpus(); err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
			os.Exit(1)
		}
	}
	if plan.Seed = *from; *from == 0 {
		plan.Seed = 1 + rand.Uint64N(1_000_000_000)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, *lasts, time.Duration(*hours*float64(time.Hour)), corpus, plan, *brief)
	stop()
	os.Exit(code)
}

// run runs the worlds of the corpus, then those from plan's seed on; both kinds unless plan is strict.
func run(ctx context.Context, lasts, hours time.Duration, corpus []sim.Plan, plan sim.Plan, brief bool) (code int) {
	began, kinds := time.Now(), []bool{true}
	if !plan.Strict {
		kinds = []bool{false, true}
	}
	for i, strict := range kinds {
		plan.Strict = strict
		first := slices.DeleteFunc(slices.Clone(corpus), func(p sim.Plan) bool { return p.Strict != strict })
		ctx, cancel := context.WithCancel(ctx)
		if lasts > 0 {
			ctx, cancel = context.WithDeadline(ctx, began.Add(lasts*time.Duration(i+1)/time.Duration(len(kinds))))
		}
		r := sim.Campaign(ctx, first, plan, hours)
		cancel()
		if brief {
			fmt.Println(r.Brief())
			code = max(code, min(1, len(r.Failed)))
			continue
		}
		fmt.Printf("%s worlds: %d of the corpus, then from seed %d on\n", map[bool]string{false: "estimated", true: "strict"}[strict], len(first), plan.Seed)
		var missing []string
		if !strict {
			missing = r.Missing()
		}
		code = max(code, tell(&r, missing))
		fmt.Println()
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
