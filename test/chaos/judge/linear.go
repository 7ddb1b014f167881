package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/oracle"
)

// linearWithin bounds the search for an order. One takes milliseconds.
const linearWithin = 30 * time.Second

// call is what was asked, in which partition.
type call struct {
	partition partition
	cost      int64
}

// reply is the outcome as far as HTTP shows it: times are whole milliseconds.
type reply struct {
	us, remaining, retryMS int64
	admitted               bool
}

// history is a partition of a sliding log between two calls. It is never changed, only
// replaced.
type history struct {
	us       int64
	admitted []oracle.Admission
}

// Linear insists that some order of the calls of each region and tenant explains every
// answer that Redis gave: admitted or not, how much remains, and when to come back. The
// order is that of Redis's times, as far as they differ, and must not
// contradict real time: what was answered before another call was sent comes
// before it.
//
// Where the outcome of a call is not known (its answer is late or came from memory), and
// in the given spans, the content of Redis is unknown. A window later it is known
// again, since only what is in the window matters, and the search goes on there. It returns
// how many calls were explained.
func Linear(records []traffic.Record, wallUS func(time.Duration) int64, class string, l Limit, unsure []Span) (checked int, objects []string) {
	o := objections{what: "linear"}
	for _, calls := range byPartition(records, class) {
		for _, stretch := range stretches(calls, wallUS, l, unsure) {
			checked += len(stretch.operations)
			of := stretch.operations[0].Input.(call).partition
			if a, b, ok := stretch.overtaken(); !ok {
				o.add("of %v a call at %v was decided after one that was sent at %v, when it had been answered", of, a.Call, b.Call)
			}
			switch porcupine.CheckOperationsTimeout(linearModel(l, stretch.before), stretch.operations, linearWithin) {
			case porcupine.Illegal:
				o.add("no order explains the %d calls of %v from %v on", len(stretch.operations), of, stretch.records[0].Call)
			case porcupine.Unknown:
				o.add("the %d calls of %v were not understood within %v", len(stretch.operations), of, linearWithin)
			}
		}
	}
	return checked, o.all()
}

func byPartition(records []traffic.Record, class string) map[partition][]*traffic.Record {
	all := map[partition][]*traffic.Record{}
	for i := range records {
		if r := &records[i]; r.Class == class && !r.Bare {
			p := partition{region: r.Region, tenant: r.Tenant}
			all[p] = append(all[p], r)
		}
	}
	return all
}

// stretch is calls of a partition between two of which the outcome is not known.
type stretch struct {
	before     history // what is in the window when it begins
	records    []*traffic.Record
	operations []porcupine.Operation // of the same calls
}

// lag is how long after its answer an uncertain call may still be carried out.
const lag = time.Second

// stretches finds them. Calls are in the order of Redis's clock in each.
func stretches(calls []*traffic.Record, wallUS func(time.Duration) int64, l Limit, unsure []Span) (all []stretch) {
	var known []*traffic.Record
	dim := [][2]int64{{0, 0}}
	for _, s := range unsure {
		dim = append(dim, [2]int64{wallUS(s.From), wallUS(s.To)})
	}
	for _, r := range calls {
		switch {
		case r.Err != "" || r.Answer.Basis == "local":
			dim = append(dim, [2]int64{wallUS(r.Call), wallUS(r.Return + lag)})
		case r.Answer.Explain.StoreTimeUS != 0: // 0 is a remembered denial, which nothing was asked for
			known = append(known, r)
		}
	}
	dim = append(dim, [2]int64{math.MaxInt64, math.MaxInt64})
	slices.SortFunc(dim, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	slices.SortStableFunc(known, func(a, b *traffic.Record) int {
		return cmp.Compare(a.Answer.Explain.StoreTimeUS, b.Answer.Explain.StoreTimeUS)
	})
	from := int64(0)
	for i := 1; i < len(dim); i++ {
		from = max(from, dim[i-1][1])
		if s := newStretch(known, from, dim[i][0], l); len(s.operations) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// newStretch takes what Redis decided well within two moments. At the very beginning,
// from = 0, nothing was used yet.
func newStretch(known []*traffic.Record, from, to int64, l Limit) stretch {
	s, begin := stretch{}, from
	if from > 0 {
		begin += l.Window.Microseconds()
	}
	rank, last := int64(0), int64(0)
	for i, r := range known {
		at := r.Answer.Explain.StoreTimeUS
		switch {
		case at <= from || at >= to-1000: // a millisecond, since Redis's clock is not ours
			continue
		case at <= begin:
			if r.Answer.Allowed {
				s.before.admitted = append(s.before.admitted, oracle.Admission{US: at, Cost: r.Cost})
			}
			continue
		case at != last:
			rank, last = rank+1, at
		}
		s.records = append(s.records, r)
		s.operations = append(s.operations, porcupine.Operation{
			// Porcupine gets Redis's order and searches where times are equal.
			ClientId: i, Call: 2 * rank, Return: 2*rank + 1,
			Input:  call{partition: partition{region: r.Region, tenant: r.Tenant}, cost: r.Cost},
			Output: reply{us: at, admitted: r.Answer.Allowed, remaining: r.Answer.Remaining, retryMS: r.Answer.RetryAfterMS},
		})
	}
	return s
}

// overtaken finds a call a that was answered before another, b, was sent, and that Redis
// is of a later decision; ok is false if there is one.
func (s *stretch) overtaken() (a, b *traffic.Record, ok bool) {
	sent := slices.SortedFunc(slices.Values(s.records), func(a, b *traffic.Record) int { return cmp.Compare(a.Call, b.Call) })
	answered := slices.SortedFunc(slices.Values(s.records), func(a, b *traffic.Record) int { return cmp.Compare(a.Return, b.Return) })
	var newest *traffic.Record // of those that had been answered, the one decided last
	for _, b := range sent {
		for len(answered) > 0 && answered[0].Return < b.Call {
			if newest == nil || answered[0].Answer.Explain.StoreTimeUS > newest.Answer.Explain.StoreTimeUS {
				newest = answered[0]
			}
			answered = answered[1:]
		}
		if newest != nil && newest.Answer.Explain.StoreTimeUS > b.Answer.Explain.StoreTimeUS {
			return newest, b, false
		}
	}
	return nil, nil, true
}

func linearModel(l Limit, before history) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return before },
		Step: func(state, input, output any) (bool, any) {
			return state.(history).step(l, input.(call).cost, output.(reply))
		},
		Equal: func(a, b any) bool {
			x, y := a.(history), b.(history)
			return x.us == y.us && slices.Equal(x.admitted, y.admitted)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// step is the expected answer of the store.
func (h history) step(l Limit, cost int64, out reply) (bool, any) {
	if out.us < h.us {
		return false, h
	}
	width := l.Window.Microseconds()
	var inside []oracle.Admission
	used := int64(0)
	for _, a := range h.admitted {
		if a.US > out.us-width {
			inside = append(inside, a)
			used += a.Cost
		}
	}
	next := history{us: out.us, admitted: inside}
	if used+cost <= l.Units {
		next.admitted = append(inside[:len(inside):len(inside)], oracle.Admission{US: out.us, Cost: cost})
		return out.admitted && out.remaining == l.Units-used-cost && out.retryMS == 0, next
	}
	wait := int64(0)
	for _, a := range inside { // oldest first
		if used+cost <= l.Units {
			break
		}
		used -= a.Cost
		wait = a.US + width - out.us
	}
	left := l.Units
	for _, a := range inside {
		left -= a.Cost
	}
	return !out.admitted && out.remaining == left && out.retryMS == (wait+999)/1000, next
}
