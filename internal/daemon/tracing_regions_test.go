package daemon

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/redisserver"
)

// span is one that a receiver has, and which region sent it. Its attributes are those that are texts.
type span struct {
	region, name, trace, id, parent string
	links                           []string // ids
	attrs                           map[string]string
}

// receiver is a collector: it takes spans as OTLP over http/protobuf and keeps them.
type receiver struct {
	server *httptest.Server

	mu    sync.Mutex
	spans []span // guarded by mu
}

// newReceiver has every daemon that starts from now on send its spans to a new
// receiver, soon after they end and with nothing left out.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.server.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "1.0")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &m)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprintf("%s: %v", req.URL, err), http.StatusBadRequest)
		return
	}
	texts := func(list []*common.KeyValue) map[string]string {
		attrs := map[string]string{}
		for _, kv := range list {
			attrs[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		return attrs
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range m.GetResourceSpans() {
		region := texts(of.GetResource().GetAttributes())["cloud.region"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := span{
					region: region, name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()), attrs: texts(s.GetAttributes()),
				}
				for _, l := range s.GetLinks() {
					one.links = append(one.links, hex.EncodeToString(l.GetSpanId()))
				}
				r.spans = append(r.spans, one)
			}
		}
	}
}

// await waits for a span of a region that is as wanted and returns the first.
func (r *receiver) await(t *testing.T, region, name string, wanted func(s *span) bool) (found span) {
	t.Helper()
	capture.Eventually(t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.spans, func(s span) bool { return s.region == region && s.name == name && wanted(&s) })
		if i < 0 {
			return fmt.Errorf("no span %q of %q as wanted among\n%+v", name, region, r.spans)
		}
		found = r.spans[i]
		return nil
	})
	return found
}

// tracedRegions are three daemons joined by one NATS; the first has a real Redis.
func tracedRegions(t *testing.T, names []string) (programs []*program) {
	t.Helper()
	nats, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	nats.Start()
	t.Cleanup(nats.Shutdown)
	if !nats.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	b := &strings.Builder{}
	b.WriteString("regions:\n")
	for i, name := range names {
		store := "{embedded: true}"
		if i == 0 {
			store = fmt.Sprintf("{addrs: [%q]}", redisserver.Start(t, redisserver.Options{}).Addr())
		}
		fmt.Fprintf(b, "  - {name: %s, http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", redis: %s, nats: {urls: [\"nats://%s\"]}}\n",
			name, store, nats.Addr())
	}
	b.WriteString(`policies:
  - name: standard
    limits: [{name: sustained, units: 300, per: 1h, scope: global}]
tenants: {default: {policy: standard}}
`)
	file := topologyFile(t, b.String())
	for _, name := range names {
		p := build(t, "--config", file, "--region", name, "--instance", "one")
		p.run(t)
		programs = append(programs, p)
	}
	capture.Eventually(t, func() error {
		for i, p := range programs {
			if mode, why := p.daemon.ceilings.View().Mode(quota.FailShare); mode != quota.ModeGlobal {
				return fmt.Errorf("%s is in mode %v because of %v", names[i], mode, why)
			}
		}
		return nil
	})
	return programs
}

// TestTraceAcrossRegions: one request is followed from its gateway's context through the check and the script in its region to the
// folding of its usage in both others. The line of a denial says where its trace is, a metric a trace of a bucket, and each region
// sends how its mode changed. What is in a span is a matter of the package that makes it.
func TestTraceAcrossRegions(t *testing.T) {
	const gatewayTrace, gatewaySpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r, names := newReceiver(t), []string{"eu-west", "us-east", "ap-south"}
	programs := tracedRegions(t, names)
	eu := programs[0]
	eu.ask(t, "POST", "/v1/check", `{"tenant":"acme","cost":7}`, "traceparent: 00-"+gatewayTrace+"-"+gatewaySpan+"-01").is(t, http.StatusOK)
	check := r.await(t, "eu-west", "POST /v1/check", func(s *span) bool { return s.trace == gatewayTrace && s.parent == gatewaySpan })
	if _, told := check.attrs["regiond.tenant"]; told {
		t.Errorf("%+v tells who the tenant is, and nobody asked for that", check)
	}
	r.await(t, "eu-west", "EVALSHA decide", func(s *span) bool { return s.parent == check.id })
	publish := r.await(t, "eu-west", "publish rl.v1.usage.eu-west", func(s *span) bool { return slices.Contains(s.links, check.id) })
	for _, region := range names[1:] {
		r.await(t, region, "process rl.v1.usage.eu-west", func(s *span) bool { return s.trace == publish.trace && s.parent == publish.id })
	}

	eu.ask(t, "POST", "/v1/check", `{"tenant":"acme","cost":300}`).is(t, http.StatusTooManyRequests)
	denied := r.await(t, "eu-west", "POST /v1/check", func(s *span) bool { return s.attrs["regiond.decision"] == "denied" })
	if line := eu.log.Await(t, "denied", 1); line["trace_id"] != denied.trace || line["span_id"] != denied.id {
		t.Errorf("the line %v is not of %+v", line, denied)
	}

	scrape := func(accept string) string { return eu.admin.ask(t, "GET", "/metrics", "", "Accept: "+accept).body }
	page := scrape("application/openmetrics-text; version=1.0.0")
	for _, series := range []string{"regiond_http_duration_seconds_bucket", "regiond_decision_duration_seconds_bucket", "regiond_redis_duration_seconds_bucket"} {
		if !slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
			return strings.HasPrefix(line, series) && strings.Contains(line, `trace_id="`)
		}) {
			t.Errorf("no bucket of %s names a trace", series)
		}
	}
	if strings.Contains(scrape("text/plain"), "trace_id") {
		t.Error("plain text names traces, which Prometheus cannot read there")
	}

	for _, region := range names {
		r.await(t, region, "mode change", func(s *span) bool { return s.attrs["regiond.to"] == "global" && s.attrs["regiond.from"] != "" })
	}
	programs[2].stop()
	r.await(t, "eu-west", "mode change", func(s *span) bool {
		return s.attrs["regiond.from"] == "global" && s.attrs["regiond.to"] == "partitioned" && s.attrs["regiond.reason"] != ""
	})
}
