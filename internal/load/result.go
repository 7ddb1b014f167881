package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
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

func (c *Counts) add(a *answer) {
	c.Sent++
	if a.fault != "" {
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

// tally counts what came of checks, to one target or to all.
type tally struct {
	Counts
	unsent                   Unsent
	answers, reasons, faults map[string]int64
	details                  map[string]string // of a fault: the first one's
	latency, service, late   vegeta.LatencyMetrics
}

func newTally() *tally {
	return &tally{answers: map[string]int64{}, reasons: map[string]int64{}, faults: map[string]int64{}, details: map[string]string{}}
}

// Prompt is the time in which a regiond answers. What fails sooner has kept nobody
// waiting: it has no latency, which would make the others look good.
const Prompt = 50 * time.Millisecond

// add counts the answer to a check that was sent late after it was due and took that long.
func (t *tally) add(a *answer, late, took time.Duration) {
	t.Counts.add(a)
	t.late.Add(late)
	if a.fault == "" || a.fault == faultTimeout || a.fault != faultRefused && took >= Prompt {
		t.service.Add(took)
		t.latency.Add(late + took)
	}
	if a.fault != "" {
		if t.faults[a.fault]++; t.details[a.fault] == "" {
			t.details[a.fault] = a.Detail
		}
		return
	}
	t.answers[a.Basis+"/"+a.Mode]++
	if a.Reason != "" {
		t.reasons[a.Reason]++
	}
}

func (a *attack) result() *Result {
	all := a.all
	r := &Result{
		Asked: Asked{
			Rate: a.Options.Rate, ForMS: ms(a.For), WarmupMS: ms(a.Warmup), Tenants: a.Tenants, Zipf: a.Zipf, Policy: a.Policy,
			Cost: a.Costs.String(), MaxInFlight: a.MaxInFlight, TimeoutMS: ms(a.Timeout),
		},
		EndedEarly: a.came < a.checks(a.For), Due: a.came, SendingMS: ms(a.sending), Counts: all.Counts, Unsent: all.unsent,
		Errors: []Error{}, Answers: counts(all.answers), Degraded: counts(all.reasons),
		Latency: quantiles(&all.latency), Service: quantiles(&all.service), Late: quantiles(&all.late),
	}
	for _, c := range counts(all.faults) {
		r.Errors = append(r.Errors, Error{c, all.details[c.What]})
	}
	if a.sending > 0 {
		r.DecidedPerS = float64(r.Decided) / a.sending.Seconds()
		r.AchievedRatio = r.DecidedPerS / a.Options.Rate
	}
	r.KeptUp = r.Unsent.Late == 0 && r.Late.P99 <= ms(MostLate)
	for i, t := range a.tallies {
		r.Targets = append(r.Targets, TargetResult{
			URL: a.Targets[i], Unsent: t.unsent.InFlight + t.unsent.Late, Counts: t.Counts,
			Latency: quantiles(&t.latency), Service: quantiles(&t.service),
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

func quantiles(l *vegeta.LatencyMetrics) Quantiles {
	if l.Max == 0 { // nothing was added
		return Quantiles{}
	}
	at := func(q float64) float64 { return ms(l.Quantile(q)) }
	return Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: ms(l.Max)}
}

func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// Print writes a result for a person.
//
//	asked      1,000/s for 10s after 2s of warm-up; 1,000 tenants, zipf 1, cost 1
//	sent       10,000 of 10,000 that were due
//	decided    10,000, 1,000/s, 100.0 % of the rate
//	answered   10,000: 6,123 allowed, 3,877 denied
//	basis      exact/global 6,123, cached/global 3,877
//
//	ms           p50     p90     p99   p99.9     max
//	latency    0.214   0.301   0.522    1.31    3.40  from when a check was due until its answer
//
// Below it stands what makes the figures worth less, if anything does.
func (r *Result) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "asked\t%s\n", r.Asked.text())
	fmt.Fprintf(t, "sent\t%s of %s that were due\n", grouped(r.Sent), grouped(r.Due))
	fmt.Fprintf(t, "decided\t%s, %s/s, %.1f %% of the rate\n", grouped(r.Decided), perSecond(r.DecidedPerS), 100*r.AchievedRatio)
	fmt.Fprintf(t, "answered\t%s: %s\n", grouped(r.Answered), r.verdicts())
	fmt.Fprintf(t, "basis\t%s\n", list(r.Answers))
	if len(r.Degraded) > 0 {
		fmt.Fprintf(t, "degraded\t%s\n", list(r.Degraded))
	}
	for i := range r.Errors {
		e := &r.Errors[i]
		fmt.Fprintf(t, "error\t%s %s: %s\n", grouped(e.N), e.What, e.Detail)
	}
	_ = t.Flush() // as with every other line, a failed write has no other output to go to
	fmt.Fprintln(w)
	r.printTimes(w)
	if len(r.Targets) > 1 {
		fmt.Fprintln(w)
		r.printTargets(w)
	}
	for i, line := range r.Doubts() {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "! %s\n", line)
	}
}

func (a *Asked) text() string {
	text := fmt.Sprintf("%s/s for %v", perSecond(a.Rate), span(a.ForMS))
	if a.WarmupMS > 0 {
		text += fmt.Sprintf(" after %v of warm-up", span(a.WarmupMS))
	}
	text += fmt.Sprintf("; %s, zipf %v, cost %s", several(int64(a.Tenants), "tenant"), a.Zipf, a.Cost)
	if a.Policy != "" {
		text += ", policy " + a.Policy
	}
	return text
}

func (r *Result) verdicts() string {
	text := grouped(r.Allowed) + " allowed"
	if r.WouldDeny > 0 {
		text += " (" + grouped(r.WouldDeny) + " would be denied)"
	}
	text += ", " + grouped(r.Denied) + " denied"
	if r.Shed > 0 {
		text += ", " + grouped(r.Shed) + " shed"
	}
	return text
}

func (r *Result) printTimes(w io.Writer) {
	const row = "%-8s %7s %7s %7s %7s %7s%s\n"
	fmt.Fprintf(w, row, "ms", "p50", "p90", "p99", "p99.9", "max", "")
	for _, of := range []struct {
		name  string
		q     *Quantiles
		about string
	}{
		{"latency", &r.Latency, "from when a check was due until its answer"},
		{"service", &r.Service, "from when it was sent until its answer"},
		{"late", &r.Late, "from when it was due until it was sent"},
	} {
		q := of.q
		fmt.Fprintf(w, row, of.name, millis(q.P50), millis(q.P90), millis(q.P99), millis(q.P999), millis(q.Max), "  "+of.about)
	}
}

func (r *Result) printTargets(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tSENT\tALLOWED\tDENIED\tSHED\tFAILED\tUNSENT\tLATENCY p50\tp99\tmax")
	for i := range r.Targets {
		g := &r.Targets[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.URL, grouped(g.Sent), grouped(g.Allowed), grouped(g.Denied),
			grouped(g.Shed), grouped(g.Failed), grouped(g.Unsent), millis(g.Latency.P50), millis(g.Latency.P99), millis(g.Latency.Max))
	}
	_ = t.Flush()
}

// Doubts are what a reader of the figures has to know before using them, a sentence
// or two each. None is the good case.
func (r *Result) Doubts() []string {
	var all []string
	if r.EndedEarly {
		all = append(all, fmt.Sprintf("Ended early: %v of %v were measured.", span(r.SendingMS), span(r.Asked.ForMS)))
	}
	if n := r.Unsent.InFlight; n > 0 {
		all = append(all, fmt.Sprintf("Not sent: %s, because as many as allowed were waiting for an answer (--max-in-flight %d). "+
			"With them, latencies would be longer.", several(n, "check"), r.Asked.MaxInFlight))
	}
	if n := r.Unsent.Late; n > 0 {
		all = append(all, fmt.Sprintf("Not sent: %s, because the time was over before this tool came to them.", several(n, "check")))
	}
	if !r.KeptUp {
		all = append(all, fmt.Sprintf("This tool did not keep up: one check in a hundred left %s ms late or later, and %v is what counts as on time. "+
			"Latencies contain that. Give it a machine with more time, or a lower --rate.", millis(r.Late.P99), MostLate))
	}
	if n := r.Answered - r.Decided; n > 0 {
		all = append(all, fmt.Sprintf("Not decided: %s, shed or answered by a fail mode. They are in the latencies, and not in the rate.", several(n, "check")))
	}
	if r.Failed > 0 {
		all = append(all, fmt.Sprintf("Failed: %s. Those that waited %v or until the timeout are in the latencies; those that failed sooner, or found nobody, are not.",
			several(r.Failed, "check"), Prompt))
	}
	return all
}

func list(all []Count) string {
	if len(all) == 0 {
		return "none"
	}
	var parts []string
	for _, c := range all {
		parts = append(parts, c.What+" "+grouped(c.N))
	}
	return strings.Join(parts, ", ")
}

func several(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(n) + " " + what
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// perSecond shows a rate: whole from ten on, with its first digits below.
func perSecond(v float64) string {
	if v >= 10 {
		return grouped(int64(v + 0.5))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// millis shows milliseconds with three digits that matter, a thousandth at most.
func millis(v float64) string {
	decimals := 3
	for x := v; x >= 1 && decimals > 0; x /= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func span(ms float64) time.Duration {
	d := time.Duration(ms * float64(time.Millisecond))
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}
