package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/metricsdoc"
	"github.com/regiond/regiond/test/ports"
	"github.com/regiond/regiond/test/redisserver"
)

// meshTown is a region on a real Redis with neighbours that it never meets, and a
// global limit whose windows end while a test waits.
const meshTown = `regions:
  - name: town
    http: 127.0.0.1:0
    admin: 127.0.0.1:0
    gossip: {bind: "GOSSIP", advertise: "GOSSIP"}
    redis: {addrs: ["REDIS"]}
policies:
  - name: standard
    limits: [{name: moment, units: 5, per: 2s, scope: global}]
  - name: bounded
    limits: [{name: moment, units: 5, per: 2s, scope: global, max_overshoot: 10%}]
    on_store_loss: open
  - name: llm
    limits: [{name: tokens, units: 1000, per: 1h, counts: tokens, near: 90%}]
tenants:
  bound: {policy: bounded}
  acme-llm: {policy: llm}
  default: {policy: standard}
`

// exposed is what some scrapes had of one metric.
type exposed struct {
	kind   string
	labels map[string]map[string]bool // name → values
}

var label = regexp.MustCompile(`([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"`)

// add takes in what one scrape has of regiond's own metrics. A histogram's series
// belong to the metric, and le is its own affair.
func add(t *testing.T, all map[string]*exposed, s scrape) {
	t.Helper()
	for series := range s.series {
		name, labels, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, "regiond_") {
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); s.types[base] == "histogram" {
				name = base
			}
		}
		if s.types[name] == "" {
			t.Errorf("%s has no type", series)
		}
		if all[name] == nil {
			all[name] = &exposed{kind: s.types[name], labels: map[string]map[string]bool{}}
		}
		for _, m := range label.FindAllStringSubmatch(labels, -1) {
			if m[1] == "le" && s.types[name] == "histogram" {
				continue
			}
			if all[name].labels[m[1]] == nil {
				all[name].labels[m[1]] = map[string]bool{}
			}
			all[name].labels[m[1]][m[2]] = true
		}
	}
}

// compare says where the page and the scrapes differ.
func compare(page map[string]metricsdoc.Metric, all map[string]*exposed) (differences []string) {
	complain := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m, got := page[name], all[name]
		if m.Name == "" {
			complain("%s is exposed and not documented", name)
			continue
		}
		if m.Type != got.kind {
			complain("%s is a %s, documented as a %s", name, got.kind, m.Type)
		}
		for l, values := range got.labels {
			documented, ok := m.Label(l)
			if !ok {
				complain("%s has the label %s, which is not documented", name, l)
			}
			for value := range values {
				if documented.Values != nil && !slices.Contains(documented.Values, value) {
					complain("%s has %s=%q, which is not documented", name, l, value)
				}
			}
		}
		for _, l := range m.Labels {
			if got.labels[l.Name] == nil {
				complain("%s never has the label %s, which is documented", name, l.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(page)) {
		if all[name] == nil {
			complain("%s is documented and not exposed", name)
		}
	}
	return differences
}

// TestMetricsPage holds docs/observe.md against what daemons export, both ways: the
// three regions of the demo under traffic, and one on a real Redis that goes away and
// with a collector that never was there.
func TestMetricsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := metricsdoc.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*exposed{}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+ports.Addr(t)) // nobody is there, so spans are dropped
	var traffic, trouble scrape
	t.Run("processes", func(t *testing.T) { // that are waited for together
		t.Run("traffic", func(t *testing.T) {
			t.Parallel()
			traffic = demoUnderTraffic(t)
		})
		t.Run("trouble", func(t *testing.T) {
			t.Parallel()
			trouble = redisInTrouble(t)
		})
	})
	if t.Failed() {
		return
	}
	add(t, all, traffic)
	add(t, all, trouble)
	for _, d := range compare(page, all) {
		t.Error(d)
	}
}

