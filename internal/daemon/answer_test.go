package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/load"
)

// answer is what came back, and how long it took.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// decision is an answer's body.
type decision struct{ load.Answer }

// try sends one request; fields are header lines "Name: value".
func (c client) try(ctx context.Context, method, path, body string, fields ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Requested-With", "test") // no web page sent this
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	asked := time.Now()
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: string(text), took: time.Since(asked)}, err
}

func (c client) ask(t *testing.T, method, path, body string, fields ...string) answer {
	t.Helper()
	a, err := c.try(t.Context(), method, path, body, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c client) get(t *testing.T, path string) answer {
	t.Helper()
	return c.ask(t, http.MethodGet, path, "")
}

// check spends one unit of a tenant.
func (c client) check(t *testing.T, tenant string) answer {
	t.Helper()
	return c.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":%q}`, tenant))
}

// left is what usage says remains of the tenant's tightest limit.
func (c client) left(t *testing.T, tenant string) int64 {
	t.Helper()
	a := c.get(t, "/v1/usage/"+tenant)
	a.is(t, http.StatusOK)
	return a.decision(t).Remaining
}

func (a answer) is(t *testing.T, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %v\n%s", a.status, status, a.header, a.body)
	}
}

func (a answer) decision(t *testing.T) decision {
	t.Helper()
	var d decision
	if err := json.Unmarshal([]byte(a.body), &d); err != nil {
		t.Fatalf("the body of %d is not JSON: %v\n%s", a.status, err, a.body)
	}
	return d
}

// rests says what the answer rests on, in one word for a table.
func (d decision) rests() string { return d.Basis + "/" + d.Mode }

// scrape is what /metrics said: type of each family, value of each series.
type scrape struct {
	text   string
	types  map[string]string
	series map[string]float64
}

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z0-9_]+="(?:[^"\\]|\\.)*"(?:,[a-zA-Z0-9_]+="(?:[^"\\]|\\.)*")*\})? (\S+)$`)

// metrics scrapes the program's admin listener.
func (p *program) metrics(t *testing.T) scrape {
	t.Helper()
	return p.admin.scrape(t)
}

// scrape scrapes an admin listener; a line that is not of the text format fails the test.
func (c client) scrape(t *testing.T) scrape {
	t.Helper()
	a := c.get(t, "/metrics")
	a.is(t, http.StatusOK)
	s := scrape{text: a.body, types: map[string]string{}, series: map[string]float64{}}
	for line := range strings.Lines(a.body) {
		line = strings.TrimSuffix(line, "\n")
		if words := strings.Fields(line); len(words) == 4 && words[0] == "#" && words[1] == "TYPE" {
			s.types[words[2]] = words[3]
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("/metrics: not a sample: %q", line)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatalf("/metrics: %q: %v", line, err)
		}
		s.series[m[1]+m[2]] = value
	}
	return s
}

// sum adds up all series of a metric.
func (s scrape) sum(name string) (sum float64) {
	for series, value := range s.series {
		if of, _, _ := strings.Cut(series, "{"); of == name {
			sum += value
		}
	}
	return sum
}
