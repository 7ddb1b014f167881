package grpcapi_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/region"
)

// modelRule is a rule for one key.
type modelRule struct {
	key                      string
	limit                    uint64
	unlimited, shadow, quota bool
	name                     string
	replaces                 []string
}

// model answers as DESIGN.md says, one after the other and within one window.
type model struct {
	charge region.Charge
	rules  []*modelRule
	used   map[string]uint64 // by key and value
}

func (m *model) file() string {
	text := "domain: edge\ndescriptors:\n"
	for _, r := range m.rules {
		limit := fmt.Sprintf("unit: hour, requests_per_unit: %d", r.limit)
		if r.unlimited {
			limit = "unlimited: true"
		}
		if r.replaces != nil {
			limit += ", replaces: [{name: " + strings.Join(r.replaces, "}, {name: ") + "}]"
		}
		text += fmt.Sprintf("  - {key: %s, shadow_mode: %t, quota_mode: %t, rate_limit: {%s, name: %s}}\n", r.key, r.shadow, r.quota, limit, r.name)
	}
	return text
}

// modelCell is what the model makes of a descriptor.
type modelCell struct {
	*modelRule
	under      string
	cost       uint64
	free, look bool // nothing is charged; free is never over
	report     bool // charged whatever is left
	over       bool
	left       uint64 // of a report
}

func (c *modelCell) denies() bool { return c.over && !c.shadow && !c.quota && !c.free }

// answer is the story of a request.
func (m *model) answer(r *ratelimit.RateLimitRequest) string {
	cells := make([]modelCell, len(r.GetDescriptors()))
	replaced := map[string]bool{}
	for i, d := range r.GetDescriptors() {
		c, e := &cells[i], d.GetEntries()[0]
		at := slices.IndexFunc(m.rules, func(r *modelRule) bool { return r.key == e.GetKey() })
		if at < 0 {
			continue
		}
		c.modelRule, c.under = m.rules[at], e.GetKey()+"="+e.GetValue()
		for _, name := range c.replaces {
			replaced[name] = true
		}
		c.cost = uint64(max(r.GetHitsAddend(), 1))
		if own := d.GetHitsAddend(); own != nil {
			c.cost, c.look = own.GetValue(), own.GetValue() == 0
			c.report = m.charge == region.ChargeWeighted
		}
		c.report = !c.look && (c.report || m.charge == region.ChargeAlways)
		if d.GetIsNegativeHits() {
			c.free, c.report = true, false
		}
	}
	sum := map[string]uint64{} // of costs, by key and value
	for _, c := range cells {
		if c.modelRule != nil && !c.look && !c.free {
			sum[c.under] += c.cost
		}
	}
	refused, quotas, quotasOver := false, 0, 0
	for i := range cells {
		c := &cells[i]
		if c.modelRule != nil && !c.unlimited && replaced[c.name] {
			c.modelRule = nil
		}
		if c.modelRule == nil || c.unlimited {
			continue
		}
		if c.free {
			if c.over = c.limit == 0; !c.look {
				m.used[c.under] -= min(m.used[c.under], c.cost)
			}
			continue
		}
		cost := c.cost
		switch {
		case c.look:
			cost = 1
		case !c.report:
			cost = sum[c.under]
		}
		c.over = m.used[c.under]+cost > c.limit
		if c.report { // one after the other
			m.used[c.under] = min(c.limit, m.used[c.under]+c.cost)
			c.left = c.limit - m.used[c.under]
		}
		refused = refused || c.denies()
		if c.quota && !c.shadow && !c.free {
			quotas++
			if c.over {
				quotasOver++
			}
		}
	}
	noQuota := quotas > 0 && quotas == quotasOver
	refused = refused || noQuota
	text := "ok:"
	if refused {
		text = "over:"
	}
	for i := range cells {
		c := &cells[i]
		if c.modelRule != nil && !c.unlimited && !c.report && !c.free && !c.look && !c.over && (c.shadow || !refused) {
			m.used[c.under] += c.cost
		}
	}
	for i := range cells {
		c := &cells[i]
		if c.modelRule == nil || c.unlimited {
			text += " ok"
			continue
		}
		switch {
		case c.denies() || c.over && c.quota && !c.shadow && !c.free && noQuota:
			text += " over/0"
		case c.over:
			text += " ok/0"
		case c.report:
			text += fmt.Sprint(" ok/", c.left)
		default:
			text += fmt.Sprint(" ok/", c.limit-min(c.limit, m.used[c.under]))
		}
	}
	return text
}

