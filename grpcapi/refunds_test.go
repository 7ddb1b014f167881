package grpcapi_test

import (
	"crypto/sha256"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter/limitertest"
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
		{one, []*common.RateLimitDescriptor{descriptor("user=a")}, "over: over/0"},
		{other, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("team=a")}, "over: over/0 ok/4000"},
		{other, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("team=a")}, "over: over/0 ok/4000"},
		{one, []*common.RateLimitDescriptor{refund(2, "user=a"), refund(3, "user=a"), refund(7, "large=a"), refund(1, "none=a")}, "ok: ok/5 ok/5 ok/7 ok/0"},
		{other, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("team=a")}, "ok: ok/4 ok/3999"},
		{one, []*common.RateLimitDescriptor{descriptor("user=a")}, "ok: ok/3"},
		{other, []*common.RateLimitDescriptor{refund(1, "user=a"), costing(5, "none=a")}, "over: ok/4 over/0"}, // refused, and given back all the same
		{other, []*common.RateLimitDescriptor{refund(9999, "user=a")}, "ok: ok/1000"},
	} {
		if got := story(row.w.ask(t, row.ds...)); got != row.want {
			t.Errorf("%v: %s, want %s", row.ds, got, row.want)
		}
	}
}

// TestRefundBesideAnotherDenial: a denial by a limit that takes no refunds keeps nothing of one that does.
func TestRefundBesideAnotherDenial(t *testing.T) {
	both := func(d *region.Domain) { d.Overrides = true; refunding(d) }
	onBoth(t, tokens, both, func(t *testing.T, w *world) {
		own := func() *common.RateLimitDescriptor {
			d := descriptor("team=a")
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 3}
			return d
		}
		w.ask(t, own())
		w.ask(t, costing(1000, "user=a"))
		if got := story(w.ask(t, descriptor("user=a"), own())); got != "over: over/0 over/0" {
			t.Errorf("before the refund: %s", got)
		}
		w.ask(t, refund(10, "user=a"))
		if got := story(w.ask(t, descriptor("user=a"), own())); got != "over: ok/10 over/0" {
			t.Errorf("after the refund: %s", got)
		}
	})
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

// TestRefundWithKuadrant: Report takes back too; what is held stays held.
func TestRefundWithKuadrant(t *testing.T) {
	onBoth(t, tokens, func(d *region.Domain) { reserving(d); refunding(d) }, func(t *testing.T, w *world) {
		user := descriptor("user=a")
		id := w.reserve(t, 400, user).GetReservationId()
		w.ask(t, costing(500, "user=a"))
		for _, want := range []string{"ok: ok/400", "ok: ok/600"} {
			if err := w.kuadrant(t, "Report", &ratelimit.RateLimitRequest{
				Domain: "edge", Descriptors: []*common.RateLimitDescriptor{refund(300, "user=a")},
			}, &ratelimit.RateLimitResponse{}); err != nil {
				t.Fatal(err)
			}
			w.left(t, want, user)
		}
		w.commit(t, id, 100, user)
		w.left(t, "ok: ok/900", user)
	})
}

// TestRefundWhileRedisIsAway is answered OK by the memory of the process, and not made up for in Redis.
func TestRefundWhileRedisIsAway(t *testing.T) {
	w, srv := serve(t, tokens, refunding), redisserver.Start(t, redisserver.Options{})
	w.onRedis(t, srv)
	w.ask(t, costing(400, "user=a"))
	srv.Freeze()
	limitertest.Eventually(t, 20*time.Second, "redis is not asked any more", func() bool { // what was sent is carried out later
		return w.ask(t, costing(0, "user=a")).GetDynamicMetadata().AsMap()["reason"] == "breaker_open"
	})
	if got := story(w.ask(t, refund(300, "user=a"))); got != "ok: ok/900" {
		t.Errorf("%s", got)
	}
	srv.Thaw()
	limitertest.Eventually(t, 20*time.Second, "redis decides", func() bool {
		a := w.ask(t, costing(0, "user=a"))
		return story(a) == "ok: ok/600" && a.GetDynamicMetadata().AsMap()["basis"] == "exact"
	})
}
