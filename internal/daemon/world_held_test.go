package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// reserve holds units for the tenant that all is about, and returns what names them.
func (p *node) reserve(amount int64, ttl time.Duration) string {
	p.w.t.Helper()
	out := p.limiter.Reserve(context.Background(), []quota.Request{{Tenant: "acme", Cost: amount, TTL: ttl, Reserve: true}})[0]
	if out.Err != nil || !out.Decision.Allowed {
		p.w.t.Fatalf("%s: a reserve of %d: %+v, %v", p.home.name, amount, out.Decision, out.Err)
	}
	return out.Decision.Reservation.ID
}

// settle charges units of a reservation.
func (p *node) settle(id string, actual int64) {
	p.w.t.Helper()
	out := p.limiter.Settle(context.Background(), []quota.Claim{{Reservation: id, Actual: actual}})[0]
	if out.Err != nil || out.Decision.Settlement == nil || !out.Decision.Settlement.Released {
		p.w.t.Fatalf("%s: a settle of %d: %+v, %v", p.home.name, actual, out.Decision, out.Err)
	}
}

// believed is what a process believes that another region has used and holds.
func (p *node) believed(of *nodeRegion) (used, held int64) {
	p.w.t.Helper()
	_, terms := p.explained("acme")
	for _, peer := range terms.Peers {
		if peer.Region == of.name {
			return peer.Estimate, peer.Held
		}
	}
	p.w.t.Fatalf("%s knows no region %s", p.home.name, of.name)
	return 0, 0
}

// TestWorldHeld: what reservations hold in one region leaves so much less to the others, and is used in place of held with
// one message; when it ends by itself, no message is needed. It is so when several processes of a region decide, and for one
// that has just started.
func TestWorldHeld(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, string, func(*world)){"memory": inWorld, "redis": onRedises} {
		t.Run(name, func(t *testing.T) {
			run(t, worldOf(100, time.Minute, ", counts: tokens"), func(w *world) {
				w.startAll()
				eu, us := w.regions[0], w.regions[1]
				a, b := eu.one(), us.one()
				settling := eu.one()
				if eu.redis != nil { // each process by itself has a memory of its own
					settling = eu.start("two")
					w.await("both processes are seen", 10*time.Second, w.global)
				}
				// travels waits for what us-east has to believe, and looks all the time whether that was before or is now.
				travels := func(what string, used, held int64) {
					t.Helper()
					wasUsed, wasHeld := b.believed(eu)
					took := w.awaitBy(what, time.Second, time.Millisecond, func() bool {
						u, h := b.believed(eu)
						now := u == used && h == held
						if !now && (u != wasUsed || h != wasHeld) {
							t.Fatalf("%s: us-east believes %d used and %d held, which it never was", what, u, h)
						}
						return now
					})
					t.Logf("%-24s is known after %v", what, took)
				}
				first := a.reserve(60, 2*time.Minute)
				travels("held", 0, 60)
				if d := b.ask(41); d.Allowed || d.Limits[0].Ceiling != 40 {
					t.Errorf("41 of 100 where 60 are held elsewhere: %+v", d)
				}
				if d := b.ask(40); !d.Allowed {
					t.Errorf("40 of 100 where 60 are held elsewhere: %+v", d)
				}
				w.await("used there", time.Second, func() bool { used, _ := a.believed(us); return used == 40 })
				settling.settle(first, 10)
				travels("settled", 10, 0)
				if d := b.ask(50); !d.Allowed {
					t.Errorf("50 more of 100 where 10 were used elsewhere: %+v", d)
				}
				time.Sleep(3 * time.Minute) // all is free again
				second := a.reserve(70, 10*time.Second)
				travels("held anew", 0, 70)
				time.Sleep(7 * time.Second)
				if out := a.limiter.Extend(t.Context(), []quota.Claim{{Reservation: second, TTL: 20 * time.Second}})[0]; out.Err != nil {
					t.Fatal(out.Err)
				}
				time.Sleep(8 * time.Second)
				if d := b.ask(31); d.Allowed {
					t.Errorf("31 of 100 where 70 are held for longer: %+v", d)
				}
				us.start("two")
				b.kill()
				b = us.one()
				w.await("the process that has started counts on all", 10*time.Second, w.global)
				if used, held := b.believed(eu); used != 0 || held != 70 {
					t.Errorf("a process that has started believes %d used and %d held", used, held)
				}
				denied := b.ask(100)
				if denied.Allowed {
					t.Errorf("100 of 100 where 70 are held: %+v", denied)
				}
				wait := denied.RetryAfter()
				if left := 20*time.Second - 8*time.Second; wait > left {
					t.Errorf("what is held ends within %v, and a denial says %v", left, wait)
				}
				time.Sleep(wait + time.Millisecond) // nobody has settled, and nobody asks eu-west
				if d := b.ask(100); !d.Allowed {
					t.Errorf("100 of 100 when what was held has ended: %+v", d)
				}
			})
		})
	}
}
