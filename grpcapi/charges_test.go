package grpcapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/region"
)

// TestRefusedChargesNothing: whatever the descriptors of a refused request are, none is charged.
func TestRefusedChargesNothing(t *testing.T) {
	same := slices.Repeat([]*common.RateLimitDescriptor{descriptor("user=h")}, 2)
	var many []*common.RateLimitDescriptor
	for i := range grpcapi.MaxDescriptors {
		many = append(many, descriptor(fmt.Sprint("user=m", i)))
	}
	for _, row := range []struct {
		why     string
		tenants []string
		ask     []*common.RateLimitDescriptor
		look    string // at one of them
	}{
		{"values of one rule", nil, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("user=full")}, "user=a"},
		{"costs of their own", nil, []*common.RateLimitDescriptor{costing(2, "user=b"), descriptor("user=full")}, "user=b"},
		{"equal ones, which fit one by one", nil, append(same, same...), "user=h"},
		{"as many as there may be", nil, append(many[1:], descriptor("user=full")), "user=m1"},
		{"tenants", []string{"user"}, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("user=full")}, "user=a"},
	} {
		t.Run(row.why, func(t *testing.T) {
			w := serve(t, basics, func(d *region.Domain) { d.Charge, d.Tenant = region.ChargeAdmitted, row.tenants })
			w.ask(t, costing(3, "user=full"))
			for range 3 {
				if a := w.ask(t, row.ask...); a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
					t.Fatalf("%s", story(a))
				}
			}
			if got := story(w.ask(t, costing(0, row.look))); got != "ok: ok/3" {
				t.Errorf("%s is left of %s", got, row.look)
			}
		})
	}
	w := serve(t, basics, nil)
	if a := w.ask(t, many...); strings.Count(story(a), "ok/2") != len(many) {
		t.Errorf("%d descriptors: %s", len(many), story(a))
	}
	if a := w.ask(t, same...); story(a) != "ok: ok/1 ok/1" {
		t.Errorf("equal ones: %s", story(a))
	}
}
