package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// tally is what came back from one target.
type tally struct {
	mu sync.Mutex // guards all below

	sent, answered, allowed, denied, wouldDeny int64
	noSlot, tooLate                            int64 // not sent
	rests                                      map[string]int64
	reasons                                    map[string]int64
	faults                                     map[string]int64
	details                                    map[string]string // of a fault: the first one's

	latency, service, late *hdrhistogram.Histogram // in µs
}

// Latencies are kept to three digits: from a microsecond, which is less than any
// answer takes, to more than the longest run and timeout together.
const (
	leastUS = 1
	mostUS  = int64(2*time.Hour) / int64(time.Microsecond)
	digits  = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(leastUS, mostUS, digits) }

func newTally() *tally {
	return &tally{
		rests: map[string]int64{}, reasons: map[string]int64{}, faults: map[string]int64{}, details: map[string]string{},
		latency: newHistogram(), service: newHistogram(), late: newHistogram(),
	}
}

func (t *tally) update(change func(*tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// Prompt is the time in which a regiond answers. What fails sooner has kept nobody
// waiting.
const Prompt = 50 * time.Millisecond

// waited reports whether a request that got no decision has a latency all the same.
// What fails at once has none: it would make the others look good. Who waited and then
// got nothing waited all the same.
func waited(fault string, took time.Duration) bool {
	return fault == FaultTimeout || fault != FaultRefused && took >= Prompt
}

// add counts an answer that came so long after the request was sent, which was so
// late.
func (t *tally) add(a *Answer, late, took time.Duration) {
	t.sent++
	record(t.late, late)
	if a.Fault == "" || waited(a.Fault, took) {
		record(t.service, took)
		record(t.latency, late+took)
	}
	if a.Fault != "" {
		if t.faults[a.Fault]++; t.details[a.Fault] == "" {
			t.details[a.Fault] = a.Detail
		}
		return
	}
	t.answered++
	t.rests[a.Basis+"/"+a.Mode]++
	if a.Reason != "" {
		t.reasons[a.Reason]++
	}
	switch {
	case !a.Allowed:
		t.denied++
	case a.WouldDeny:
		t.wouldDeny++
		fallthrough
	default:
		t.allowed++
	}
}

// record keeps a time, rounded up to a whole µs: nothing takes no time at all.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	us := max(leastUS, int64((d+time.Microsecond-1)/time.Microsecond))
	_ = h.RecordValue(min(us, mostUS)) // fails above mostUS only
}

// merge adds what another target sent back. Neither changes meanwhile.
func (t *tally) merge(other *tally) {
	t.sent += other.sent
	t.answered += other.answered
	t.allowed += other.allowed
	t.denied += other.denied
	t.wouldDeny += other.wouldDeny
	t.noSlot += other.noSlot
	t.tooLate += other.tooLate
	for _, pair := range []struct{ into, from map[string]int64 }{
		{t.rests, other.rests}, {t.reasons, other.reasons}, {t.faults, other.faults},
	} {
		for what, n := range pair.from {
			pair.into[what] += n
		}
	}
	for what, detail := range other.details {
		if t.details[what] == "" {
			t.details[what] = detail
		}
	}
	t.latency.Merge(other.latency)
	t.service.Merge(other.service)
	t.late.Merge(other.late)
}
