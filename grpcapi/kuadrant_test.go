package grpcapi_test

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/regiond/regiond/grpcapi"
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
		Region: "local", Domains: w.domains(), MaxUnknown: 1000, MaxValues: 1000,
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

// report charges hits whatever is left.
func (w *world) report(t *testing.T, hits uint32, ds ...*common.RateLimitDescriptor) {
	t.Helper()
	a := &ratelimit.RateLimitResponse{}
	err := w.kuadrant(t, "Report", &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: ds, HitsAddend: hits}, a)
	if err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OK {
		t.Errorf("%v %v", a, err)
	}
}

// fails has a call of Kuadrant's service end with an error.
func (w *world) fails(t *testing.T, want codes.Code, in proto.Message) {
	t.Helper()
	method, out := "Reserve", proto.Message(&pb.ReserveResponse{})
	switch in.(type) {
	case *pb.CommitRequest:
		method, out = "Commit", &pb.CommitResponse{}
	case *ratelimit.RateLimitRequest:
		method, out = "Report", &ratelimit.RateLimitResponse{}
	}
	if err := w.kuadrant(t, method, in, out); status.Code(err) != want {
		t.Errorf("%s of %.200v: %v, want %v", method, in, err, want)
	}
}

// fewPlaces leaves room for one tenant and one value of each dimension.
func (w *world) fewPlaces(t *testing.T) {
	t.Helper()
	if err := w.limiter.Configure(limiter.Config{Region: "local", Domains: w.domains(), MaxUnknown: 1, MaxValues: 1}); err != nil {
		t.Fatal(err)
	}
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
		both := ds("user=a", "team=x", "free=x", "unknown=x")
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

// TestReservationExpires: what is never committed is free after its time, a millisecond at least. What is committed later is charged,
// until nothing is known of it any more.
func TestReservationExpires(t *testing.T) {
	w, user := serve(t, tokens, reserving), ds("user=a")
	id := func(ttl time.Duration) string {
		t.Helper()
		a := &pb.ReserveResponse{}
		if err := w.kuadrant(t, "Reserve", &pb.ReserveRequest{Domain: "edge", Descriptors: user, Amount: 400, Ttl: durationpb.New(ttl)}, a); err != nil {
			t.Fatal(err)
		}
		return a.GetReservationId()
	}
	for _, ttl := range []time.Duration{1, 999_999} {
		id(ttl)
		w.nowUS += 999
		w.left(t, "ok: ok/600", user...)
		w.nowUS++
		w.left(t, "ok: ok/1000", user...)
	}
	short, long := id(time.Second), id(time.Hour)
	w.nowUS += time.Second.Microseconds()
	w.left(t, "ok: ok/600", user...)
	if w.commit(t, short, 300, user...) {
		t.Error("what has expired is released")
	}
	w.left(t, "ok: ok/300", user...)
	w.nowUS += (2 * time.Minute).Microseconds() // max_ttl, and the charge has aged
	w.left(t, "ok: ok/1000", user...)
	w.nowUS += (13 * time.Minute).Microseconds()
	w.fails(t, codes.FailedPrecondition, &pb.CommitRequest{Domain: "edge", Descriptors: user, ReservationId: long, ActualAmount: 300})
	w.left(t, "ok: ok/1000", user...)
}

// TestReserveOfNothing: a look, and descriptors without a limit, hold nothing; a limit of 0 refuses, and so do too many descriptors.
func TestReserveOfNothing(t *testing.T) {
	w := serve(t, tokens, reserving)
	for _, row := range []struct {
		domain string
		amount uint64
		ds     []*common.RateLimitDescriptor
		want   ratelimit.RateLimitResponse_Code
	}{
		{"edge", 0, ds("user=a"), ratelimit.RateLimitResponse_OK},
		{"edge", 5, ds("free=a", "unknown=a"), ratelimit.RateLimitResponse_OK},
		{"elsewhere", 5, ds("user=a"), ratelimit.RateLimitResponse_OK},
		{"edge", 5, ds("user=a", "none=a"), ratelimit.RateLimitResponse_OVER_LIMIT},
		{"edge", 5, slices.Repeat(ds("user=a"), grpcapi.MaxDescriptors+1), ratelimit.RateLimitResponse_OVER_LIMIT},
	} {
		a := &pb.ReserveResponse{}
		err := w.kuadrant(t, "Reserve", &pb.ReserveRequest{Domain: row.domain, Descriptors: row.ds, Amount: row.amount}, a)
		if err != nil || a.GetCode() != row.want || a.GetReservationId() != "" {
			t.Errorf("%.100v: %v %v", row.ds, a, err)
		}
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

// TestReport charges whatever is left and takes back, and is answered OK; so is a commit without a reservation. What is held stays held.
func TestReport(t *testing.T) {
	onBoth(t, tokens, func(d *region.Domain) { reserving(d); refunding(d) }, func(t *testing.T, w *world) {
		user, team := descriptor("user=a"), descriptor("team=x")
		w.report(t, 600, user, team)
		w.left(t, "ok: ok/400 ok/3400", user, team)
		w.report(t, 600, user, team)
		w.left(t, "over: over/0 ok/2800", user, team)
		w.commit(t, "", 300, user, costing(7, "team=x"))
		w.left(t, "ok: ok/2500", team)
		id := w.reserve(t, 400, team).GetReservationId()
		w.report(t, 0, refund(300, "team=x"))
		w.left(t, "ok: ok/2400", team)
		w.commit(t, id, 100, team)
		w.left(t, "ok: ok/2700", team)
	})
	plain := serve(t, tokens, nil)
	plain.commit(t, "anything", 300, descriptor("user=a"))
	plain.left(t, "ok: ok/700", descriptor("user=a"))
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
	for _, row := range [][2]string{{id, "user=b"}, {string(flipped), "user=a"}, {"x", "user=a"}} {
		w.fails(t, codes.NotFound, &pb.CommitRequest{Domain: "edge", Descriptors: ds(row[1]), ReservationId: row[0], ActualAmount: 10})
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
		w.fewPlaces(t)
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

// TestCommitInAnotherProcess of the region settles what this one holds, once, and with the descriptors in another order, also where one
// of them has no place for its value.
func TestCommitInAnotherProcess(t *testing.T) {
	srv, user, team := redisserver.Start(t, redisserver.Options{}), descriptor("user=b"), descriptor("team=x")
	one, other := serve(t, tokens, reserving), serve(t, tokens, reserving)
	for _, w := range []*world{one, other} {
		w.onRedis(t, srv)
		w.fewPlaces(t)
		w.reserve(t, 1, descriptor("user=known"), team)
	}
	id := one.reserve(t, 400, user, team).GetReservationId()
	other.left(t, "ok: ok/600 ok/3598", user, team)
	for _, w := range []*world{other, one, other} {
		if !w.commit(t, id, 150, team, user) {
			t.Error("not released")
		}
		one.left(t, "ok: ok/850 ok/3848", user, team)
	}
}

// TestChargesWhileOverloaded: what would not be charged is an error, also where on_overload lets requests pass. A reservation is settled.
func TestChargesWhileOverloaded(t *testing.T) {
	for _, mode := range []quota.OverloadMode{quota.OverloadShed, quota.OverloadOpen} {
		w, user := serve(t, tokens, func(d *region.Domain) { reserving(d); d.OnOverload = mode }), ds("user=a")
		id, most := w.reserve(t, 400, user...).GetReservationId(), w.server.MaxInFlight
		w.server.MaxInFlight = 0
		w.fails(t, codes.Unavailable, &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: user, HitsAddend: 10})
		w.fails(t, codes.Unavailable, &pb.CommitRequest{Domain: "edge", Descriptors: user, ActualAmount: 10})
		if !w.commit(t, id, 100, user...) {
			t.Error("not released")
		}
		w.server.MaxInFlight = most
		w.left(t, "ok: ok/900", user...)
	}
}

// TestMistakesInReservations are errors, and charge nothing.
func TestMistakesInReservations(t *testing.T) {
	w := serve(t, tokens, func(d *region.Domain) { reserving(d); d.Tenant, d.Overrides = []string{"user"}, true })
	own, user := descriptor("user=a"), ds("user=a")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 100, Unit: 2}
	many := slices.Repeat(user, grpcapi.MaxDescriptors+1)
	for _, r := range []proto.Message{
		&pb.ReserveRequest{Descriptors: user},
		&pb.ReserveRequest{Domain: "edge"},
		&pb.ReserveRequest{Domain: "edge", Descriptors: user, Ttl: durationpb.New(-1)},
		&pb.ReserveRequest{Domain: "edge", Descriptors: user, Ttl: &durationpb.Duration{Nanos: math.MaxInt32}},
		&pb.ReserveRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{own}},
		&pb.CommitRequest{Domain: "edge", Descriptors: user, ReservationId: "x", ActualAmount: uint64(quota.MaxUnits) + 1},
		&pb.CommitRequest{Domain: "edge", Descriptors: many, ReservationId: "x", ActualAmount: 1},
	} {
		w.fails(t, codes.InvalidArgument, r)
	}
	w.left(t, "ok: ok/1000", user...)
	serve(t, tokens, nil).fails(t, codes.FailedPrecondition, &pb.ReserveRequest{Domain: "edge", Descriptors: user, Amount: 1}) // no max_ttl
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
	user := ds("user=a")
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
		ds := ds(row.entries...)
		a := w.reserve(t, 1, ds...)
		if a.GetCode() != row.want || (a.GetReservationId() != "") != (row.want == ratelimit.RateLimitResponse_OK) {
			t.Errorf("%v: %v", row.entries, a)
		}
		id := w.reserve(t, 1, descriptor("user=other")).GetReservationId()
		w.fails(t, codes.NotFound, &pb.CommitRequest{Domain: "edge", Descriptors: ds, ReservationId: id, ActualAmount: 5})
	}
}

// TestKuadrantWhileRedisIsAway: a commit of a reservation is charged when Redis is back, once. A report, a commit without a reservation
// and a refund are answered OK by the memory of the process alone.
func TestKuadrantWhileRedisIsAway(t *testing.T) {
	w, srv := serve(t, tokens, func(d *region.Domain) { reserving(d); refunding(d) }), redisserver.Start(t, redisserver.Options{})
	w.onRedis(t, srv)
	held, user := descriptor("user=held"), descriptor("user=a")
	id := w.reserve(t, 400, held).GetReservationId()
	w.left(t, "ok: ok/1000", user)
	srv.Freeze()
	limitertest.Eventually(t, 20*time.Second, "redis is not asked any more", func() bool { // what was sent is carried out later
		return w.ask(t, costing(0, "user=a")).GetDynamicMetadata().AsMap()["reason"] == "breaker_open"
	})
	for range 3 {
		if w.commit(t, id, 150, held) {
			t.Error("released by a Redis that is away")
		}
	}
	w.report(t, 300, user)
	w.commit(t, "", 200, user)
	w.left(t, "ok: ok/500", user)
	w.report(t, 0, refund(100, "user=a"))
	w.left(t, "ok: ok/600", user)
	srv.Thaw()
	limitertest.Eventually(t, 20*time.Second, "redis decides: the commit is charged, and of the others it knows nothing", func() bool {
		a := w.ask(t, costing(0, "user=held"), costing(0, "user=a"))
		return story(a) == "ok: ok/850 ok/1000" && a.GetDynamicMetadata().AsMap()["basis"] == "exact"
	})
	if !w.commit(t, id, 150, held) {
		t.Error("not released")
	}
	w.left(t, "ok: ok/850", held)
}
