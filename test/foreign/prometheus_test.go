package foreign_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/regiond/regiond/test/ports"
)

// TestPromtool: the oldest Prometheus that the rules name accepts them and the compose file's configuration, and alerts
// fire when they should.
func TestPromtool(t *testing.T) {
	for _, args := range [][]string{
		{"check", "config", "--syntax-only", "../../deploy/prometheus.yml"},
		{"check", "rules", "../../deploy/prometheus/regiond.rules.yml"},
		{"test", "rules", "testdata/rules_test.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestExposition: promtool and a strict reader accept what a process exports after some decisions, of which it keeps traces.
func TestExposition(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+ports.Addr(t)) // nobody is there
	port := startDemo(t)
	for _, cost := range []string{"98", "1", "50"} { // leaves 2 %, then 1 %, then is denied
		res, err := http.Post("http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port))+"/v1/check", "application/json",
			strings.NewReader(`{"tenant":"acme","cost":`+cost+`}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port+adminOffset)) + "/metrics"
	text, err := get(url)
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/openmetrics-text") {
		t.Fatalf("%s: %v", res.Header.Get("Content-Type"), err)
	}
	if err := strict(page); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(page), ` # {trace_id="`) {
		t.Error("no exemplar names a trace")
	}
}

// sameName is a gauge and a counter of Prometheus's own Go collector, whose dashboards expect both.
const sameName = "go_memstats_alloc_bytes"

// strict is what OpenMetrics 1.0 asks beyond its syntax: each family in one piece, under its type and unit, and no
// series twice.
func strict(page []byte) error {
	if !strings.HasSuffix(string(page), "\n# EOF\n") {
		return errors.New("# EOF is not the last line")
	}
	var errs []error
	var family, kind string
	ended, series := map[string]bool{}, map[string]bool{}
	p := textparse.NewOpenMetricsParser(page, labels.NewSymbolTable())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		switch entry {
		case textparse.EntryType:
			name, is := p.Type()
			ended[family] = family != ""
			family, kind = string(name), string(is)
			if ended[family] && family != sameName {
				errs = append(errs, fmt.Errorf("%s has two types, or is not in one piece", family))
			}
		case textparse.EntryUnit:
			if name, unit := p.Unit(); len(unit) > 0 && !strings.HasSuffix(string(name), "_"+string(unit)) {
				errs = append(errs, fmt.Errorf("%s does not end in its unit %s", name, unit))
			}
		case textparse.EntrySeries:
			_, _, _ = p.Series()
			var ls labels.Labels
			p.Labels(&ls)
			errs = append(errs, checkSeries(ls, family, kind), checkExemplar(p, ls))
			if key := ls.String(); series[key] {
				errs = append(errs, fmt.Errorf("%s is duplicated", key))
			} else {
				series[key] = true
			}
		}
	}
	if len(series) < 100 {
		errs = append(errs, fmt.Errorf("only %d series", len(series)))
	}
	return errors.Join(errs...)
}

// checkSeries: the name is the family's with a suffix of its type.
func checkSeries(ls labels.Labels, family, kind string) error {
	suffixes := map[string][]string{
		"counter": {"_total", "_created"}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count", "_created"},
		"summary": {"", "_sum", "_count", "_created"}, "info": {"_info"}, "unknown": {""},
	}
	for _, suffix := range suffixes[kind] {
		if ls.Get(labels.MetricName) == family+suffix {
			return nil
		}
	}
	return fmt.Errorf("%s is not of the %s %s", ls.Get(labels.MetricName), kind, family)
}

// checkExemplar: only buckets and counters have one, of at most 128 characters.
func checkExemplar(p textparse.Parser, ls labels.Labels) error {
	var e exemplar.Exemplar
	if !p.Exemplar(&e) {
		return nil
	}
	name, length := ls.Get(labels.MetricName), 0
	e.Labels.Range(func(l labels.Label) { length += utf8.RuneCountInString(l.Name + l.Value) })
	if length > 128 || !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_total") {
		return fmt.Errorf("%s has an exemplar of %d characters", name, length)
	}
	return nil
}

// TestStrict: the reader finds each kind of mistake.
func TestStrict(t *testing.T) {
	linked := func(trace string) string { return ` # {trace_id="` + trace + `"} 1` + "\n# EOF\n" }
	long := strings.Repeat("1", 121)
	const fine = "# TYPE a counter\na_total{x=\"1\"} 1\n# TYPE b gauge\nb 1\n"
	for page, want := range map[string]string{
		fine:                                                "EOF",
		fine + "# EOF\nb 1\n":                               "EOF",
		fine + "b 2\n# EOF\n":                               "is duplicated",
		fine + "a_total 2\n# EOF\n":                         "is not of the gauge b",
		fine + "# TYPE a counter\n# EOF\n":                  "two types",
		"# TYPE a counter\na 1\n# EOF\n":                    "is not of the counter a",
		fine + `b{x="1"} 1` + linked("1"):                   "b has an exemplar",
		fine + "# TYPE c counter\nc_total 1" + linked(long): "exemplar of 129 characters",
		fine + "b{x=1} 2\n# EOF\n":                          "expected",
	} {
		if err := strict([]byte(page)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
