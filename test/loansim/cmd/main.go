// Command loansim judges loans of a limit's shares: see package loansim.
//
//	go run ./test/loansim/cmd table -regions 3 -units 600 -window 60   utilisation by shape of demand
//	go run ./test/loansim/cmd faults -worlds 1000                      random faults, judged in true time
//	go run ./test/loansim/cmd small                                    every state of small worlds
//	go run ./test/loansim/cmd reclaim                                  how long a region waits for its own share
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/regiond/regiond/test/loansim"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: loansim table | faults | small | reclaim [flags]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	regions := flags.Int("regions", 3, "regions of the table")
	units := flags.Int64("units", 600, "what all regions together may admit in a window, of the table")
	window := flags.Int64("window", 60, "seconds, of the table")
	seeds := flags.Int64("seeds", 2, "worlds of each shape")
	worlds := flags.Int64("worlds", 100, "worlds of random faults, two minutes each")
	first := flags.Int64("first", 1, "seed of the first")
	most := flags.Int("most", 2_000_000, "states of a small world, about a kilobyte each, after which to give up")
	_ = flags.Parse(os.Args[2:])
	ok := true
	switch os.Args[1] {
	case "table":
		ok = table(*regions, *units, *window, *seeds)
	case "faults":
		ok = faults(*first, *worlds)
	case "small":
		ok = small(*most)
	case "reclaim":
		for _, window := range []int64{60, 10, 1} {
			for _, units := range []int64{600, 10} {
				fmt.Printf("%d units in %d s: %s\n", units, window, loansim.Reclaim(units, window*1_000_000))
			}
		}
	default:
		fmt.Fprintf(os.Stderr, "loansim: no command %q\n", os.Args[1])
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func table(regions int, units, window, seeds int64) (ok bool) {
	windows, ok := 12, true
	if window == 1 {
		windows = 60
	}
	fmt.Printf("%d regions, %d units in %d s\n", regions, units, window)
	for _, d := range loansim.Demands {
		var u, m float64
		var over int64
		for s := int64(1); s <= seeds; s++ {
			r := loansim.Play(loansim.Options{Seed: s, Regions: regions, Bound: units, Window: window * 1_000_000, Delay: 120_000}, d, windows)
			u, m, over = u+r.Utilisation/float64(seeds), m+r.Messages/float64(seeds), max(over, r.Over)
		}
		fmt.Printf("  %-14s %6.2f %%  %5.1f messages/s and region  %d above the bound\n", d.Name, u, m/float64(regions), over)
		ok = ok && over == 0
	}
	return ok
}

func faults(first, worlds int64) (ok bool) {
	var hours float64
	var lent, bad int64
	worst := int64(-1 << 40)
	for s := first; s < first+worlds; s++ {
		w := loansim.Fault(s, 120_000_000)
		hours += w.Hours()
		lent, worst = lent+w.Grants, max(worst, w.Oracle.Worst)
		if w.Oracle.Worst > 0 {
			bad++
			fmt.Println(w)
		}
	}
	fmt.Printf("%d worlds, %.1f region-hours, %d grants: %d above the bound, the worst window by %+d\n", worlds, hours, lent, bad, worst)
	return bad == 0
}

func small(most int) (ok bool) {
	ok = true
	for _, o := range loansim.SmallWorlds {
		o.Most = most
		n, found, whole := o.Visit()
		fmt.Printf("%v: %d states, all of them: %v, above the bound: %v\n", o, n, whole, found != nil)
		if found != nil {
			fmt.Println("  " + strings.Join(found.Steps, "; "))
		}
		ok = ok && found == nil
	}
	for _, m := range slices.Sorted(maps.Keys(loansim.Mutants)) {
		n, found, _ := loansim.SmallFor(m).Visit()
		if found == nil {
			ok = false
			fmt.Printf("without the rule, %s: nothing above the bound in %d states\n", loansim.Mutants[m], n)
			continue
		}
		fmt.Printf("without the rule, %s: above the bound after %d states:\n  %s\n", loansim.Mutants[m], n, strings.Join(found.Steps, "; "))
	}
	return ok
}