var modelRequest = rapid.Custom(func(t *rapid.T) *ratelimit.RateLimitRequest {
	r := &ratelimit.RateLimitRequest{Domain: "edge", HitsAddend: uint32(max(0, rapid.IntRange(-4, 3).Draw(t, "hits")))}
	kinds := map[string]int{} // of equal descriptors one: else the order in which they are charged shows
	for range rapid.IntRange(1, 6).Draw(t, "descriptors") {
		entry := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key") + "=" + rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "value")
		if _, seen := kinds[entry]; !seen {
			kinds[entry] = rapid.IntRange(0, 11).Draw(t, "own")
		}
		d := descriptor(entry)
		switch kinds[entry] {
		case 0:
			d.HitsAddend = wrapperspb.UInt64(0)
		case 1:
			d.HitsAddend = wrapperspb.UInt64(rapid.Uint64Range(1, 4).Draw(t, "own hits"))
		case 2:
			d.IsNegativeHits = true
			if rapid.Bool().Draw(t, "own refund") {
				d.HitsAddend = wrapperspb.UInt64(rapid.Uint64Range(1, 4).Draw(t, "refund"))
			}
		case 3:
			d.IsNegativeHits, d.HitsAddend = true, wrapperspb.UInt64(0)
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
})

// TestModel: random requests under random files are answered as the model does.
func TestModel(t *testing.T) {
	t.Parallel()
	w := serve(t, basics, nil)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{used: map[string]uint64{}, charge: rapid.SampledFrom([]region.Charge{
			region.ChargeWeighted, region.ChargeWeighted, region.ChargeAdmitted, region.ChargeAlways,
		}).Draw(t, "charge")}
		for i, key := range []string{"a", "b", "c", "d", "e"} {
			r := &modelRule{key: key, name: "n" + key, limit: rapid.Uint64Range(0, 6).Draw(t, "limit")}
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				r.unlimited = true
			case 1:
				r.shadow = true
			case 2, 3:
				r.quota = true
			case 4:
				r.shadow, r.quota = true, true
			}
			if rapid.IntRange(0, 4).Draw(t, "replaces") == 0 {
				r.replaces = []string{"n" + string("abcde"[(i+1)%5]), "n" + string("abcde"[(i+2)%5])}
			}
			m.rules = append(m.rules, r)
		}
		w.load(t, m.file(), func(d *region.Domain) { d.Charge, d.Refunds = m.charge, true })
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var before strings.Builder
		for range rapid.IntRange(5, 15).Draw(t, "requests") {
			w.nowUS += 31 * time.Second.Microseconds() // a denial is remembered for 30, and shows what others had left then
			r := modelRequest.Draw(t, "request")
			a, err := w.client.ShouldRateLimit(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := story(a), m.answer(r); got != want {
				t.Fatalf("%v\nis answered %s, want %s, in\n%s, charge %s, after\n%s", r, got, want, m.file(), m.charge, &before)
			}
			fmt.Fprintln(&before, r, story(a))
			for i, s := range a.GetStatuses() {
				if unlimited := s.GetCurrentLimit() == nil && s.GetLimitRemaining() == math.MaxUint32; unlimited != m.unlimited(r.GetDescriptors()[i]) {
					t.Fatalf("%v: %v in\n%s", r, s, m.file())
				}
			}
		}
	})
}

func (m *model) unlimited(d *common.RateLimitDescriptor) bool {
	return slices.ContainsFunc(m.rules, func(r *modelRule) bool { return r.key == d.GetEntries()[0].GetKey() && r.unlimited })
}
