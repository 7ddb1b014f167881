package foreign_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

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

// TestExposition: promtool and Prometheus's reader of OpenMetrics accept what a process exports after some decisions, of which it keeps traces.
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
	p := textparse.NewOpenMetricsParser(page, labels.NewSymbolTable())
	for err == nil {
		_, err = p.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("Prometheus does not read the page as OpenMetrics: %v", err)
	}
	if !strings.Contains(string(page), ` # {trace_id="`) {
		t.Error("no exemplar names a trace")
	}
}
