package grpcapi_test

import (
	"crypto/sha256"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/redisserver"
)

func refunding(d *region.Domain) { d.Refunds = true }

// refund is a descriptor that takes units back.
func refund(hits uint64, entries ...string) *common.RateLimitDescriptor {
	d := costing(hits, entries...)
	d.IsNegativeHits = true
	return d
}

// TestRefund: it is answered OK, never takes back more than is used, and a denial of before does not stand: not in this process, and
// not in another one.
func TestRefund(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	one, other := serve(t, tokens, refunding), serve(t, tokens, refunding)
	one.onRedis(t, srv)
	other.onRedis(t, srv)
	for _, row := range []struct {
		w    *world
		ds   []*common.RateLimitDescriptor
		want string
	}{
		{one, []*common.RateLimitDescriptor{refund(5, "user=a")}, "ok: ok/1000"},
		{one, []*common.RateLimitDescriptor{costing(1000, "user=a"), costing(1000000, "large=a")}, "ok: ok/0 ok/0"},
		{one, ds("user=a"), "over: over/0"},
		{other, ds("user=a", "team=a"), "over: over/0 ok/4000"},
		{other, ds("user=a", "team=a"), "over: over/0 ok/4000"},
		{one, []*common.RateLimitDescriptor{refund(2, "user=a"), refund(3, "user=a"), refund(7, "large=a"), refund(1, "none=a")}, "ok: ok/5 ok/5 ok/7 ok/0"},
		{other, ds("user=a", "team=a"), "ok: ok/4 ok/3999"},
		{one, ds("user=a"), "ok: ok/3"},
		{other, []*common.RateLimitDescriptor{refund(1, "user=a"), costing(5, "none=a")}, "over: ok/4 over/0"}, // refused, and given back all the same
		{other, []*common.RateLimitDescriptor{refund(9999, "user=a")}, "ok: ok/1000"},
	} {
		if got := story(row.w.ask(t, row.ds...)); got != row.want {
			t.Errorf("%v: %s, want %s", row.ds, got, row.want)
		}
	}
}

// TestRefundRefused: what takes nothing back says so, and charges nothing.
func TestRefundRefused(t *testing.T) {
	with := func(change func(*region.Domain)) *world {
		return serve(t, tokens, func(d *region.Domain) { d.Overrides = true; change(d) })
	}
	own := refund(1, "user=a")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 100, Unit: 2}
	held := with(refunding)
	held.tokens = []access.Token{{Name: "checks", SHA256: sha256.Sum256([]byte("checks")), Scopes: access.Check}}
	for _, row := range []struct {
		why  string
		w    *world
		d    *common.RateLimitDescriptor
		want codes.Code
	}{
		{"no refunds: true", with(func(*region.Domain) {}), refund(1, "user=a"), codes.InvalidArgument},
		{"a limit in the request", with(refunding), own, codes.InvalidArgument},
		{"a token without scope report", held, refund(1, "user=a"), codes.PermissionDenied},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer checks")
		ds := []*common.RateLimitDescriptor{descriptor("team=a"), row.d}
		_, err := row.w.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds})
		if status.Code(err) != row.want {
			t.Errorf("%s: %v", row.why, err)
		}
		row.w.tokens = nil
		row.w.left(t, "ok: ok/4000", descriptor("team=a"))
		if got := story(row.w.ask(t, refund(1, "unknown=a"), refund(1, "free=a"))); got != "ok: ok ok" {
			t.Errorf("%s: where no limit applies: %s", row.why, got)
		}
	}
}

// TestRefundBesideAnotherDenial: a denial by a limit that takes no refunds keeps nothing of one that does.
func TestRefundBesideAnotherDenial(t *testing.T) {
	onBoth(t, tokens, func(d *region.Domain) { d.Overrides = true; refunding(d) }, func(t *testing.T, w *world) {
		own := descriptor("team=a")
		own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 3}
		w.ask(t, own)
		w.ask(t, costing(1000, "user=a"))
		for _, want := range []string{"over: over/0 over/0", "over: ok/10 over/0"} {
			if got := story(w.ask(t, descriptor("user=a"), own)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			w.ask(t, refund(10, "user=a"))
		}
	})
}
