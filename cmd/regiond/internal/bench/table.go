package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// suites are the benchmarks, each alone: one that uses both processors would
// disturb another.
func suites() []suite {
	const hall, ledger = "cmd/regiond", "sync/ledger"
	return []suite{
		{"checks over HTTP beside a server that does nothing", hall, "^Benchmark(Door|Pace)$", "1x"},
		{"global and regional limits over HTTP in a mesh of three", hall, "^BenchmarkScopes$", "1x"},
		{"scripts, the collector, and what Redis keeps", "limiter", "^Benchmark(Collector|Windows|Entry|Expired)$", "1x"},
		{"a check over HTTP beside a busy mesh, and without", hall, "^BenchmarkBesideMesh$", "1x"},
		{"checks with traces and metrics, and without", hall, "^BenchmarkTelemetry$", "1x"},
		{"a million partitions in one regiond", hall, "^BenchmarkMillion$", "1x"},
		{"a million partitions in an idle regiond", hall, "^BenchmarkIdle$", "1x"},
		{"millions of invented tenants", hall, "^BenchmarkFlood$", "1x"},
		{"a million partitions in one ledger", ledger, "^BenchmarkMemory$/^1000000$", "1x"},
		{"ticks and messages of a million partitions", ledger, "^Benchmark(Tick|Fold|Backlog)$", "20x"},
		{"the wire", "sync/wire", "^BenchmarkUsage$", "0.5s"},
		{"decisions", hall, "^Benchmark(Script|Ceiling|Decision|Bytes)$", "1s"},
	}
}

// row is a line of the table: one value of one benchmark. Units below are divided
// by what brings them to the unit that is shown.
type row struct {
	text        string
	bench, unit string  // as go test prints them
	over        string  // "": the value itself, else over the value of this benchmark
	divide      float64 // 0: not at all
	shown       string  // the unit behind the value
	goal        float64 // 0: it has none
	about       bool    // a goal of "about", met up to half a unit above
	least       bool    // a goal that is met from there on upwards
}

