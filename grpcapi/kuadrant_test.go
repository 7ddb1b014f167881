package grpcapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/regiond/regiond/grpcapi/internal/kuadrantpb"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/redisserver"
)

const tokens = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: team, rate_limit: {unit: hour, requests_per_unit: 4000}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: large, rate_limit: {unit: minute, requests_per_unit: 1000000}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
`

func reserving(d *region.Domain) { d.MaxTTL, d.MaxHold = 2*time.Minute, 50 }

// onRedis has the limiter of a world decide in a Redis.
func (w *world) onRedis(t *testing.T, srv *redisserver.Server) {
	t.Helper()
	s, err := redisstore.New(redisstore.Options{Addrs: []string{srv.Addr()}, Budget: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	limitertest.KeepRunning(t, s)
	seal := limiter.NewSeal()
	seal.Share([]byte("of all processes"))
	w.limiter, err = limiter.New(limiter.Options{Store: s, Seal: seal, Logger: slog.New(slog.DiscardHandler), Config: limiter.Config{
		Region: "local", Domains: []quota.Domain{{Policy: w.domain.Policy(), Tenant: w.domain.Tenant}}, MaxUnknown: 1000, MaxValues: 1000,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.limiter.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// onBoth runs a test in memory and on a Redis.
func onBoth(t *testing.T, file string, change func(*region.Domain), then func(t *testing.T, w *world)) {
	t.Run("memory", func(t *testing.T) { then(t, serve(t, file, change)) })
	t.Run("redis", func(t *testing.T) {
		w := serve(t, file, change)
		w.onRedis(t, redisserver.Start(t, redisserver.Options{}))
		then(t, w)
	})
}

// kuadrant calls a method of Kuadrant's service.
func (w *world) kuadrant(t *testing.T, method string, in, out proto.Message) error {
	t.Helper()
	return w.conn.Invoke(t.Context(), "/kuadrant.service.ratelimit.v1.RateLimitService/"+method, in, out)
}

func (w *world) reserve(t *testing.T, amount uint64, ds ...*common.RateLimitDescriptor) *pb.ReserveResponse {
	t.Helper()
	a := &pb.ReserveResponse{}
	if err := w.kuadrant(t, "Reserve", &pb.ReserveRequest{Domain: "edge", Descriptors: ds, Amount: amount}, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// commit returns whether the reservation was released.
func (w *world) commit(t *testing.T, id string, actual uint64, ds ...*common.RateLimitDescriptor) bool {
	t.Helper()
	a := &pb.CommitResponse{}
	if err := w.kuadrant(t, "Commit", &pb.CommitRequest{Domain: "edge", Descriptors: ds, ReservationId: id, ActualAmount: actual}, a); err != nil {
		t.Fatal(err)
	}
	return a.GetReservationReleased()
}

// left checks how much a look finds left of descriptors.
func (w *world) left(t *testing.T, want string, ds ...*common.RateLimitDescriptor) {
	t.Helper()
	a := &ratelimit.RateLimitResponse{}
	if err := w.kuadrant(t, "CheckRateLimit", &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds}, a); err != nil {
		t.Fatal(err)
	}
	if got := story(a); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestReserveHoldsUntilCommit: what is held nobody else gets, under all limits; what was used stays charged, the rest is free.
func TestReserveHoldsUntilCommit(t *testing.T) {
	onBoth(t, tokens, reserving, func(t *testing.T, w *world) {
		both := []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("team=x"), descriptor("free=x"), descriptor("unknown=x")}
		a := w.reserve(t, 400, both...)
		if a.GetCode() != ratelimit.RateLimitResponse_OK || a.GetReservationId() == "" {
			t.Fatalf("%v", a)
		}
		w.left(t, "ok: ok/600 ok/3600", both[:2]...)
		if story(w.ask(t, costing(601, "user=a"))) != "over: over/0" { // charged all the same, as weighted has it
			t.Error("Envoy's service does not see what is held")
		}
		for range 2 { // the second charges nothing
			if !w.commit(t, a.GetReservationId(), 150, both...) {
				t.Error("not released")
			}
		}
		w.left(t, "ok: ok/249 ok/3850", both[:2]...)
	})
}

// TestReserveClamps: one reservation holds at most max_hold of a limit, of several the least.
func TestReserveClamps(t *testing.T) {
	onBoth(t, tokens, reserving, func(t *testing.T, w *world) {
		for range 2 {
			if a := w.reserve(t, math.MaxUint64, descriptor("user=a"), descriptor("team=x")); a.GetReservationId() == "" {
				t.Errorf("%v", a)
			}
		}
		w.left(t, "over: over/0 ok/3000", descriptor("user=a"), descriptor("team=x"))
		if a := w.reserve(t, 1, descriptor("team=x"), descriptor("user=a")); a.GetCode() != ratelimit.RateLimitResponse_OVER_LIMIT || a.GetReservationId() != "" {
			t.Errorf("%v", a)
		}
		w.left(t, "ok: ok/3000", descriptor("team=x"))
	})
}

// TestReservationsRace: of many at once those pass that fit.
func TestReservationsRace(t *testing.T) {
	onBoth(t, tokens, reserving, func(t *testing.T, w *world) {
		answers, all := make([]*pb.ReserveResponse, 32), sync.WaitGroup{}
		for i := range answers {
			all.Go(func() { answers[i] = w.reserve(t, 100, descriptor("user=a")) })
		}
		all.Wait()
		held := 0
		for _, a := range answers {
			if a.GetReservationId() != "" {
				held++
			}
		}
		if held != 10 {
			t.Errorf("%d hold 100 of 1000", held)
		}
	})
}

// TestReservationExpires: what is never committed is free after its time. What is committed later is charged, until nothing is
// known of it any more.
func TestReservationExpires(t *testing.T) {
	w := serve(t, tokens, reserving)
	user := descriptor("user=a")
	id := func(ttl *durationpb.Duration) string {
		t.Helper()
		a := &pb.ReserveResponse{}
		if err := w.kuadrant(t, "Reserve", &pb.ReserveRequest{
			Domain: "edge", Descriptors: []*common.RateLimitDescriptor{user}, Amount: 400, Ttl: ttl,
		}, a); err != nil {
			t.Fatal(err)
		}
		return a.GetReservationId()
	}
	short, long := id(durationpb.New(time.Second)), id(durationpb.New(time.Hour))
	w.nowUS += time.Second.Microseconds()
	w.left(t, "ok: ok/600", user)
	if w.commit(t, short, 300, user) {
		t.Error("what has expired is released")
	}
	w.left(t, "ok: ok/300", user)
	w.nowUS += (2 * time.Minute).Microseconds() // max_ttl, and the charge has aged
	w.left(t, "ok: ok/1000", user)
	w.nowUS += (13 * time.Minute).Microseconds()
	r := &pb.CommitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{user}, ReservationId: long, ActualAmount: 300}
	if err := w.kuadrant(t, "Commit", r, &pb.CommitResponse{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	w.left(t, "ok: ok/1000", user)
}

// TestReserveOfNothing: a look, and descriptors without a limit, hold nothing; a limit of 0 refuses.
func TestReserveOfNothing(t *testing.T) {
	w := serve(t, tokens, reserving)
	for _, row := range []struct {
		amount uint64
		ds     []*common.RateLimitDescriptor
		want   ratelimit.RateLimitResponse_Code
	}{
		{0, []*common.RateLimitDescriptor{descriptor("user=a")}, ratelimit.RateLimitResponse_OK},
		{5, []*common.RateLimitDescriptor{descriptor("free=a"), descriptor("unknown=a")}, ratelimit.RateLimitResponse_OK},
		{5, []*common.RateLimitDescriptor{descriptor("user=a"), descriptor("none=a")}, ratelimit.RateLimitResponse_OVER_LIMIT},
	} {
		if a := w.reserve(t, row.amount, row.ds...); a.GetCode() != row.want || a.GetReservationId() != "" {
			t.Errorf("%v: %v", row.ds, a)
		}
	}
	a := &pb.ReserveResponse{}
	err := w.kuadrant(t, "Reserve", &pb.ReserveRequest{Domain: "elsewhere", Descriptors: []*common.RateLimitDescriptor{descriptor("user=a")}}, a)
	if err != nil || a.GetCode() != ratelimit.RateLimitResponse_OK || a.GetReservationId() != "" {
		t.Errorf("an unknown domain: %v %v", a, err)
	}
	if w.commit(t, "", 0, descriptor("user=a")) || w.commit(t, "x", 5, descriptor("free=a")) {
		t.Error("nothing is released")
	}
	w.left(t, "ok: ok/1000", descriptor("user=a"))
}

// TestReserveInShadowMode: such a limit refuses nothing. Beside others it is left out; alone it is charged what it would admit.
func TestReserveInShadowMode(t *testing.T) {
	w := serve(t, tokens, reserving)
	watched := descriptor("watched=a")
	for i, want := range []string{"ok: ok/70", "ok: ok/40", "ok: ok/40"} {
		a := w.reserve(t, 50, watched)
		if i == 2 {
			w.reserve(t, 20, watched)
			a = w.reserve(t, 50, watched)
		}
		w.commit(t, a.GetReservationId(), 30, watched)
		if i < 2 {
			w.left(t, want, watched)
		}
	}
	w.left(t, "ok: ok/20", watched) // 60 are used, 20 held, and what would have been refused was not charged
	if a := w.reserve(t, 50, watched, descriptor("user=a")); a.GetReservationId() == "" {
		t.Errorf("%v", a)
	}
	w.left(t, "ok: ok/20 ok/950", watched, descriptor("user=a"))
}

// TestReport charges whatever is left, and is answered OK; so is a commit without a reservation.
func TestReport(t *testing.T) {
	onBoth(t, tokens, reserving, func(t *testing.T, w *world) {
		user, team := descriptor("user=a"), descriptor("team=x")
		for _, want := range []string{"ok: ok/400 ok/3400", "over: over/0 ok/2800"} {
			a := &ratelimit.RateLimitResponse{}
			if err := w.kuadrant(t, "Report", &ratelimit.RateLimitRequest{
				Domain: "edge", Descriptors: []*common.RateLimitDescriptor{user, team}, HitsAddend: 600,
			}, a); err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OK {
				t.Errorf("%v %v", a, err)
			}
			w.left(t, want, user, team)
		}
		w.commit(t, "", 300, user, costing(7, "team=x"))
		w.left(t, "ok: ok/2500", team)
	})
	plain := serve(t, tokens, nil)
	plain.commit(t, "anything", 300, descriptor("user=a"))
	plain.left(t, "ok: ok/700", descriptor("user=a"))
}

// TestAIGatewayBothWays: a look at the start and the tokens at the end let everybody through who starts before the first ends.
// Who reserves at the start gets through while there is room.
func TestAIGatewayBothWays(t *testing.T) {
	w := serve(t, tokens, reserving)
	looks, reserves := descriptor("user=looks"), descriptor("user=reserves")
	var ids []string
	for range 3 {
		if a := w.ask(t, costing(0, "user=looks")); a.GetOverallCode() != ratelimit.RateLimitResponse_OK {
			t.Errorf("%v", a)
		}
		if a := w.reserve(t, 450, reserves); a.GetCode() == ratelimit.RateLimitResponse_OK {
			ids = append(ids, a.GetReservationId())
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d hold 450 of 1000", len(ids))
	}
	for _, want := range []string{"ok: ok/600", "ok: ok/200", "over: over/0"} {
		w.ask(t, costing(400, "user=looks"))
		w.left(t, want, looks)
	}
	for _, id := range ids {
		w.commit(t, id, 400, reserves)
	}
	w.left(t, "ok: ok/200", reserves)
}

// TestCostsOverHolds: a request whose descriptors cost differently sees what is held.
func TestCostsOverHolds(t *testing.T) {
	onBoth(t, tokens, func(d *region.Domain) { reserving(d); d.Charge = region.ChargeAdmitted }, func(t *testing.T, w *world) {
		w.reserve(t, 400, descriptor("user=a"), descriptor("team=x"), descriptor("large=x"))
		for _, row := range []struct {
			user uint64
			want string
		}{{600, "ok: ok/0 ok/3599 ok/999590"}, {1, "over: over/0 ok/3599 ok/999590"}} {
			if got := story(w.ask(t, costing(row.user, "user=a"), descriptor("team=x"), costing(10, "large=x"))); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		}
	})
}

// TestCommitIsOfItsDescriptors: an id counts for the tenant and the domain that it was made for alone.
func TestCommitIsOfItsDescriptors(t *testing.T) {
	w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.Tenant = []string{"user"} })
	id := w.reserve(t, 400, descriptor("user=a")).GetReservationId()
	flipped := []byte(id)
	flipped[9] ^= 1
	for _, row := range []struct {
		id, entry string
	}{{id, "user=b"}, {string(flipped), "user=a"}, {"x", "user=a"}} {
		r := &pb.CommitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{descriptor(row.entry)}, ReservationId: row.id, ActualAmount: 10}
		if err := w.kuadrant(t, "Commit", r, &pb.CommitResponse{}); status.Code(err) != codes.NotFound {
			t.Errorf("%s: %v", row.entry, err)
		}
	}
	if o := w.limiter.Settle(t.Context(), []quota.Claim{{Reservation: id, Actual: 10}}); o[0].Err == nil {
		t.Errorf("over HTTP nothing says which limits are charged: %+v", o[0].Decision)
	}
	w.left(t, "ok: ok/600", descriptor("user=a"))
}

// TestReserveWithoutAPlace: values and tenants beyond the bounds share what they hold, and a commit frees it.
func TestReserveWithoutAPlace(t *testing.T) {
	for _, tenants := range [][]string{nil, {"user"}} {
		w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.Tenant = tenants })
		if err := w.limiter.Configure(limiter.Config{
			Region: "local", Domains: []quota.Domain{{Policy: w.domain.Policy(), Tenant: w.domain.Tenant}}, MaxUnknown: 1, MaxValues: 1,
		}); err != nil {
			t.Fatal(err)
		}
		w.reserve(t, 1, descriptor("user=known"))
		b := w.reserve(t, 400, descriptor("user=b"))
		w.left(t, "ok: ok/600", descriptor("user=c"))
		if !w.commit(t, b.GetReservationId(), 100, descriptor("user=b")) {
			t.Errorf("%v: not released", tenants)
		}
		w.left(t, "ok: ok/900", descriptor("user=c"))
		w.left(t, "ok: ok/999", descriptor("user=known"))
	}
}

// TestCommitInAnotherOrder: who sends the descriptors of a reservation in another order charges the same limits, once, also where one
// of them has no place for its value.
func TestCommitInAnotherOrder(t *testing.T) {
	onBoth(t, tokens, reserving, func(t *testing.T, w *world) {
		if err := w.limiter.Configure(limiter.Config{
			Region: "local", Domains: []quota.Domain{{Policy: w.domain.Policy(), Tenant: w.domain.Tenant}}, MaxUnknown: 1, MaxValues: 1,
		}); err != nil {
			t.Fatal(err)
		}
		user, team := descriptor("user=b"), descriptor("team=x")
		w.reserve(t, 1, descriptor("user=known"), team)
		id := w.reserve(t, 400, user, team).GetReservationId()
		for _, ds := range [][]*common.RateLimitDescriptor{{team, user}, {user, team}} {
			if !w.commit(t, id, 100, ds...) {
				t.Error("not released")
			}
			w.left(t, "ok: ok/900 ok/3899", user, team)
		}
	})
}

// TestChargesWhileOverloaded: what would not be charged is an error, also where on_overload lets requests pass. A reservation is settled.
func TestChargesWhileOverloaded(t *testing.T) {
	for _, mode := range []quota.OverloadMode{quota.OverloadShed, quota.OverloadOpen} {
		w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.OnOverload = mode })
		user := []*common.RateLimitDescriptor{descriptor("user=a")}
		id, most := w.reserve(t, 400, user...).GetReservationId(), w.server.MaxInFlight
		w.server.MaxInFlight = 0
		for _, row := range []struct {
			method  string
			in, out proto.Message
		}{
			{"Report", &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: user, HitsAddend: 10}, &ratelimit.RateLimitResponse{}},
			{"Commit", &pb.CommitRequest{Domain: "edge", Descriptors: user, ActualAmount: 10}, &pb.CommitResponse{}},
		} {
			if err := w.kuadrant(t, row.method, row.in, row.out); status.Code(err) != codes.Unavailable {
				t.Errorf("%v %s: %v", mode, row.method, err)
			}
		}
		if !w.commit(t, id, 100, user...) {
			t.Error("not released")
		}
		w.server.MaxInFlight = most
		w.left(t, "ok: ok/900", user...)
	}
}

// TestWhoMayReserve: a reserve needs scope check, what charges scope report. A token that is held to other tenants is refused, and
// charges nothing.
func TestWhoMayReserve(t *testing.T) {
	w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.Tenant = []string{"user"} })
	w.tokens = []access.Token{
		{Name: "checks", SHA256: sha256.Sum256([]byte("checks")), Scopes: access.Check},
		{Name: "reports", SHA256: sha256.Sum256([]byte("reports")), Scopes: access.Report},
		{Name: "held", SHA256: sha256.Sum256([]byte("held")), Scopes: access.Check | access.Report, Tenants: []string{"other"}},
	}
	user := []*common.RateLimitDescriptor{descriptor("user=a")}
	for _, row := range []struct {
		token                         string
		look, report, reserve, commit codes.Code
		held                          bool
	}{
		{"unknown", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated, false},
		{"checks", codes.OK, codes.PermissionDenied, codes.OK, codes.PermissionDenied, true},
		{"reports", codes.PermissionDenied, codes.OK, codes.PermissionDenied, codes.NotFound, false},
		{"held", codes.OK, codes.PermissionDenied, codes.OK, codes.PermissionDenied, false},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+row.token)
		reserved := &pb.ReserveResponse{}
		for _, c := range []struct {
			method  string
			in, out proto.Message
			want    codes.Code
		}{
			{"CheckRateLimit", &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: user}, &ratelimit.RateLimitResponse{}, row.look},
			{"Report", &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: user}, &ratelimit.RateLimitResponse{}, row.report},
			{"Reserve", &pb.ReserveRequest{Domain: "edge", Descriptors: user, Amount: 5}, reserved, row.reserve},
			{"Commit", &pb.CommitRequest{Domain: "edge", Descriptors: user, ReservationId: "x", ActualAmount: 5}, &pb.CommitResponse{}, row.commit},
		} {
			err := w.conn.Invoke(ctx, "/kuadrant.service.ratelimit.v1.RateLimitService/"+c.method, c.in, c.out)
			if status.Code(err) != c.want {
				t.Errorf("%s %s: %v, want %v", row.token, c.method, err, c.want)
			}
		}
		if got := reserved.GetReservationId() != ""; got != row.held {
			t.Errorf("%s: %v", row.token, reserved)
		}
	}
}

// TestMistakesInReservations are errors, and charge nothing.
func TestMistakesInReservations(t *testing.T) {
	w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.Tenant, d.Overrides = []string{"user"}, true })
	own := descriptor("user=a")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 100, Unit: 2}
	user := []*common.RateLimitDescriptor{descriptor("user=a")}
	for _, row := range []struct {
		why string
		r   *pb.ReserveRequest
	}{
		{"no domain", &pb.ReserveRequest{Descriptors: user}},
		{"no descriptors", &pb.ReserveRequest{Domain: "edge"}},
		{"a ttl below 0", &pb.ReserveRequest{Domain: "edge", Descriptors: user, Ttl: durationpb.New(-1)}},
		{"no ttl", &pb.ReserveRequest{Domain: "edge", Descriptors: user, Ttl: &durationpb.Duration{Nanos: math.MaxInt32}}},
		{"a limit of its own", &pb.ReserveRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{own}}},
	} {
		if err := w.kuadrant(t, "Reserve", row.r, &pb.ReserveResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", row.why, err)
		}
	}
	r := &pb.CommitRequest{Domain: "edge", Descriptors: user, ReservationId: "x", ActualAmount: uint64(quota.MaxUnits) + 1}
	if err := w.kuadrant(t, "Commit", r, &pb.CommitResponse{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	w.left(t, "ok: ok/1000", user...)
	plain := serve(t, tokens, nil)
	if err := plain.kuadrant(t, "Reserve", &pb.ReserveRequest{Domain: "edge", Descriptors: user, Amount: 1}, &pb.ReserveResponse{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a domain without max_ttl: %v", err)
	}
}

// TestReserveOfWhatUsersSend: values decide which descriptors have one limit or another tenant, so none of them makes an error, which
// a gateway lets pass. Equal ones are one.
func TestReserveOfWhatUsersSend(t *testing.T) {
	const file = tokens + `  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: path, value: /chat/*, rate_limit: {unit: minute, requests_per_unit: 1000}}
`
	w := serve(t, file, func(d *region.Domain) { reserving(d); d.Tenant = []string{"user"} })
	for _, row := range []struct {
		entries []string
		want    ratelimit.RateLimitResponse_Code
	}{
		{[]string{"user=a", "user=a"}, ratelimit.RateLimitResponse_OK},
		{[]string{"user=a", "user=b"}, ratelimit.RateLimitResponse_OVER_LIMIT},
		{[]string{"user=a", "team=x"}, ratelimit.RateLimitResponse_OVER_LIMIT},
		{[]string{"team=x", "team=x"}, ratelimit.RateLimitResponse_OK},
		{[]string{"team=x", "team=y"}, ratelimit.RateLimitResponse_OVER_LIMIT},
		{[]string{"path=/chat/1", "path=/"}, ratelimit.RateLimitResponse_OK},
		{[]string{"path=/chat/1", "path=/chat/2"}, ratelimit.RateLimitResponse_OVER_LIMIT},
		{[]string{"path=/a", "path=/b"}, ratelimit.RateLimitResponse_OVER_LIMIT},
	} {
		var ds []*common.RateLimitDescriptor
		for _, e := range row.entries {
			ds = append(ds, descriptor(e))
		}
		a := w.reserve(t, 1, ds...)
		if a.GetCode() != row.want || (a.GetReservationId() != "") != (row.want == ratelimit.RateLimitResponse_OK) {
			t.Errorf("%v: %v", row.entries, a)
		}
		id := w.reserve(t, 1, descriptor("user=other")).GetReservationId()
		r := &pb.CommitRequest{Domain: "edge", Descriptors: ds, ReservationId: id, ActualAmount: 5}
		if err := w.kuadrant(t, "Commit", r, &pb.CommitResponse{}); status.Code(err) != codes.NotFound {
			t.Errorf("%v commits the reservation of another: %v", row.entries, err)
		}
	}
}

// TestShortestReservation: what lasts less than a millisecond lasts that long.
func TestShortestReservation(t *testing.T) {
	w, user := serve(t, tokens, reserving), descriptor("user=a")
	for _, nanos := range []int32{1, 999, 999_999} {
		r := &pb.ReserveRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{user}, Amount: 400, Ttl: &durationpb.Duration{Nanos: nanos}}
		if err := w.kuadrant(t, "Reserve", r, &pb.ReserveResponse{}); err != nil {
			t.Fatal(err)
		}
		w.left(t, "ok: ok/600", user)
		w.nowUS += 999
		w.left(t, "ok: ok/600", user)
		w.nowUS++
		w.left(t, "ok: ok/1000", user)
	}
}

// TestCommitInAnotherProcess of the region settles what this one holds, once.
func TestCommitInAnotherProcess(t *testing.T) {
	srv, user, team := redisserver.Start(t, redisserver.Options{}), descriptor("user=a"), descriptor("team=x")
	one, other := serve(t, tokens, reserving), serve(t, tokens, reserving)
	one.onRedis(t, srv)
	other.onRedis(t, srv)
	id := one.reserve(t, 400, user, team).GetReservationId()
	other.left(t, "ok: ok/600 ok/3600", user, team)
	for _, w := range []*world{other, one, other} {
		if !w.commit(t, id, 150, team, user) {
			t.Error("not released")
		}
		one.left(t, "ok: ok/850 ok/3850", user, team)
	}
}

// TestReservationOutOfBounds: who asks for too much is refused, and a commit of it is an error.
func TestReservationOutOfBounds(t *testing.T) {
	w := serve(t, tokens, reserving)
	var many []*common.RateLimitDescriptor
	for i := range 101 {
		many = append(many, descriptor(fmt.Sprint("user=", i)))
	}
	if a := w.reserve(t, 1, many...); a.GetCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
		t.Errorf("%v", a)
	}
	err := w.kuadrant(t, "Commit", &pb.CommitRequest{Domain: "edge", Descriptors: many, ReservationId: "x", ActualAmount: 1}, &pb.CommitResponse{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

// TestCommitWhileRedisIsAway: it is charged when Redis is back, once.
func TestCommitWhileRedisIsAway(t *testing.T) {
	w, srv := serve(t, tokens, reserving), redisserver.Start(t, redisserver.Options{})
	w.onRedis(t, srv)
	user := descriptor("user=a")
	a := w.reserve(t, 400, user)
	srv.Freeze()
	for range 3 {
		if w.commit(t, a.GetReservationId(), 150, user) {
			t.Error("released by a Redis that is away")
		}
	}
	srv.Thaw()
	limitertest.Eventually(t, 20*time.Second, "the commit is charged", func() bool {
		got := w.ask(t, costing(0, "user=a"))
		return story(got) == "ok: ok/850" && got.GetDynamicMetadata().AsMap()["basis"] == "exact"
	})
	if !w.commit(t, a.GetReservationId(), 150, user) {
		t.Error("not released")
	}
	w.left(t, "ok: ok/850", user)
}

// TestReportWhileRedisIsAway: it is answered OK, and charged in the memory of the process alone; so is a commit without a reservation.
func TestReportWhileRedisIsAway(t *testing.T) {
	w, srv := serve(t, tokens, reserving), redisserver.Start(t, redisserver.Options{})
	w.onRedis(t, srv)
	user := descriptor("user=a")
	w.left(t, "ok: ok/1000", user)
	srv.Freeze()
	limitertest.Eventually(t, 20*time.Second, "redis is not asked any more", func() bool { // what was sent is carried out later
		return w.ask(t, costing(0, "user=a")).GetDynamicMetadata().AsMap()["reason"] == "breaker_open"
	})
	if err := w.kuadrant(t, "Report", &ratelimit.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{user}, HitsAddend: 300,
	}, &ratelimit.RateLimitResponse{}); err != nil {
		t.Error(err)
	}
	w.commit(t, "", 200, user)
	w.left(t, "ok: ok/500", user)
	srv.Thaw()
	limitertest.Eventually(t, 20*time.Second, "redis decides, and knows of neither", func() bool {
		a := w.ask(t, costing(0, "user=a"))
		return story(a) == "ok: ok/1000" && a.GetDynamicMetadata().AsMap()["basis"] == "exact"
	})
}
