//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// figures are measured values by name. Those of a package's benchmark are named
// "Benchmark unit", as in "Fold ns/op".
type figures map[string]float64

// row is a line of the table.
type row struct {
	text   string
	figure string
	unit   string
	goal   goal
}

// goal is the bound of a figure; the zero value stands for none.
type goal struct {
	sign  string // "≤" or "≥"
	bound float64
}

func atMost(v float64) goal  { return goal{"≤", v} }
func atLeast(v float64) goal { return goal{"≥", v} }

func table() []row {
	return []row{
		{"allowed checks/s over HTTP ÷ a bare handler's", "allowed-ratio", "", atLeast(0.75)},
		{"  allowed checks/s", "rate", "/s", goal{}},
		{"denied and remembered ÷ the same", "denied-ratio", "", atLeast(0.95)},
		{"processor time of an allowed check, Redis included ÷ a bare handler's", "cpu-ratio", "", atMost(1.55)},
		{"  an allowed check", "cpu", "µs", goal{}},
		{"  of it Redis", "redis", "µs", goal{}},
		{"  the bare handler", "cpu-bare", "µs", goal{}},
		{"processor time of Redis ÷ a sorted set and one script call each", "redis-ratio", "", atMost(0.42)},
		{"checks/s on logs older than their window ÷ on young ones", "warm-ratio", "", atLeast(0.95)},
		{"  checks/s", "warm-rate", "/s", goal{}},
		{"  of a check Redis", "warm-redis", "µs", goal{}},
		{"  processor time of Redis ÷ a sorted set's, warm too", "warm-redis-ratio", "", atMost(0.35)},
		{"decisions/s in batches of 10 ÷ a bare handler's single checks", "batch-ratio", "", atLeast(2.5)},
		{"  ÷ single checks", "batch-single-ratio", "", goal{}},
		{"decisions/s of one hot tenant ÷ 10,000 tenants", "hot-ratio", "", atLeast(0.9)},
		{"allocations of an allowed check beyond net/http's", "mallocs", "", atMost(6)},
		{"5,000 checks/s ÷ a bare handler: p50", "p50-ratio", "", atMost(2)},
		{"  p99", "p99-ratio", "", atMost(2)},
		{"  p50 of a check", "p50", "ms", goal{}},
		{"  p99 of a check", "p99", "ms", goal{}},
		{"allowed checks/s ÷ envoyproxy/ratelimit's /json on the same Redis", "envoy-ratio", "", atLeast(2.6)},
		{"  processor time, Redis included", "envoy-cpu-ratio", "", atMost(0.35)},
		{"  checks/s of envoyproxy/ratelimit", "envoy-rate", "/s", goal{}},
		{"allowed calls/s of Envoy's rate limit service ÷ envoyproxy/ratelimit's on the same Redis", "call-ratio", "", atLeast(1.6)},
		{"  processor time, Redis included", "call-cpu-ratio", "", atMost(0.6)},
		{"  of connections with one call at a time: calls/s", "call-single-ratio", "", goal{}},
		{"  of these, processor time", "call-single-cpu-ratio", "", goal{}},
		{"  allowed calls/s", "call-rate", "/s", goal{}},
		{"  allowed calls/s of envoyproxy/ratelimit", "call-base", "/s", goal{}},
		{"  denied and remembered ÷ its local cache", "call-denied-ratio", "", atLeast(1.4)},
		{"  2,000/s: p99", "call-p99", "ms", atMost(10)},
		{"decisions/s over HTTP, three windows ÷ one", "windows-ratio", "", atLeast(0.9)},
		{"decisions/s over HTTP in a mesh, global ÷ regional policy", "scopes-ratio", "", atLeast(0.88)},
		{"decisions/s over HTTP, 1 % traced and metrics ÷ neither", "telemetry-ratio", "", atLeast(0.95)},
		{"64 callers in Go, checks that share calls ÷ a script call each", "Collector decisions-ratio", "", atLeast(3)},
		{"  processor time of client and Redis", "Collector cpu-ratio", "", atMost(0.25)},
		{"three windows ÷ one: time in Redis", "Windows us-ratio", "", atMost(1.6)},
		{"bytes per admission ÷ a sorted set: 100 in a log", "Entry/100 bytes-ratio", "", atMost(0.30)},
		{"  1,000", "Entry/1000 bytes-ratio", "", atMost(0.07)},
		{"  10,000", "Entry/10000 bytes-ratio", "", atMost(0.06)},
		{"longest script call about 100,000 expired admissions", "Expired ms/call", "ms", atMost(0.2)},
		{"memory per known remote partition, 2 peers, 2 buckets", "Memory/1000000 B/remote-partition", "B", atMost(250)},
	}
}

// parse adds the values in the output of go test -bench. Names lose the prefix
// Benchmark and the number of processors at their end.
func (f figures) parse(text string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				f[name+" "+fields[i+1]] = v
			}
		}
	}
}

func (f figures) print(out io.Writer, rows []row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tmeasured\tgoal\t")
	for _, r := range rows {
		if v, ok := f[r.figure]; ok {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.text, strings.TrimSpace(number(v)+" "+r.unit), r.goal, r.goal.verdict(v))
		} else {
			fmt.Fprintf(t, "%s\t–\t%s\tnot measured\n", r.text, r.goal)
		}
	}
	return t.Flush()
}

// mostOther is the largest part of a load's checks that may be answered by anything but a
// decision or a shed.
const mostOther = 0.001

// printLoads prints a line for each load. A load with more than mostOther is an error.
func printLoads(out io.Writer, loads []*load) error {
	failed, t := 0, tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "load\tdecisions/s\tshed\telse\tp50 ms\tp99 ms\tµs each\tof Redis\tstolen\t")
	for _, l := range loads {
		percent := func(n int) string { return number(100*float64(n)/float64(max(1, l.seen.sum()))) + " %" }
		verdict := ""
		if float64(l.client.total.other) > mostOther*float64(l.client.total.sum()) {
			verdict, failed = fmt.Sprintf("FAILED, such as %q", l.strange), failed+1
		}
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.0f %%\t%s\n", l.name, l.median(rate), percent(l.seen.shed), percent(l.seen.other),
			number(l.median(p50)), number(l.median(p99)), l.median(ownTime), l.median(redisTime), 100*l.median(stolen), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d loads have more than %v %% of answers that are neither decisions nor shed", failed, 100*mostOther)
	}
	return nil
}

// String is the goal as the table shows it.
func (g goal) String() string {
	if g.sign == "" {
		return ""
	}
	return g.sign + " " + number(g.bound)
}

func (g goal) verdict(v float64) string {
	switch {
	case g.sign == "":
		return ""
	case g.sign == "≤" && v <= g.bound, g.sign == "≥" && v >= g.bound:
		return "met"
	}
	return "NOT MET"
}

// number has three significant digits, or all before the point.
func number(v float64) string {
	digits := 2 - int(math.Floor(math.Log10(math.Max(math.Abs(v), 0.01))))
	text := strconv.FormatFloat(v, 'f', min(max(digits, 0), 2), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