func table() []row {
	const mesh, telemetry, million, memory = "BesideMesh", "Telemetry", "Million", "Memory/1000000"
	const door, pace, scopes, together, flood = "Door", "Pace", "Scopes", "Collector", "Flood"
	return []row{
		{text: "allowed checks/s over HTTP ÷ a bare handler's", bench: door, unit: "allowed-ratio", goal: 0.70, least: true},
		{text: "  allowed checks/s", bench: door, unit: "decisions/s", shown: "/s"},
		{text: "denied and remembered ÷ the same", bench: door, unit: "denied-ratio", goal: 0.92, least: true},
		{text: "processor time of an allowed check, Redis included ÷ a bare handler's", bench: door, unit: "cpu-ratio", goal: 1.6},
		{text: "  an allowed check", bench: door, unit: "cpu-us/check", shown: "µs"},
		{text: "  of it Redis", bench: door, unit: "redis-us/check", shown: "µs"},
		{text: "  the bare handler", bench: door, unit: "cpu-us/bare", shown: "µs"},
		{text: "processor time of Redis ÷ a sorted set and one script call each", bench: door, unit: "redis-ratio", goal: 0.25},
		{text: "decisions/s in batches of 10 ÷ single checks", bench: door, unit: "batch-ratio", goal: 4.5, least: true},
		{text: "decisions/s of one hot tenant ÷ 10,000 tenants", bench: door, unit: "hot-ratio", goal: 0.9, least: true},
		{text: "allocations of an allowed check beyond net/http's", bench: door, unit: "mallocs/check", goal: 6},
		{text: "5,000 checks/s ÷ a bare handler: p50", bench: pace, unit: "p50-ratio", goal: 2.2},
		{text: "  p99", bench: pace, unit: "p99-ratio", goal: 2},
		{text: "  p50 of a check", bench: pace, unit: "p50-ms", shown: "ms"},
		{text: "  p99 of a check", bench: pace, unit: "p99-ms", shown: "ms"},
		{text: "decisions/s over HTTP in a mesh, global ÷ regional policy", bench: scopes, unit: "decisions-ratio", goal: 0.9, least: true},
		{text: "64 callers in Go, checks that travel together ÷ a script call each", bench: together, unit: "decisions-ratio", goal: 3, least: true},
		{text: "  processor time of client and Redis", bench: together, unit: "cpu-ratio", goal: 0.25},
		{text: "three windows ÷ one: time in Redis", bench: "Windows", unit: "us-ratio", goal: 1.6},
		{text: "bytes per admission ÷ a sorted set: 100 in a log", bench: "Entry/100", unit: "bytes-ratio", goal: 0.42},
		{text: "  1,000", bench: "Entry/1000", unit: "bytes-ratio", goal: 0.09},
		{text: "  10,000", bench: "Entry/10000", unit: "bytes-ratio", goal: 0.08},
		{text: "longest script call about 100,000 expired admissions", bench: "Expired", unit: "ms/call", shown: "ms", goal: 0.5},
		{text: "1,000,000 known partitions, nothing asked: processor time", bench: "Idle", unit: "cpu-%", shown: "%", goal: 1},
		{text: "invented tenants at full rate: resident memory", bench: flood, unit: "rss-MiB", shown: "MiB", goal: 512},
		{text: "  p99 of a known tenant, more than under known load", bench: flood, unit: "p99-added-ms", shown: "ms", goal: 1},
		{text: "  tenants that were invented", bench: flood, unit: "tenants"},
		{text: "  a second", bench: flood, unit: "tenants/s", shown: "/s"},
		{text: "check over HTTP at 2,000/s, busy mesh ÷ none: p99", bench: mesh, unit: "p99-ratio", goal: 1.25},
		{text: "  p99 of the median second", bench: mesh, unit: "second-ratio"},
		{text: "  p50", bench: mesh, unit: "p50-ratio"},
		{text: "  processor time of regiond", bench: mesh, unit: "cpu-ratio"},
		{text: "  p99 without", bench: mesh, unit: "p99-alone", shown: "ms"},
		{text: "  p99 beside the mesh", bench: mesh, unit: "p99-beside", shown: "ms"},
		{text: "  answers that were not global; above 0 the machine was too busy", bench: mesh, unit: "wrong-answers"},
		{text: "decisions/s over HTTP, 1 % traced and metrics ÷ neither", bench: telemetry, unit: "decisions-ratio", goal: 0.95, least: true},
		{text: "  processor time of regiond per decision", bench: telemetry, unit: "cpu-ratio"},
		{text: "  without", bench: telemetry, unit: "decisions/s-off", shown: "/s"},
		{text: "  with", bench: telemetry, unit: "decisions/s-on", shown: "/s"},
		{text: "  answers that were not global; above 0 the machine was too busy", bench: telemetry, unit: "wrong-answers"},
		{text: "on the wire, per changed partition", bench: "Bytes", unit: "bytes/change", shown: "B", goal: 14, about: true},
		{text: "memory per known remote partition, 2 peers, 2 buckets", bench: memory, unit: "B/remote-partition", shown: "B", goal: 200},
		{text: "  that we use as well", bench: memory, unit: "B/own-partition", shown: "B"},
		{text: "1,000,000 known partitions: the ledger", bench: memory, unit: "B/own-partition", divide: (1 << 20) / 1e6, shown: "MiB", goal: 512},
		{text: "  heap of a regiond, garbage included", bench: million, unit: "heap-MiB", shown: "MiB"},
		{text: "  resident memory of that regiond", bench: million, unit: "rss-MiB", shown: "MiB", goal: 512},
		{text: "tick over 1,000,000, 1 % changed: Take and Sweep", bench: "Tick/32768", unit: "cpu-ms/tick", shown: "ms", goal: 20},
		{text: "  half of it left for the next", bench: "Tick/5000", unit: "cpu-ms/tick", shown: "ms", goal: 20},
		{text: "  Take while 1,000,000 wait", bench: "Backlog", unit: "cpu-ms/take", shown: "ms"},
		{text: "fold, per change", bench: "Fold", unit: "ns/op", divide: 1000, shown: "ns"},
		{text: "encode, per change", bench: "Usage/append/epochs=1440m", unit: "ns/partition", shown: "ns"},
		{text: "decode, per change", bench: "Usage/decode/epochs=1440m", unit: "ns/partition", shown: "ns"},
		{text: "ceiling of a global limit", bench: "Ceiling", unit: "cpu-ns/call", shown: "ns"},
		{text: "decision in memory: regional limit", bench: "Decision/region", unit: "cpu-ns/call", shown: "ns"},
		{text: "  global limit", bench: "Decision/global", unit: "cpu-ns/call", shown: "ns"},
		{text: "script in Redis: regional limit", bench: "Script/region", unit: "us/script", shown: "µs"},
		{text: "  global limit", bench: "Script/global", unit: "us/script", shown: "µs"},
		{text: "  global ÷ regional", bench: "Script/global", unit: "us/script", over: "Script/region"},
	}
}

// results are the values that benchmarks reported: by benchmark, by unit.
type results map[string]map[string]float64

// read adds those in the output of go test. Names lose the prefix Benchmark and the
// number of processors at their end.
func (r results) read(text string) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		values := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				values[fields[i+1]] = v
			}
		}
		r[name] = values
	}
}

// value is what a row shows; false when it was not measured.
func (r results) value(w *row) (float64, bool) {
	v, ok := r[w.bench][w.unit]
	if w.divide != 0 {
		v /= w.divide
	}
	if w.over == "" {
		return v, ok
	}
	base, ok2 := r[w.over][w.unit]
	return v / base, ok && ok2 && base != 0
}

func printTable(out io.Writer, rows []row, found results) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tmeasured\tgoal\t")
	for i := range rows {
		w := &rows[i]
		v, ok := found.value(w)
		if !ok {
			fmt.Fprintf(t, "%s\t–\t%s\tnot measured\n", w.text, w.want())
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", w.text, strings.TrimSpace(figure(v)+" "+w.shown), w.want(), w.verdict(v))
	}
	_ = t.Flush() // whoever reads it is gone
}

func (w *row) want() string {
	switch {
	case w.goal == 0:
		return ""
	case w.about:
		return "about " + figure(w.goal)
	case w.least:
		return "≥ " + figure(w.goal)
	}
	return "≤ " + figure(w.goal)
}

func (w *row) verdict(v float64) string {
	most := w.goal
	if w.about {
		most += 0.5
	}
	switch {
	case w.goal == 0:
		return ""
	case w.least && v < w.goal:
		return "NOT MET"
	case w.least, v <= most:
		return "met"
	}
	return "NOT MET"
}

// figure is a number with three digits that matter, or all before the point.
func figure(v float64) string {
	digits := 2 - int(math.Floor(math.Log10(math.Max(math.Abs(v), 0.01))))
	text := strconv.FormatFloat(v, 'f', min(max(digits, 0), 2), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
