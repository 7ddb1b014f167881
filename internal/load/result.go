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

	Due      int64  `json:"due"` // requests whose time came
	Sent     int64  `json:"sent"`
	Unsent   Unsent `json:"unsent"`
	Answered int64  `json:"answered"` // with a decision
	Allowed  int64  `json:"allowed"`
	Denied   int64  `json:"denied"`
	// WouldDeny are those of Allowed that only an observing policy let through.
	WouldDeny int64 `json:"would_deny"`

	Failed   int64   `json:"failed"` // sent, and no decision came back
	Errors   []Error `json:"errors"` // Failed, by kind
	Answers  []Count `json:"answers"`
	Degraded []Count `json:"degraded"` // by reason

	SendingMS float64 `json:"sending_ms"` // how long requests were sent
	// AnsweredPerS is Answered over that time, and AchievedRatio that over the rate
	// that was asked for.
	AnsweredPerS  float64 `json:"answered_per_s"`
	AchievedRatio float64 `json:"achieved_ratio"`

	Latency Quantiles `json:"latency_ms"` // from when a request was due
	Service Quantiles `json:"service_ms"` // from when it was sent
	Late    Quantiles `json:"late_ms"`    // from when it was due until it was sent
	KeptUp  bool      `json:"kept_up"`    // this tool did, by MostLate

	Targets []TargetResult `json:"targets"`
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

// Error is how often one kind of trouble came, and the first one's own words.
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
	URL     string    `json:"url"`
	Sent    int64     `json:"sent"`
	Unsent  int64     `json:"unsent"`
	Allowed int64     `json:"allowed"`
	Denied  int64     `json:"denied"`
	Failed  int64     `json:"failed"`
	Latency Quantiles `json:"latency_ms"`
	Service Quantiles `json:"service_ms"`
}

func (p *pacer) result() *Result {
	all := newTally()
	r := &Result{
		Asked: Asked{
			Rate: p.Rate, ForMS: ms(p.For), WarmupMS: ms(p.Warmup), Tenants: p.Tenants, Zipf: p.Zipf, Policy: p.Policy,
			Cost: p.Costs.String(), MaxInFlight: p.MaxInFlight, TimeoutMS: ms(p.Timeout),
		},
		EndedEarly: p.due < p.requests(p.For), Due: p.due, SendingMS: ms(p.sending), Errors: []Error{},
	}
	for i, t := range p.tallies {
		all.merge(t)
		r.Targets = append(r.Targets, TargetResult{
			URL: p.Targets[i], Sent: t.sent, Unsent: t.noSlot + t.tooLate, Allowed: t.allowed, Denied: t.denied, Failed: t.sent - t.answered,
			Latency: quantiles(t.latency), Service: quantiles(t.service),
		})
	}
	r.Sent, r.Unsent = all.sent, Unsent{InFlight: all.noSlot, Late: all.tooLate}
	r.Answered, r.Allowed, r.Denied, r.WouldDeny = all.answered, all.allowed, all.denied, all.wouldDeny
	r.Failed = all.sent - all.answered
	r.Answers, r.Degraded = counts(all.rests), counts(all.reasons)
	for _, c := range counts(all.faults) {
		r.Errors = append(r.Errors, Error{c, all.details[c.What]})
	}
	if p.sending > 0 {
		r.AnsweredPerS = float64(r.Answered) / p.sending.Seconds()
		r.AchievedRatio = r.AnsweredPerS / p.Rate
	}
	r.Latency, r.Service, r.Late = quantiles(all.latency), quantiles(all.service), quantiles(all.late)
	r.KeptUp = r.Unsent.Late == 0 && r.Late.P99 <= ms(MostLate)
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
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	return Quantiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
