package daemon

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/redisserver"
)

// tracedRegions are three daemons joined by one NATS; the first has a real Redis.
type tracedRegions struct {
	names    []string
	programs []*program
}

func startTraced(t *testing.T) *tracedRegions {
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

	r := &tracedRegions{names: []string{"eu-west", "us-east", "ap-south"}}
	b := &strings.Builder{}
	b.WriteString("regions:\n")
	for i, name := range r.names {
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
	for _, name := range r.names {
		p := build(t, "--config", file, "--region", name, "--instance", "one")
		p.run(t)
		r.programs = append(r.programs, p)
	}
	capture.Eventually(t, func() error {
		for i, p := range r.programs {
			n := p.daemon.replication
			if mode, why := n.ceilings.View().Mode(quota.FailShare); mode != quota.ModeGlobal {
				return fmt.Errorf("%s is in mode %v because of %v", r.names[i], mode, why)
			}
		}
		return nil
	})
	return r
}

const (
	gatewayTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	gatewaySpan  = "00f067aa0ba902b7"
)

// TestTraceAcrossRegions: one request is followed from its gateway's context through
// the check and the script in its region to the folding of its usage in both others.
func TestTraceAcrossRegions(t *testing.T) {
	r := newReceiver(t)
	regions := startTraced(t)
	eu := regions.programs[0]
	status := eu.ask(t, "POST", "/v1/check", `{"tenant":"acme","cost":7}`,
		"traceparent: 00-"+gatewayTrace+"-"+gatewaySpan+"-01", "tracestate: vendor=1").status
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}

	check := r.await(t, "eu-west", "POST /v1/check", func(s *receivedSpan) bool { return s.trace() == gatewayTrace })
	check.wants(t, otlp.Span_SPAN_KIND_SERVER, map[string]string{
		"http.request.method": "POST", "http.route": "/v1/check", "http.response.status_code": "200",
		"regiond.policy": "standard", "regiond.decision": "allowed", "regiond.basis": "exact", "regiond.mode": "global",
		"regiond.cost": "7", "regiond.remaining": "293", "regiond.limit": "sustained",
	})
	if check.parent() != gatewaySpan || check.GetTraceState() != "vendor=1" {
		t.Errorf("%v: not the gateway's child, or without its state %q", check, check.GetTraceState())
	}
	if _, told := check.attrs["regiond.tenant"]; told {
		t.Errorf("%v tells who the tenant is, and nobody asked for that", check)
	}

	script := r.await(t, "eu-west", "EVALSHA decide", func(s *receivedSpan) bool { return s.parent() == check.id() })
	_, port, _ := net.SplitHostPort(eu.daemon.config.Load().region.Redis.Addrs[0])
	script.wants(t, otlp.Span_SPAN_KIND_CLIENT, map[string]string{
		"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": "decide",
		"server.address": "127.0.0.1", "server.port": port, "regiond.checks": "1",
	})
	if script.trace() != gatewayTrace {
		t.Errorf("%v is of another trace", script)
	}

	publish := r.await(t, "eu-west", "publish rl.v1.usage.eu-west", func(s *receivedSpan) bool { return s.linksTo(check) })
	publish.wants(t, otlp.Span_SPAN_KIND_PRODUCER, map[string]string{
		"messaging.system": "nats", "messaging.operation.name": "publish", "messaging.operation.type": "send",
		"messaging.destination.name": "rl.v1.usage.eu-west", "messaging.destination.template": "rl.v1.usage.{region}",
		"messaging.client.id": "one", "regiond.counters": "1",
	})
	if publish.parent() != "" || publish.trace() == gatewayTrace {
		t.Errorf("%v does not begin a trace of its own", publish)
	}
	if size, err := strconv.Atoi(publish.attrs["messaging.message.body.size"]); err != nil || size < 20 {
		t.Errorf("%v: a message of %q bytes", publish, publish.attrs["messaging.message.body.size"])
	}

	for _, region := range regions.names[1:] {
		fold := r.await(t, region, "process rl.v1.usage.eu-west", func(s *receivedSpan) bool { return s.parent() == publish.id() })
		fold.wants(t, otlp.Span_SPAN_KIND_CONSUMER, map[string]string{
			"messaging.operation.type": "process", "regiond.peer": "eu-west", "regiond.seq": publish.attrs["regiond.seq"],
			"regiond.counters": "1", "regiond.gap": "false",
		})
		if fold.trace() != publish.trace() {
			t.Errorf("%v is of another trace than %v", fold, publish)
		}
	}

	t.Run("denied", func(t *testing.T) { tracedDenial(t, r, eu) })
	t.Run("modes", func(t *testing.T) { tracedModes(t, r, regions) })
	t.Run("exemplar", func(t *testing.T) { tracedExemplar(t, eu) })
}

// tracedDenial: the line of a denial in the log says where its trace is.
func tracedDenial(t *testing.T, r *receiver, eu *program) {
	if status := eu.ask(t, "POST", "/v1/check", `{"tenant":"acme","cost":300}`).status; status != http.StatusTooManyRequests {
		t.Fatalf("status %d", status)
	}
	denied := r.await(t, "eu-west", "POST /v1/check", func(s *receivedSpan) bool { return s.attrs["regiond.decision"] == "denied" })
	line := eu.log.Await(t, "denied", 1)
	if line["trace_id"] != denied.trace() || line["span_id"] != denied.id() {
		t.Errorf("the line %v is not of %v", line, denied)
	}
}

// tracedModes: each region has told how it came to see all others, and one that goes
// silent is told of with the reason.
func tracedModes(t *testing.T, r *receiver, regions *tracedRegions) {
	changed := func(to string) func(s *receivedSpan) bool {
		return func(s *receivedSpan) bool { return s.attrs["regiond.to"] == to }
	}
	for _, region := range regions.names {
		s := r.await(t, region, "mode change", changed("global"))
		s.wants(t, otlp.Span_SPAN_KIND_INTERNAL, map[string]string{"regiond.kind": "mode"})
		if s.attrs["regiond.from"] == "" { // joining, or share where the third came late
			t.Errorf("%v came from nothing", s)
		}
		if events := s.GetEvents(); len(events) != 1 || attributesOf(events[0].GetAttributes())["regiond.to"] != "global" {
			t.Errorf("%v has events %v", s, events)
		}
	}
	regions.programs[2].stop()
	s := r.await(t, "eu-west", "mode change", func(s *receivedSpan) bool { return s.attrs["regiond.from"] == "global" })
	if s.attrs["regiond.to"] != "partitioned" || s.attrs["regiond.reason"] == "" {
		t.Errorf("%v: want share, with a reason", s)
	}
}

// tracedExemplar: a scraper that understands them is told a trace of a bucket.
func tracedExemplar(t *testing.T, eu *program) {
	scrape := func(accept string) string { return eu.admin.ask(t, "GET", "/metrics", "", "Accept: "+accept).body }
	for _, series := range []string{"regiond_http_duration_seconds_bucket", "regiond_decision_duration_seconds_bucket", "regiond_redis_duration_seconds_bucket"} {
		found := false
		for line := range strings.Lines(scrape("application/openmetrics-text; version=1.0.0")) {
			found = found || strings.HasPrefix(line, series) && strings.Contains(line, `trace_id="`)
		}
		if !found {
			t.Errorf("no bucket of %s names a trace", series)
		}
	}
	if strings.Contains(scrape("text/plain"), "trace_id") {
		t.Error("plain text names traces, which Prometheus cannot read there")
	}
}
