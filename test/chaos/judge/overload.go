package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// Overload is a region that is asked for more than its Redis can do.
type Overload struct {
	Region string // "" for none
	Span
	// Away is when the fail mode may answer there, because its Redis is away too.
	Away []Span
	// Times is how much more, from Full on: what is asked for, by what Redis decides. 0 is for a
	// Redis that is only slow.
	Times float64
	Full  time.Duration
}

// Most of the checks that come one by one are decided, however many come in batches.
const singlesDecided = 0.99

// Stalled is how long the bare handler may take for a second of overload to be judged: a
// check that waits for 22 ms is shed, and a Redis that a throttle and the machine hold up for
// 40 ms cannot be told from a dead one.
const Stalled = 20 * time.Millisecond

// Rates are of the checks in an overloaded region while its Redis was there.
type Rates struct {
	Asked   int     `json:"asked"` // in batches a second, as the next two
	Decided int     `json:"decided"`
	Shed    int     `json:"shed"`
	Singles Singles `json:"singles"` // in all
	Local   int     `json:"local"`   // answers without Redis, in seconds that are not judged
	Judged  int     `json:"judged"`  // seconds
	Stalled int     `json:"stalled"` // seconds in which the machine was too busy to judge
	// Short says that less was asked for than is meant: the machine held Redis up while its speed was measured.
	Short bool `json:"short"`
}

// Singles are the checks that come one by one.
type Singles struct {
	Asked   int `json:"asked"`
	Decided int `json:"decided"`
}

// Add adds those of another run.
func (s *Singles) Add(other Singles) {
	s.Asked, s.Decided = s.Asked+other.Asked, s.Decided+other.Decided
}

// Judge insists that most of them were decided. A run of ten seconds has a few hundred, of which
// a few may be turned away by chance: judge several runs together.
func (s Singles) Judge() []string {
	o := objections{what: "overload"}
	if share := float64(s.Decided) / float64(max(1, s.Asked)); share < singlesDecided {
		o.add("of %d checks that come one by one %s are decided; %s at least", s.Asked, percent(share), percent(singlesDecided))
	}
	return o.all()
}

// Overloaded insists that load alone is answered as such: by Redis, by a denial that
// holds, or by turning the check away; and that a check is turned away only there. It
// objects to a run too in which less is asked for than it is meant to be.
func Overloaded(records []traffic.Record, excused Excuse, v Overload) (Rates, []string) {
	o := objections{what: "overload"}
	stalled, judged := stalls(records), map[int]bool{}
	var rates Rates
	var batches, singles counts
	for i := range records {
		r := &records[i]
		if r.Bare || r.Err != "" || excused(r) {
			continue
		}
		second := int(r.Due / time.Second)
		stalled := stalled[second] || stalled[int(r.Return/time.Second)]
		loaded := r.Region == v.Region && r.Return > v.From && r.Call < v.To
		switch {
		case !loaded:
			if r.Answer.Basis == "shed" && !stalled {
				o.add("%s turns away a check of %s at %v, after %v, when its Redis has little to do", r.Region, r.Tenant, r.Return, r.Took())
			}
			continue
		case slices.ContainsFunc(v.Away, func(s Span) bool { return r.Return > s.From && r.Call < s.To }):
			continue
		case slices.Contains([]string{"exact", "estimate", "cached", "shed"}, r.Answer.Basis):
		case stalled:
			rates.Local++
		default:
			o.add("%s answers a check of %s at %v by basis %s, reason %s: its Redis is busy, not away",
				r.Region, r.Tenant, r.Return, r.Answer.Basis, r.Answer.Reason)
		}
		switch {
		case r.Call < v.Full:
		case stalled:
			if _, known := judged[second]; !known {
				judged[second] = false
			}
		default:
			if judged[second] = true; r.Batch {
				batches.add(r)
			} else {
				singles.add(r)
			}
		}
	}
	for _, yes := range judged {
		if yes {
			rates.Judged++
		} else {
			rates.Stalled++
		}
	}
	if rates.Judged == 0 {
		return rates, o.all()
	}
	rates.Asked, rates.Decided, rates.Shed = batches.asked/rates.Judged, batches.decided/rates.Judged, batches.shed/rates.Judged
	rates.Singles = Singles{Asked: singles.asked, Decided: singles.decided}
	more := objections{what: "overload"}
	if rates.Short = float64(batches.asked) < v.Times*float64(batches.decided); rates.Short {
		more.add("%d checks a second are asked of %s and %d decided, which is not %v times too many", rates.Asked, v.Region, rates.Decided, v.Times)
	}
	if v.Times > 0 && batches.decided == 0 {
		more.add("%s decides none of the checks that come in batches", v.Region)
	}
	return rates, append(more.all(), o.all()...)
}

// stalls are the seconds in which the bare handler took longer than Stalled, from when its
// request was due to its answer.
func stalls(records []traffic.Record) map[int]bool {
	all := map[int]bool{}
	for i := range records {
		if r := &records[i]; r.Bare && r.Took() > Stalled {
			for second := int(r.Due / time.Second); second <= int(r.Return/time.Second); second++ {
				all[second] = true
			}
		}
	}
	return all
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// counts are of checks by what became of them.
type counts struct{ asked, decided, shed int }

func (c *counts) add(r *traffic.Record) {
	c.asked++
	switch r.Answer.Basis {
	case "shed":
		c.shed++
	case "exact", "estimate", "cached":
		c.decided++
	}
}

// Switched insists that a reload is atomic: in each region, once an answer has shown
// the limit of the other file, every check that is sent afterwards goes by it until the span ends,
// and the checks of one request go by one file.
func Switched(records []traffic.Record, class string, from, to int64, during Span) []string {
	o := objections{what: "switched"}
	since := map[string]time.Duration{} // when the other limit was answered first
	shown := func(r *traffic.Record) bool {
		return r.Class == class && r.Err == "" && !r.Bare && r.Answer.Basis != "shed" && r.Call >= during.From && r.Return <= during.To
	}
	for i := range records {
		r := &records[i]
		if at, ok := since[r.Region]; shown(r) && r.Answer.Limit == to && (!ok || r.Return < at) {
			since[r.Region] = r.Return
		}
	}
	regions := map[string]bool{}
	var last *traffic.Record
	for i := range records {
		r := &records[i]
		if !shown(r) {
			continue
		}
		regions[r.Region] = true
		at, switched := since[r.Region]
		if r.Answer.Limit != from && r.Answer.Limit != to || switched && r.Call > at && r.Answer.Limit != to {
			o.add("%s applies a limit of %d to %s at %v, %d was the last to be valid since %v", r.Region, r.Answer.Limit, r.Tenant, r.Call, to, at)
		}
		if last != nil && r.Batch && last.Call == r.Call && last.Region == r.Region && last.Answer.Limit != r.Answer.Limit {
			o.add("%s applies limits of %d and of %d to one batch at %v", r.Region, last.Answer.Limit, r.Answer.Limit, r.Call)
		}
		last = r
	}
	for region := range regions {
		if _, ok := since[region]; !ok {
			o.add("%s never applies the limit of %d", region, to)
		}
	}
	return o.all()
}
