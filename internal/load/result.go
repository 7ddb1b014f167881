package load

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// MostLate is how late one request in a hundred may leave before a run counts as one
// that did not keep up: little beside the 50 ms in which a regiond answers, and more
// than a machine with time to spare ever is.
const MostLate = 2 * time.Millisecond

// Result is what came of a run. Times are in milliseconds, rates per second; nothing
// of the warm-up is in it.
type Result struct {
	Asked      Asked `json:"asked"`
	EndedEarly bool  `json:"ended_early"`

	Due    int64  `json:"due"` // requests whose time came
	Unsent Unsent `json:"unsent"`
	Counts
	Errors   []Error `json:"errors"`   // Failed, by kind
	Answers  []Count `json:"answers"`  // Answered, by basis and mode
	Degraded []Count `json:"degraded"` // by reason

	SendingMS float64 `json:"sending_ms"` // how long requests were sent
	// DecidedPerS is Decided over that time, and AchievedRatio that over the rate
	// that was asked for.
	DecidedPerS   float64 `json:"decided_per_s"`
	AchievedRatio float64 `json:"achieved_ratio"`

	Latency Quantiles `json:"latency_ms"` // from when a request was due
	Service Quantiles `json:"service_ms"` // from when it was sent
	Late    Quantiles `json:"late_ms"`    // from when it was due until it was sent
	KeptUp  bool      `json:"kept_up"`    // this tool did, by MostLate

	Targets []TargetResult `json:"targets"`
}

// Counts are what came of requests.
type Counts struct {
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"` // by a regiond: Allowed, Denied or Shed
	// Decided are those of Answered that were counted, by Redis or in what replaces it:
	// exact, estimate or cached. The others are Shed, or those of a fail mode.
	Decided int64 `json:"decided"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// WouldDeny are those of Allowed that only an observing policy let through.
	WouldDeny int64 `json:"would_deny"`
	Shed      int64 `json:"shed"`   // turned away undecided, or let pass so by an observing policy
	Failed    int64 `json:"failed"` // no answer of a regiond came back
}

func (c *Counts) add(a *Answer) {
	c.Sent++
	if a.Fault != "" {
		c.Failed++
		return
	}
	c.Answered++
	switch a.Basis {
	case "shed":
		c.Shed++
		return
	case "exact", "estimate", "cached":
		c.Decided++
	}
	if !a.Allowed {
		c.Denied++
		return
	}
	c.Allowed++
	if a.WouldDeny {
		c.WouldDeny++
	}
}

// Asked are the options of the run.
type Asked struct {
	Rate        float64 `json:"rate"`
	ForMS       float64 `json:"for_ms"`
	WarmupMS    float64 `json:"warmup_ms"`
	Tenants     int     `json:"tenants"`
	Zipf        float64 `json:"zipf"`
	Policy      string  `json:"policy,omitempty"`
	Cost        string  `json:"cost"`
	MaxInFlight int     `json:"max_in_flight"`
	TimeoutMS   float64 `json:"timeout_ms"`
}

// Unsent are requests that were due and not sent.
type Unsent struct {
	InFlight int64 `json:"in_flight"` // as many as allowed were waiting for an answer
	Late     int64 `json:"late"`      // the run was over before this tool came to them
}

// Count is how often something came.
type Count struct {
	What string `json:"what"`
	N    int64  `json:"n"`
}

// Error is how often one kind of fault came, and the text of the first.
type Error struct {
	Count
	Detail string `json:"detail,omitempty"`
}

// Quantiles are of times in milliseconds: that part of all took so long at most. All
// are 0 when there was nothing to measure.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// TargetResult is one target's part.
type TargetResult struct {
	URL    string `json:"url"`
	Unsent int64  `json:"unsent"`
	Counts
	Latency Quantiles `json:"latency_ms"`
	Service Quantiles `json:"service_ms"`
}

// tally counts what came of requests, to one target or to all.
type tally struct {
	Counts
	unsent                   Unsent
	answers, reasons, faults map[string]int64
	details                  map[string]string       // of a fault: the first one's
	latency, service, late   *hdrhistogram.Histogram // in µs
}

// Latencies are kept to three digits: from a microsecond, which is less than any
// answer takes, to more than the longest run and timeout together.
const (
	leastUS = 1
	mostUS  = int64(2*time.Hour) / int64(time.Microsecond)
	digits  = 3
)

func newTally() *tally {
	newHistogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(leastUS, mostUS, digits) }
	return &tally{
		answers: map[string]int64{}, reasons: map[string]int64{}, faults: map[string]int64{}, details: map[string]string{},
		latency: newHistogram(), service: newHistogram(), late: newHistogram(),
	}
}

// Prompt is the time in which a regiond answers. What fails sooner has kept nobody
// waiting.
const Prompt = 50 * time.Millisecond

// waited reports whether a request that got no decision has a latency all the same.
// What fails at once has none: it would make the others look good.
func waited(fault string, took time.Duration) bool {
	return fault == FaultTimeout || fault != FaultRefused && took >= Prompt
}

// add counts the answer to a request that was sent late after it was due and took that long.
func (t *tally) add(a *Answer, late, took time.Duration) {
	t.Counts.add(a)
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
	t.answers[a.Basis+"/"+a.Mode]++
	if a.Reason != "" {
		t.reasons[a.Reason]++
	}
}

// record keeps a time, rounded up to a whole µs.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	us := max(leastUS, int64((d+time.Microsecond-1)/time.Microsecond))
	_ = h.RecordValue(min(us, mostUS)) // fails above mostUS only
}

func (p *pacer) result() *Result {
	all := p.all
	r := &Result{
		Asked: Asked{
			Rate: p.Rate, ForMS: ms(p.For), WarmupMS: ms(p.Warmup), Tenants: p.Tenants, Zipf: p.Zipf, Policy: p.Policy,
			Cost: p.Costs.String(), MaxInFlight: p.MaxInFlight, TimeoutMS: ms(p.Timeout),
		},
		EndedEarly: p.due < p.requests(p.For), Due: p.due, SendingMS: ms(p.sending), Counts: all.Counts, Unsent: all.unsent,
		Errors: []Error{}, Answers: counts(all.answers), Degraded: counts(all.reasons),
		Latency: quantiles(all.latency), Service: quantiles(all.service), Late: quantiles(all.late),
	}
	for _, c := range counts(all.faults) {
		r.Errors = append(r.Errors, Error{c, all.details[c.What]})
	}
	if p.sending > 0 {
		r.DecidedPerS = float64(r.Decided) / p.sending.Seconds()
		r.AchievedRatio = r.DecidedPerS / p.Rate
	}
	r.KeptUp = r.Unsent.Late == 0 && r.Late.P99 <= ms(MostLate)
	for i, t := range p.tallies {
		r.Targets = append(r.Targets, TargetResult{
			URL: p.Targets[i], Unsent: t.unsent.InFlight + t.unsent.Late, Counts: t.Counts,
			Latency: quantiles(t.latency), Service: quantiles(t.service),
		})
	}
	return r
}

// counts are those of a map, the most frequent first, and never null in JSON.
func counts(of map[string]int64) []Count {
	all := []Count{}
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, Count{what, of[what]})
	}
	slices.SortStableFunc(all, func(a, b Count) int { return cmp.Compare(b.N, a.N) })
	return all
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Quantiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
