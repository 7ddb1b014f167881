package daemon

import (
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// followSampler is the sampler that was asked for, but for spans that begin a trace
// of their own and belong to another all the same. A publication carries the usage
// of many checks, so it can be the child of none; decided by itself it would be
// sampled once in a hundred, and a sampled check hardly ever be followed to the
// other regions.
//
//	has a parent, or is a check  as asked for
//	links to a sampled span      sampled
//	a change of mode             sampled, unless no trace may begin here: it is rare, and looked for
//	anything else                as asked for
type followSampler struct {
	sdktrace.Sampler
	rare bool // sample changes of mode
}

// ShouldSample implements sdktrace.Sampler.
func (s *followSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	// Links of a check are its caller's doing.
	if p.Kind == trace.SpanKindServer || trace.SpanContextFromContext(p.ParentContext).IsValid() {
		return s.Sampler.ShouldSample(p)
	}
	follow := s.rare && p.Kind == trace.SpanKindInternal
	for i := range p.Links {
		follow = follow || p.Links[i].SpanContext.IsSampled()
	}
	if follow {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return s.Sampler.ShouldSample(p)
}