// demoUnderTraffic runs the demo until a region has heard of all others and met a
// limit, and scrapes it.
func demoUnderTraffic(t *testing.T) scrape {
	t.Helper()
	newNode := func(o demo.NodeOptions) (demo.Node, error) {
		return New(&Options{
			Region: o.Region, Instance: "demo", Processes: 1, WrapBus: o.WrapBus, Transport: o.Transport, Budget: time.Second, Deadline: time.Second,
		}, o.Topology, o.Logger, &slog.LevelVar{})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	port := ports.Take(t, demo.Ports()...)
	data := newClient(t, fmt.Sprintf("http://127.0.0.1:%d", port), nil)
	admin := newClient(t, fmt.Sprintf("http://127.0.0.1:%d", port+demo.AdminOffset), nil)
	go func() {
		c := demo.Command(newNode)
		c.SetArgs([]string{"--port", strconv.Itoa(port)})
		c.SetOut(io.Discard)
		ended <- c.ExecuteContext(ctx)
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	capture.Eventually(t, func() error {
		a, err := admin.try(t.Context(), http.MethodGet, "/v1/regions", "")
		if err == nil && !strings.Contains(a.body, `"mode":{"mode":"global"`) {
			err = errors.New(a.body)
		}
		return err
	})
	for _, cost := range []string{"98", "1", "50"} { // leaves 2 %, then 1 %, then is denied
		data.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":%q,"cost":%s}`, demo.Acme, cost))
	}
	data.ask(t, http.MethodPost, "/v1/check", `{"tenant":"tenant","cost":97}`) // of the policy of addNoSeries
	askRateLimit(t, fmt.Sprintf("127.0.0.1:%d", port+demo.GRPCOffset))
	var s scrape
	capture.Eventually(t, func() error { // the sweep comes round within ten seconds, and exchanges of time with the beats
		s = admin.scrape(t)
		for _, late := range []string{
			`regiond_global_usage_units{limit="sustained",policy="busy",region="` + demo.Regions()[1] + `"}`,
			`regiond_global_usage_units{limit="sustained",policy="standard",region="` + demo.Regions()[0] + `"}`,
			`regiond_global_partitions{limit="sustained",policy="standard"}`,
			`regiond_clock_peer_offset_seconds{region="` + demo.Regions()[1] + `"}`,
			`regiond_region_rtt_seconds{region="` + demo.Regions()[1] + `"}`,
		} {
			if _, ok := s.series[late]; !ok {
				return fmt.Errorf("no %s", late)
			}
		}
		return nil
	})
	addNoSeries(t, data, admin)
	return s
}

// askRateLimit makes a call of Envoy's service.
func askRateLimit(t *testing.T, addr string) {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = ratelimit.NewRateLimitServiceClient(c).ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addNoSeries checks that tenants add no series, admitted or denied. Some begin as time passes; one for each tenant
// would be a hundred.
func addNoSeries(t *testing.T, data, admin client) {
	t.Helper()
	const tenants = 100
	before := admin.scrape(t).series
	for i := range 2 * tenants {
		data.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":"tenant-%d","cost":97}`, i/2))
	}
	var added []string
	for series := range admin.scrape(t).series {
		if _, known := before[series]; !known {
			added = append(added, series)
		}
	}
	if len(added) >= tenants {
		t.Errorf("%d tenants added %d series:\n%s", tenants, len(added), strings.Join(added, "\n"))
	}
}

// redisInTrouble runs a region on a real Redis until it knows what its windows came
// to, empties it, kills it, and scrapes the region.
func redisInTrouble(t *testing.T) scrape {
	t.Helper()
	srv := redisserver.Start(t, redisserver.Options{})
	gossip := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Take(t, 1))) // NATS takes the next
	p := start(t, strings.NewReplacer("REDIS", srv.Addr(), "GOSSIP", gossip).Replace(meshTown), "--denial-log", filepath.Join(t.TempDir(), "denials"))
	p.ask(t, http.MethodPost, "/v1/report", `{"tenant":"bound","cost":50}`)
	var made struct{ Reservation struct{ ID string } }
	if err := json.Unmarshal([]byte(p.ask(t, http.MethodPost, "/v1/reserve", `{"tenant":"acme-llm","amount":50}`).body), &made); err != nil {
		t.Fatal(err)
	}
	if a := p.ask(t, http.MethodPost, "/v1/settle", fmt.Sprintf(`{"reservation":%q,"actual":20}`, made.Reservation.ID)); a.status != http.StatusOK {
		t.Fatalf("settle: %d %s", a.status, a.body)
	}
	capture.Eventually(t, func() error {
		p.check(t, "acme")
		s := p.metrics(t)
		if s.series[`regiond_global_usage_ratio_count{limit="moment",policy="standard"}`] < 1 {
			return fmt.Errorf("no window is over yet")
		}
		if s.series[`regiond_redis_breaker_open`] != 0 || s.series[`regiond_redis_duration_seconds_count`] < 1 {
			return fmt.Errorf("redis is not asked")
		}
		return nil
	})
	capture.Eventually(t, func() error {
		p.check(t, "acme")
		if err := srv.Client().FlushAll(t.Context()).Err(); err != nil {
			return err
		}
		p.check(t, "acme")
		if s := p.metrics(t); s.series["regiond_sync_losses_total"] < 1 || s.series["regiond_sync_lost_units_total"] < 1 {
			return fmt.Errorf("a Redis that was emptied is not counted as a loss")
		}
		return nil
	})
	srv.Kill()
	capture.Eventually(t, func() error {
		p.check(t, "acme")
		if s := p.metrics(t); s.series["regiond_redis_breaker_open"] != 1 || s.series["regiond_redis_outages_total"] < 1 {
			return fmt.Errorf("nobody notices that Redis is away")
		}
		return nil
	})
	p.check(t, "bound")
	p.check(t, "acme")
	return p.metrics(t)
}

// TestCountersOfAlerts: a counter that an alert takes the increase of is there before the first event, which Prometheus
// would miss otherwise. Histograms, and ratios of rates, need several events anyway.
func TestCountersOfAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/regiond.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	srv := redisserver.Start(t, redisserver.Options{})
	gossip := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Take(t, 1)))
	town := strings.NewReplacer("REDIS", srv.Addr(), "GOSSIP", gossip).Replace(meshTown)
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, base64.StdEncoding.EncodeToString([]byte("a key of thirty-two random bytes"))+"\n")
	town = replace(t, town, "}\n    redis", ", key_file: "+key+"}\n    redis")
	region := func(name, port string) string {
		return fmt.Sprintf("  - {name: %s, http: \"127.0.0.1:1\", gossip: {bind: %q, advertise: %q, key_file: %s}}\n", name, port, port, key)
	}
	first := region("village", "127.0.0.1:2") + "revision: 1\n"
	p := start(t, replace(t, town, "policies:\n", first+"policies:\n"))
	found, fresh := 0, p.metrics(t)
	for _, m := range regexp.MustCompile(`increase\((regiond_\w+_total)(\{[^}]*\})?\[`).FindAllStringSubmatch(string(rules), -1) {
		found++
		exact := regexp.MustCompile(`\w+="[^"]*"`).FindAllString(m[2], -1) // of the matchers, those that one value satisfies
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fresh.series)), func(series string) bool {
			return (series == m[1] || strings.HasPrefix(series, m[1]+"{")) &&
				!slices.ContainsFunc(exact, func(label string) bool { return !strings.Contains(series, label) })
		}) {
			t.Errorf("%s%s is missing on a fresh process", m[1], m[2])
		}
	}
	if found < 10 {
		t.Errorf("only %d counters in alerts", found)
	}
	// A reload adds those of a new region.
	p.rewrite(t, first, region("village", "127.0.0.1:2")+region("hamlet", "127.0.0.1:3")+"revision: 2\n")
	p.log.Await(t, "reloaded", 1)
	if _, there := p.metrics(t).series[`regiond_peer_excess_units_total{region="hamlet"}`]; !there {
		t.Error("a region that a reload adds has no counter of its excess")
	}
}
