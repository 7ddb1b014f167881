package grpcapi

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// TestDecode: what protobuf accepts is decoded as protobuf does, fields in any order and more than once.
func TestDecode(t *testing.T) {
	t.Parallel()
	text := rapid.SampledFrom([]string{"", "a", "ü"})
	small := rapid.Uint32Range(0, 3)
	request := rapid.Custom(func(t *rapid.T) *ratelimit.RateLimitRequest {
		r := &ratelimit.RateLimitRequest{Domain: text.Draw(t, "domain"), HitsAddend: small.Draw(t, "hits")}
		for range rapid.IntRange(0, 2).Draw(t, "descriptors") {
			d := &common.RateLimitDescriptor{IsNegativeHits: rapid.Bool().Draw(t, "negative")}
			for range rapid.IntRange(0, 2).Draw(t, "entries") {
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: text.Draw(t, "key"), Value: text.Draw(t, "value")})
			}
			if rapid.Bool().Draw(t, "has limit") {
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: small.Draw(t, "limit"), Unit: 2}
			}
			if rapid.Bool().Draw(t, "has cost") {
				d.HitsAddend = wrapperspb.UInt64(uint64(small.Draw(t, "cost")))
			}
			r.Descriptors = append(r.Descriptors, d)
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			part, err := proto.Marshal(request.Draw(t, "part"))
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, part...)
		}
		got, want := &ratelimit.RateLimitRequest{}, &ratelimit.RateLimitRequest{}
		if err := proto.Unmarshal(data, want); err != nil {
			t.Fatal(err)
		}
		if err := decode(data, got.ProtoReflect(), 3); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%x: %v, %v, want %v", data, got, err, want)
		}
	})
}

// TestDecodeDepth: lists in lists are read as deep as protobuf reads them, and no deeper.
func TestDecodeDepth(t *testing.T) {
	t.Parallel()
	var data []byte
	for depth := range 20 { // of messages, a list and its value in turn
		number := protowire.Number(6 - 5*(depth%2))
		if err := decode(data, (&structpb.Value{}).ProtoReflect(), 20); number == 1 && err != nil {
			t.Errorf("%d messages in one: %v", depth+1, err)
		}
		data = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
	}
	if err := decode(data, (&structpb.ListValue{}).ProtoReflect(), 20); err == nil {
		t.Error("21 messages in one are read")
	}
}
