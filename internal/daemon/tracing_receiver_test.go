package daemon

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regiond/regiond/test/capture"
)

// receiver is a collector: it takes spans as OTLP over http/protobuf and keeps them.
type receiver struct {
	server *httptest.Server

	mu    sync.Mutex
	spans []receivedSpan // guarded by mu
}

// receivedSpan is a span and which region sent it.
type receivedSpan struct {
	*otlp.Span
	region string
	attrs  map[string]string
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range m.GetResourceSpans() {
		region := attributesOf(of.GetResource().GetAttributes())["cloud.region"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, receivedSpan{s, region, attributesOf(s.GetAttributes())})
			}
		}
	}
}

func attributesOf(list []*common.KeyValue) map[string]string {
	attrs := map[string]string{}
	for _, kv := range list {
		attrs[kv.GetKey()] = valueOf(kv.GetValue())
	}
	return attrs
}

func valueOf(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, one := range v.ArrayValue.GetValues() {
			all = append(all, valueOf(one))
		}
		return strings.Join(all, " ")
	}
	return "?"
}

// id names the span.
func (s *receivedSpan) id() string { return hex.EncodeToString(s.GetSpanId()) }

func (s *receivedSpan) trace() string { return hex.EncodeToString(s.GetTraceId()) }

func (s *receivedSpan) parent() string { return hex.EncodeToString(s.GetParentSpanId()) }

// linksTo reports whether the span has a link to another.
func (s *receivedSpan) linksTo(other *receivedSpan) bool {
	for _, l := range s.GetLinks() {
		if hex.EncodeToString(l.GetTraceId()) == other.trace() && hex.EncodeToString(l.GetSpanId()) == other.id() {
			return true
		}
	}
	return false
}

func (s *receivedSpan) String() string {
	return fmt.Sprintf("%s: %s (%v) %s/%s below %q, %d links, status %v, %v", s.region, s.GetName(), s.GetKind(), s.trace(), s.id(), s.parent(), len(s.GetLinks()), s.GetStatus().GetCode(), s.attrs)
}

// find returns the spans of a region, of any with "", that are as wanted.
func (r *receiver) find(region, name string, wanted func(s *receivedSpan) bool) []receivedSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []receivedSpan
	for i := range r.spans {
		s := &r.spans[i]
		if (region == "" || s.region == region) && s.GetName() == name && (wanted == nil || wanted(s)) {
			found = append(found, *s)
		}
	}
	return found
}

// await waits for a span and returns the first that is as wanted.
func (r *receiver) await(t *testing.T, region, name string, wanted func(s *receivedSpan) bool) *receivedSpan {
	t.Helper()
	var found []receivedSpan
	capture.Eventually(t, func() error {
		if found = r.find(region, name, wanted); len(found) == 0 {
			return fmt.Errorf("no span %q of %q as wanted among\n%s", name, region, r.list())
		}
		return nil
	})
	return &found[0]
}

func (r *receiver) list() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &strings.Builder{}
	for i := range r.spans {
		fmt.Fprintln(b, &r.spans[i])
	}
	return b.String()
}

// wants compares what a span says of some attributes.
func (s *receivedSpan) wants(t *testing.T, kind otlp.Span_SpanKind, want map[string]string) {
	t.Helper()
	if s.GetKind() != kind {
		t.Errorf("%v: kind is not %v", s, kind)
	}
	for name, value := range want {
		if got, ok := s.attrs[name]; got != value || !ok {
			t.Errorf("%v: %s is %q, want %q", s, name, got, value)
		}
	}
}
