package sim

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Report is what a campaign of many worlds has seen.
type Report struct {
	Worlds     int
	RegionTime time.Duration // virtual, all regions of all worlds
	// Played is the part of it in which a bound was so nearly used that a mistake would show.
	Played time.Duration
	Took   time.Duration // of this machine
	Stats  Stats
	Hard   Hard
	Strict bool // the worlds were StrictPlans
	Faults Faults
	Failed []Failure
	Err    error // a world could not be made
}

// Plan names a FaultPlan or a StrictPlan.
type Plan struct {
	Strict bool
	Seed   uint64
	Lasts  time.Duration // as given to NewFaultPlan or NewStrictPlan
	Only   string        // as given to NewStrictPlan, with commas; "" for none
}

// Failure is a plan whose world broke an invariant.
type Failure struct {
	Plan
	Violation
}

// Replay is the command that runs the world again.
func (p Plan) Replay() string {
	switch {
	case p.Only != "":
		return fmt.Sprintf("go run ./test/sim/cmd/sim -only %s -seed %d -lasts %v", p.Only, p.Seed, p.Lasts)
	case p.Strict:
		return fmt.Sprintf("go run ./test/sim/cmd/sim -strict -seed %d -lasts %v", p.Seed, p.Lasts)
	case p.Lasts == 0:
		return fmt.Sprintf("make sim SEED=%d", p.Seed)
	}
	return fmt.Sprintf("go run ./test/sim/cmd/sim -seed %d -lasts %v", p.Seed, p.Lasts)
}

// Campaign runs the worlds of all first, and of the seeds from that of then on until ctx ends, some
// have failed, or they have seen so much of RegionTime; 0: no matter how much. As many run beside each other
// as there are cores, one goroutine each, and a world that was begun is finished. All are of one kind.
func Campaign(ctx context.Context, first []Plan, then Plan, most time.Duration) Report {
	var (
		mu    sync.Mutex // guards all below
		r     = Report{Strict: then.Strict}
		began = time.Now()
		group sync.WaitGroup
	)
	take := func() (p Plan, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Err != nil || len(r.Failed) >= 3 || r.Strict && len(r.Failed) > 0:
			return p, false
		case len(first) > 0:
			p, first = first[0], first[1:]
			return p, true
		}
		p = then
		then.Seed++
		return p, ctx.Err() == nil && (most == 0 || r.RegionTime < most)
	}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				p, ok := take()
				if !ok {
					return
				}
				world := p.Run()
				mu.Lock()
				r.add(&world)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	r.Took = time.Since(began)
	return r
}

// Run runs the plan's world to its end, or to its first violations; see NewFaultPlan and NewStrictPlan.
func (p Plan) Run() Report {
	var broken []Violation
	r := Report{Worlds: 1, Strict: p.Strict}
	if p.Strict {
		f, err := NewStrictPlan(p.Seed, p.Lasts, strings.FieldsFunc(p.Only, func(r rune) bool { return r == ',' })...)
		if err != nil {
			return Report{Err: fmt.Errorf("seed %d: %w", p.Seed, err)}
		}
		broken = f.Run()
		r.RegionTime, r.Played, r.Stats, r.Faults = f.RegionTime(), f.Played(), f.Stats(), f.faults
	} else {
		f := NewFaultPlan(p.Seed, p.Lasts)
		broken = f.Run()
		r.RegionTime, r.Stats, r.Hard = f.RegionTime(), f.Stats(), f.HardStates()
	}
	for _, v := range broken {
		r.Failed = append(r.Failed, Failure{p, v})
	}
	return r
}

func (r *Report) add(one *Report) {
	r.Worlds += one.Worlds
	r.RegionTime += one.RegionTime
	r.Played += one.Played
	r.Failed = append(r.Failed, one.Failed...)
	if r.Err == nil {
		r.Err = one.Err
	}
	s, t := &r.Stats, &one.Stats
	s.Events += t.Events
	s.Checks += t.Checks
	s.Admitted += t.Admitted
	s.Published += t.Published
	s.Lost += t.Lost
	s.Summed += t.Summed
	s.Converged += t.Converged
	s.Loans += t.Loans
	s.Grants += t.Grants
	s.Settled += t.Settled
	s.Told += t.Told
	for i := range r.Hard {
		r.Hard[i] += one.Hard[i]
	}
	if r.Faults == nil {
		r.Faults = Faults{}
	}
	for word, n := range one.Faults {
		r.Faults[word] += n
	}
}

// Missing names the hard states that were never reached.
func (r *Report) Missing() []string {
	var names []string
	for i, n := range r.Hard {
		if n == 0 {
			names = append(names, hard(i).String())
		}
	}
	return names
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	s := &r.Stats
	fmt.Fprintf(w, "%d worlds, %.1f region-hours at true timings in %v\n",
		r.Worlds, r.RegionTime.Hours(), r.Took.Round(time.Second))
	fmt.Fprintf(w, "%d events (%.0f a second), %d checks, %d messages, %d lost on their way\n",
		s.Events, float64(s.Events)/max(r.Took.Seconds(), 1e-9), s.Checks, s.Published, s.Lost)
	if r.Strict {
		fmt.Fprintf(w, "%.1f region-hours played: nine tenths of a bound were in use; %d messages about loans, %d grants\n", r.Played.Hours(), s.Loans, s.Grants)
		fmt.Fprintf(w, "%d units of reservations were held until they were settled, %d were not, and the caller was told\n", s.Settled, s.Told)
		fmt.Fprintln(w, "\nfaults:")
		for _, fault := range strictFaults() {
			fmt.Fprintf(w, "%10d  %s\n", r.Faults[fault.word], fault.name)
		}
		r.printFailed(w, "windows above a bound")
		return
	}
	fmt.Fprintf(w, "%d times the sum over all regions was accounted for, %d times all were seen to hold the same\n",
		s.Summed, s.Converged)
	fmt.Fprintln(w, "\nhard states reached:")
	for i, n := range r.Hard {
		fmt.Fprintf(w, "%10d  %s\n", n, hard(i))
	}
	r.printFailed(w, "unexplained violations")
}

// Brief is a line about how long it took until a mistake showed.
func (r *Report) Brief() string {
	played := r.Played
	if !r.Strict {
		played = r.RegionTime
	}
	if len(r.Failed) == 0 {
		return fmt.Sprintf("nothing in %.1f region-hours (%v)", played.Hours(), r.Took.Round(time.Second))
	}
	return fmt.Sprintf("shown after %.2f region-hours (%v): %s, seed %d", played.Hours(), r.Took.Round(time.Second), r.Failed[0].Name, r.Failed[0].Seed)
}

func (r *Report) printFailed(w io.Writer, what string) {
	fmt.Fprintf(w, "\n%d %s\n", len(r.Failed), what)
	for i := range r.Failed {
		v := &r.Failed[i]
		fmt.Fprintf(w, "\nseed %d, at %v: %s\n  %s\nreplay: %s\nbefore it:\n%s", v.Seed, v.At, v.Name, v.Text, v.Replay(), v.Last)
	}
}
