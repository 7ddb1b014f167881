//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// noticed checks that the regions concerned report the fault in time,
// that the others never do, that no region reports a mode that the fault
// does not explain, and that none does for long.
func (x *trial) noticed(records []traffic.Record) (objects []string) {
	first, last, odd := map[string]time.Duration{}, time.Duration(0), map[string]bool{}
	for i := range records {
		r := &records[i]
		if r.Bare || r.Err != "" {
			continue
		}
		if mode := r.Answer.Mode; !slices.Contains(x.Modes, mode) {
			// A machine that is too busy for a moment is reason enough for local.
			if mode != "global" && mode != "local" && r.Call >= x.injected && !odd[r.Region] {
				odd[r.Region] = true
				objects = append(objects, fmt.Sprintf("noticed: %s answers %s %s at %v, for which there is no reason", r.Region, mode, r.Answer.Reason, r.Return))
			}
			continue
		}
		if at, ok := first[r.Region]; r.Call >= x.injected && (!ok || r.Return < at) {
			first[r.Region] = r.Return
		}
		last = max(last, r.Return)
	}
	for _, name := range Names() {
		at, ever := first[name]
		within, must := x.Notice[name]
		if within == NoticeRedis {
			within += x.bare(records)
		}
		switch {
		case slices.Contains(x.Unmoved, name) && ever:
			objects = append(objects, fmt.Sprintf("noticed: %s is in one of the modes %v at %v, which is none of its business", name, x.Modes, at))
		case must && !ever:
			objects = append(objects, fmt.Sprintf("noticed: %s is never in one of the modes %v", name, x.Modes))
		case must && at-x.injected > within:
			objects = append(objects, fmt.Sprintf("noticed: %s after %v, in time is %v", name, at-x.injected, within))
		}
		if must {
			x.figures.NoticeMS = max(x.figures.NoticeMS, ms(at-x.injected))
		}
	}
	if last > x.again+100*time.Millisecond && !slices.Contains(x.Modes, "local") {
		objects = append(objects, fmt.Sprintf("noticed: an answer at %v is not global, though all had counted on each other at %v", last, x.again))
	}
	return objects
}

// bare is the longest that the bare handler took around the beginning of the fault.
func (x *trial) bare(records []traffic.Record) (worst time.Duration) {
	for i := range records {
		r := &records[i]
		if r.Bare && r.Return >= x.injected && r.Due <= x.injected+time.Second {
			worst = max(worst, r.Took())
		}
	}
	return worst
}
