package grpcapi_test

import (
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/region"
)

// messages are the fields of a message that are messages, and what is in them.
type messages map[protowire.Number]messages

// requestMessages are those of a RateLimitRequest: descriptors, and their entries, limit and cost.
var requestMessages = messages{2: {1: {}, 2: {3: {}}, 3: {}}}

// fields calls f for all fields of a message, and reports whether it and those within are encoded as messages are.
func (ms messages) fields(message []byte, f func(protowire.Number, []byte)) bool {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 || number > protowire.MaxValidNumber {
			return false
		}
		_, _, tag := protowire.ConsumeTag(message)
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message[tag:size])
			if within, ok := ms[number]; ok && !within.fields(content, nil) {
				return false
			}
			if f != nil {
				f(number, content)
			}
		}
		message = message[size:]
	}
	return true
}

// FuzzDescriptors holds for any bytes: a message is answered with a status for each descriptor, none of them UNKNOWN, or
// refused as a whole beyond a bound; an error is INVALID_ARGUMENT, for what an end user has no part in.
func FuzzDescriptors(f *testing.F) {
	w := serve(f, basics+`
  - {key: pre, value: "a*", share_threshold: true, descriptors: [{key: in, rate_limit: {unit: day, requests_per_unit: 2}}]}
`, func(d *region.Domain) { d.Tenant, d.Overrides = []string{"user", "in"}, true })
	limited := descriptor("user=\xff")
	limited.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 99}
	for _, ds := range [][]*common.RateLimitDescriptor{
		{descriptor("user=a")},
		{descriptor("user=\xff"), descriptor("us\xfeer=a"), descriptor()},
		{descriptor("pre=a\x00", "in=x"), costing(0, "all=yes"), costing(1<<63, "none=")},
		{descriptor("watched=1"), descriptor("small=1"), descriptor("large=1"), descriptor("q1=1"), descriptor("q2=1"), descriptor("vip=")},
		{limited},
		{descriptor("user=" + strings.Repeat("x", 300)), descriptor("user=" + strings.Repeat("{", 300))},
	} {
		f.Add(encoded("edge", ds...))
	}
	f.Add(encoded("", descriptor("user=a")))
	f.Add(encoded("\xff", descriptor("user=a")))
	f.Add(encoded("edge"))
	f.Add([]byte{0x12, 0x03, 0x0a, 0x7f})
	f.Fuzz(func(t *testing.T, message []byte) {
		domain, descriptors := "", 0
		wellFormed := requestMessages.fields(message, func(number protowire.Number, content []byte) {
			switch number {
			case 1:
				domain = string(content)
			case 2:
				descriptors++
			}
		})
		a, err := w.server.Answer(t.Context(), message)
		refused := a.GetDynamicMetadata().AsMap()["reason"] == "out_of_bounds"
		switch {
		case err != nil && status.Code(err) == codes.InvalidArgument && (!wellFormed || domain == "" || descriptors == 0):
		case err != nil:
			t.Fatalf("%x, of %q with %d descriptors: %v", message, domain, descriptors, err)
		case !wellFormed || domain == "" || descriptors == 0:
			t.Fatalf("%x, of %q with %d descriptors: %v", message, domain, descriptors, a)
		case refused && len(message) <= grpcapi.MaxBytes && descriptors <= grpcapi.MaxDescriptors && len(message) < 2*grpcapi.MaxEntries:
			t.Fatalf("%x is beyond no bound, and answered %v", message, a)
		case !refused && len(a.GetStatuses()) != descriptors:
			t.Fatalf("%x, of %d descriptors: %v", message, descriptors, a)
		}
		if a.GetOverallCode() == ratelimit.RateLimitResponse_UNKNOWN && err == nil {
			t.Fatalf("%x: %v", message, a)
		}
		for _, s := range a.GetStatuses() {
			if s.GetCode() == ratelimit.RateLimitResponse_UNKNOWN {
				t.Fatalf("%x: %v", message, a)
			}
		}
	})
}
