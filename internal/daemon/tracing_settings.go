package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporterName is where spans go.
type exporterName string

const (
	exportNone    exporterName = ""
	exportHTTP    exporterName = "otlp over http/protobuf"
	exportGRPC    exporterName = "otlp over grpc"
	exportConsole exporterName = "console"
)

// tenantWord is what spans show of a tenant's id.
type tenantWord string

const (
	tenantOff  tenantWord = "off"
	tenantHash tenantWord = "hash"
	tenantRaw  tenantWord = "raw"
)

// tracingSettings are the OTEL_* variables that are ours to read, and two of our own.
// The exporters read OTEL_EXPORTER_OTLP_* themselves, and the SDK OTEL_BSP_*, each
// with a default in place of what it cannot read; here that is a mistake.
type tracingSettings struct {
	exporter exporterName // exportNone: tracing is off
	sampler  sdktrace.Sampler
	queue    int  // spans that may wait to be sent
	distrust bool // callers' contexts are linked to and not continued
	tenant   tenantWord
}

// environment looks a variable up, "" for none.
type environment func(name string) string

// disabled is whether OpenTelemetry as a whole is off.
func (e environment) disabled() bool {
	return strings.EqualFold(strings.TrimSpace(e("OTEL_SDK_DISABLED")), "true")
}

// metricsOff is whether no metrics are wanted.
func (e environment) metricsOff() bool {
	return e.disabled() || e.word("OTEL_METRICS_EXPORTER") == "none"
}

func (e environment) word(name string) string { return strings.ToLower(strings.TrimSpace(e(name))) }

// readTracing reads the environment. Its error names every mistake; the settings
// are of use without one only.
func readTracing(e environment) (tracingSettings, error) {
	var s tracingSettings
	var errs []error
	if e.disabled() {
		return s, nil
	}
	exporter, err := e.exporter()
	if exporter == exportNone && err == nil {
		return s, nil
	}
	s.exporter = exporter
	errs = append(errs, err, e.endpoints(), e.attributes())
	s.sampler, err = e.sampler()
	errs = append(errs, err)
	s.queue, err = e.count("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize, maxSpanQueue)
	errs = append(errs, err)
	for _, name := range []string{
		"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
	} {
		_, err = e.count(name, 1, 1<<31-1)
		errs = append(errs, err)
	}
	parent, err := e.choice("REGIOND_TRACE_PARENT", "continue", "link")
	errs = append(errs, err)
	tenant, err := e.choice("REGIOND_TRACE_TENANT", string(tenantOff), string(tenantHash), string(tenantRaw))
	s.distrust, s.tenant = parent == "link", tenantWord(tenant)
	return s, errors.Join(append(errs, err)...)
}

// maxSpanQueue bounds what OTEL_BSP_MAX_QUEUE_SIZE may ask for: about 100 MB.
const maxSpanQueue = 1 << 16

// exporter is the standard's, but that nothing is sent anywhere by default: an
// endpoint, or a word, has to say so.
func (e environment) exporter() (exporterName, error) {
	word := e.word("OTEL_TRACES_EXPORTER")
	if word == "" && e("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && e("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return exportNone, nil
	}
	switch word {
	case "none":
		return exportNone, nil
	case "console":
		return exportConsole, nil
	case "", "otlp":
		return e.protocol()
	}
	return exportNone, fmt.Errorf("OTEL_TRACES_EXPORTER=%q: it is otlp, console or none", word)
}

func (e environment) protocol() (exporterName, error) {
	name := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if e(name) == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	switch word := e.word(name); word {
	case "", "http/protobuf":
		return exportHTTP, nil
	case "grpc":
		return exportGRPC, nil
	default:
		return exportNone, fmt.Errorf("%s=%q: it is http/protobuf or grpc", name, word)
	}
}

// endpoints refuses what the exporters would replace by localhost.
func (e environment) endpoints() error {
	var errs []error
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		text := e(name)
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("%s=%q: it is a URL such as http://collector:4318", name, text))
		}
	}
	return errors.Join(errs...)
}

func (e environment) attributes() error {
	_, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES=%q: %w", e("OTEL_RESOURCE_ATTRIBUTES"), err)
	}
	return nil
}

func (e environment) sampler() (sdktrace.Sampler, error) {
	word := e.word("OTEL_TRACES_SAMPLER")
	root, based := strings.CutPrefix(word, "parentbased_")
	var s sdktrace.Sampler
	rare := true
	switch root {
	case "": // the standard's default
		s, based = sdktrace.AlwaysSample(), true
	case "always_on":
		s = sdktrace.AlwaysSample()
	case "always_off":
		s, rare = sdktrace.NeverSample(), false
	case "traceidratio":
		ratio, err := e.ratio()
		if err != nil {
			return nil, err
		}
		s, rare = sdktrace.TraceIDRatioBased(ratio), ratio > 0
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER=%q: it is always_on, always_off, traceidratio, or one of these after parentbased_", word)
	}
	if based {
		s = sdktrace.ParentBased(s)
	}
	return &followSampler{Sampler: s, rare: rare}, nil
}

func (e environment) ratio() (float64, error) {
	const name = "OTEL_TRACES_SAMPLER_ARG"
	text := strings.TrimSpace(e(name))
	if text == "" {
		return 1, nil // the standard's default
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, fmt.Errorf("%s=%q: it is a share between 0 and 1, as in 0.01", name, text)
	}
	return ratio, nil
}

func (e environment) count(name string, unset, most int) (int, error) {
	text := strings.TrimSpace(e(name))
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s=%q: it is a whole number between 1 and %d", name, text, most)
	}
	return n, nil
}

// choice is one of some words, the first when nothing is said.
func (e environment) choice(name string, words ...string) (string, error) {
	got := e.word(name)
	if got == "" {
		return words[0], nil
	}
	for _, word := range words {
		if got == word {
			return word, nil
		}
	}
	return "", fmt.Errorf("%s=%q: it is %s", name, got, strings.Join(words, ", "))
}
