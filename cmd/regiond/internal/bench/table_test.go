package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestBenchRead(t *testing.T) {
	r := results{}
	r.read(`goos: linux
BenchmarkTick/32768-2   	      20	  96937705 ns/op	         8.764 cpu-ms/tick
BenchmarkUsage/append/epochs=2m-16 	 33292	     53219 ns/op	  12.63 bytes/partition	 0 allocs/op
BenchmarkFold 	 1	 1370835 ns/op
    bench_test.go:7: Benchmark is no result
PASS
`)
	for _, want := range []struct {
		bench, unit string
		value       float64
	}{
		{"Tick/32768", "cpu-ms/tick", 8.764},
		{"Tick/32768", "ns/op", 96937705},
		{"Usage/append/epochs=2m", "bytes/partition", 12.63},
		{"Fold", "ns/op", 1370835},
	} {
		if got, ok := r[want.bench][want.unit]; !ok || got != want.value {
			t.Errorf("%s has %v %s, want %v", want.bench, got, want.unit, want.value)
		}
	}
	if len(r) != 3 {
		t.Errorf("it found %d benchmarks, want 3: %v", len(r), r)
	}
}

// TestBenchTable: what is met, what is missed, what was not measured.
func TestBenchTable(t *testing.T) {
	rows := []row{
		{text: "small", bench: "A", unit: "B", shown: "B", goal: 200},
		{text: "large", bench: "A", unit: "ms", goal: 20},
		{text: "nearly", bench: "A", unit: "about", goal: 14, about: true},
		{text: "enough", bench: "A", unit: "about", goal: 14.5, least: true},
		{text: "too little", bench: "A", unit: "about", goal: 15, least: true},
		{text: "no goal", bench: "A", unit: "ms", divide: 10, shown: "cs"},
		{text: "ratio", bench: "A", unit: "B", over: "C"},
		{text: "absent", bench: "D", unit: "B", goal: 1},
	}
	var out strings.Builder
	printTable(&out, rows, results{"A": {"B": 200, "ms": 20.1, "about": 14.5}, "C": {"B": 300}})
	spaces := regexp.MustCompile(` {2,}`)
	got := strings.Split(spaces.ReplaceAllString(out.String(), "|"), "\n")
	want := []string{
		"figure|measured|goal|",
		"small|200 B|≤ 200|met",
		"large|20.1|≤ 20|NOT MET",
		"nearly|14.5|about 14|met",
		"enough|14.5|≥ 14.5|met",
		"too little|14.5|≥ 15|NOT MET",
		"no goal|2.01 cs|",
		"ratio|0.67|",
		"absent|–|≤ 1|not measured",
		"",
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("the table is\n%s\nline %d should be %q", out.String(), i, want[i])
		}
	}
}

// TestBenchRows: each row's benchmark is among those that are run, and is written
// somewhere under its name.
func TestBenchRows(t *testing.T) {
	sources := map[string]string{}
	for _, s := range suites() {
		entries, err := os.ReadDir("../../../../" + s.pkg)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), "_test.go") {
				b, err := os.ReadFile("../../../../" + s.pkg + "/" + e.Name())
				if err != nil {
					t.Fatal(err)
				}
				sources[s.pkg] += string(b)
			}
		}
	}
	for _, w := range table() {
		name, _, _ := strings.Cut(w.bench, "/")
		found := false
		for _, s := range suites() {
			pattern, _, _ := strings.Cut(s.bench, "/")
			if regexp.MustCompile(pattern).MatchString("Benchmark" + name) {
				found = strings.Contains(sources[s.pkg], "func Benchmark"+name+"(")
			}
		}
		if !found || !strings.Contains(strings.Join(values(sources), ""), unitOf(w.unit)) {
			t.Errorf("no benchmark that is run reports %s of %s", w.unit, w.bench)
		}
	}
}

// unitOf is what stands in a benchmark's source for a unit; those of a ratio are
// put together there, and ns/op is the testing package's own.
func unitOf(unit string) string {
	switch {
	case unit == "ns/op":
		return ""
	case strings.HasSuffix(unit, "-ratio"), strings.HasSuffix(unit, "-alone"), strings.HasSuffix(unit, "-beside"):
		return unit[strings.LastIndexByte(unit, '-'):]
	}
	return `"` + unit + `"`
}

func values(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
