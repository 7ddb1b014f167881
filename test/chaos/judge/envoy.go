package judge

import (
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// The domains that Envoys ask for: without Redis the first denies, the second admits, and the
// third counts in memory. Only the first has a limit that is ever reached.
const (
	Shut = "shut"
	Open = "open"
	Own  = "own"
)

// Call is one decision that an Envoy asked for with a deadline, and what became of it.
type Call struct {
	Region, Domain, User string
	Call, Return         time.Duration // since the history began
	Code                 string        // of the answer, or of gRPC if there is none
	From                 string        // the region that answered
	Mode, Basis          string
}

// What Code says.
const (
	Passed   = "OK"
	Refused  = "OVER_LIMIT"
	TooLate  = "DeadlineExceeded"
	thatMany = 0.8 // of what Shut admits before the fault, that its oracle says something
)

// Envoys is what is expected of the answers to Envoys.
type Envoys struct {
	Units  int64           // of a user of Shut, in all regions together
	Turn   time.Duration   // for how long a user of Shut is asked for
	Before time.Duration   // when the fault begins
	Away   map[string]Span // when regions are without Redis for sure
	Busy   string          // the region whose Redis is too slow for the deadline, "" for none
	// Deadline is that of each call, and Margin what regiond leaves of it for the way back.
	Deadline, Margin time.Duration
}

// Missed is how many calls had no answer by their deadlines.
type Missed struct {
	Asked  int `json:"asked"`
	Missed int `json:"missed"`
	Passed int `json:"passed"` // of Shut
}

// Judge insists that every call has an answer of its region, by its deadline as far as the
// machine allows; that Redis decides where it is there; that each domain does what is
// configured for it where it is not; and that no user of Shut has more than the limit in all
// regions together, whatever the fault.
func (e Envoys) Judge(calls []Call, records []traffic.Record) (Missed, []string) {
	o, sum := objections{what: "envoy"}, Missed{}
	users, before := map[string]int64{}, int64(0)
	for i := range calls {
		c := &calls[i]
		sum.Asked++
		switch {
		case c.Code == TooLate:
			sum.Missed++
			continue
		case c.Code != Passed && c.Code != Refused, c.From != c.Region:
			o.add("%s at %v: the answer is %s, of %q", c.Region, c.Call, c.Code, c.From)
			continue
		}
		if c.Domain == Shut && c.Code == Passed {
			sum.Passed++
			if users[c.User]++; c.Return < e.Before {
				before++
			}
		}
		if want := e.wrong(c); want != "" {
			o.add("%s at %v: %s is %s by basis %s in mode %s, not %s", c.Region, c.Call, c.Domain, c.Code, c.Basis, c.Mode, want)
		}
	}
	for user, n := range users {
		if n > e.Units {
			o.add("user %s of %s has %d units of %d", user, Shut, n, e.Units)
		}
	}
	if full := e.Units * int64((e.Before-firstOf(calls))/e.Turn); float64(before) < thatMany*float64(full) {
		o.add("%d units of %s were admitted before the fault, at least %v of %d are expected", before, Shut, thatMany, full)
	}
	o.late(e, calls, records)
	return sum, o.all()
}

func firstOf(calls []Call) time.Duration {
	if len(calls) == 0 {
		return 0
	}
	return slices.MinFunc(calls, func(a, b Call) int { return int(a.Call - b.Call) }).Call
}

// wrong is what an answer should have been, "" for one that is right.
func (e Envoys) wrong(c *Call) string {
	if away, ok := e.Away[c.Region]; ok {
		if c.Call < away.From || c.Return > away.To {
			return "" // whether Redis is there is being found out
		}
		want := map[string][2]string{Shut: {Refused, "closed"}, Open: {Passed, "open"}, Own: {Passed, "local"}}[c.Domain]
		if c.Mode == "local" && [2]string{c.Code, c.Basis} == want {
			return ""
		}
		return want[0] + " by basis " + want[1] + " in mode local"
	}
	switch {
	case c.Basis == "open", c.Basis == "local", c.Basis == "closed":
		return "decided by Redis"
	case c.Basis == "shed" && c.Code != Refused:
		return Refused
	case c.Domain != Shut && c.Code == Refused && c.Basis != "shed":
		return Passed
	}
	return ""
}

// late objects to calls that missed their deadline, or were turned away by then though Redis is
// not slow. The bare handler shows for how long a turn on the processor was waited for: where that
// was more than the margin, an answer that takes three turns may be late, as one in twenty may
// be in any case. Where the bare handler itself missed the deadline nothing can be said.
func (o *objections) late(e Envoys, calls []Call, records []traffic.Record) {
	type second struct {
		region string
		at     time.Duration
	}
	asked, late, waited, starved := map[second]int{}, map[second]int{}, map[second]int{}, map[second]bool{}
	for i := range calls {
		c := &calls[i]
		s := second{c.Region, c.Call / time.Second}
		if asked[s]++; c.Code == TooLate || c.Basis == "shed" && c.Region != e.Busy {
			late[s]++
		}
	}
	for i := range records {
		r := &records[i]
		if !r.Bare || r.Took() <= e.Margin {
			continue
		}
		for _, at := range []time.Duration{r.Due / time.Second, r.Due/time.Second - 1} {
			s := second{r.Region, at}
			waited[s]++
			starved[s] = starved[s] || r.Took() > e.Deadline
		}
	}
	for s, n := range late {
		if allowed := 3*waited[s] + (asked[s]+19)/20; n > allowed && !starved[s] {
			o.add("second %d: %d of %d calls to %s were late, %d may", s.at, n, asked[s], s.region, allowed)
		}
	}
}
