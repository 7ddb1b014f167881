package load

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

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
