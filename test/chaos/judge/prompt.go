package judge

import (
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// Bounds are by how much regiond's answers may be later than the bare handler's in the
// same second: a part of them by Late, all by Max.
type Bounds struct {
	Part      float64
	Late, Max time.Duration
}

// Stated are the bounds that regiond promises: 50 ms for an answer, and the fail mode's
// work on a busy machine.
func Stated() Bounds {
	return Bounds{Part: 0.999, Late: 50 * time.Millisecond, Max: 60 * time.Millisecond}
}

// StatedOverloaded are those beside a Redis that stands still for pause at a time and is
// asked for more than it can do. If it is lost, a check that has waited its time there is
// answered when it has been silent for 42 ms.
func StatedOverloaded(pause time.Duration, lost bool) Bounds {
	if lost {
		return Bounds{Part: 0.999, Late: 80*time.Millisecond + pause, Max: 80*time.Millisecond + pause}
	}
	return Bounds{Part: 0.99, Late: 50*time.Millisecond + pause, Max: 60*time.Millisecond + pause}
}

// second is what was answered of the requests that were due in one second.
type second struct {
	regiond, bare []time.Duration
}

// Starved is how long the bare handler may take for a second to be judged. An answer of
// regiond's takes three turns on the processor where a bare one takes one, so when a
// turn is waited for longer than a whole answer may take, the second is not judged.
const Starved = 50 * time.Millisecond

// Excess is by how much regiond was later than the bare handler, at worst.
type Excess struct {
	Late, Max time.Duration // of the worst second each; not below 0
	Judged    int           // seconds
	Starved   int           // seconds that could not be judged
}

// Prompt compares, second by second. A stall of the machine that begins in one second
// and ends in the next holds up requests of both, so a request is compared with what the
// bare handler showed in its second or in the next, and one of the last, in which the bare handler
// may not have been asked, with the second before. Seconds in which the machine left
// both without a processor are counted, and not judged; that there are others is part of
// the bound.
func Prompt(records []traffic.Record, excused Excuse, b Bounds) (Excess, []string) {
	o := objections{what: "prompt"}
	seconds := bySecond(records, excused)
	worst := Excess{}
	for i, s := range seconds {
		if len(s.regiond) == 0 {
			continue
		}
		if last := i == len(seconds)-1; last && i > 0 && len(s.bare) == 0 { // a few ms long
			s.bare = seconds[i-1].bare
		}
		bareP, bareMax := quantile(s.bare, b.Part), quantile(s.bare, 1)
		if i+1 < len(seconds) {
			bareP, bareMax = max(bareP, quantile(seconds[i+1].bare, b.Part)), max(bareMax, quantile(seconds[i+1].bare, 1))
		}
		if len(s.bare) == 0 {
			o.add("second %d: the bare handler was not asked, nothing can be compared", i)
			continue
		}
		if bareMax > Starved {
			worst.Starved++
			continue
		}
		worst.Judged++
		p, m := quantile(s.regiond, b.Part)-bareP, quantile(s.regiond, 1)-bareMax
		worst.Late = max(worst.Late, p)
		worst.Max = max(worst.Max, m)
		if p > b.Late || m > b.Max {
			o.add("second %d: p%v %v and at most %v, the bare handler's %v and %v: %v and %v more, %v and %v are allowed",
				i, 100*b.Part, p+bareP, m+bareMax, bareP, bareMax, p, m, b.Late, b.Max)
		}
	}
	if worst.Judged == 0 {
		o.add("the machine was too busy in all of %d seconds: the bare handler took more than %v", worst.Starved, Starved)
	}
	return worst, o.all()
}

func bySecond(records []traffic.Record, excused Excuse) []second {
	var seconds []second
	for i := range records {
		r := &records[i]
		if r.Err != "" && !r.Bare || excused(r) { // a bare handler that gives up was slow, too
			continue
		}
		at := int(r.Due / time.Second)
		for len(seconds) <= at {
			seconds = append(seconds, second{})
		}
		if r.Bare {
			seconds[at].bare = append(seconds[at].bare, r.Took())
		} else {
			seconds[at].regiond = append(seconds[at].regiond, r.Took())
		}
	}
	for i := range seconds {
		slices.Sort(seconds[i].regiond)
		slices.Sort(seconds[i].bare)
	}
	return seconds
}

// quantile of sorted times: the least that so large a share does not exceed; 0 of none.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(float64(len(sorted))*share+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
