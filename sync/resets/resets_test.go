package resets_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/resets"
	"github.com/regiond/regiond/sync/wire"
)

const startUS = int64(1_790_000_050_000_000)

// process is one of a deployment whose messages all arrive at once, unless it is away.
type process struct {
	*resets.Resets
	self    quota.Process
	ledger  *ledger.Ledger
	away    atomic.Bool
	broken  atomic.Bool  // its store
	deleted atomic.Int32 // times
	burntMS atomic.Int64 // of its region
}

// deployment runs f with a process in each of the regions, in a synctest bubble.
func deployment(t *testing.T, f func(all []*process), regions ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		now := func() time.Duration { return time.Hour + time.Since(began) }
		var all []*process
		for i, region := range regions {
			p := &process{self: quota.Process{Region: region, Instance: "a", Boot: startUS + int64(i)}}
			var err error
			p.ledger, err = ledger.New(ledger.Options{
				Self: region, Boot: p.self.Boot, Now: now, Regions: func() int { return len(regions) },
				Limit: func(string) (int64, bool) { return 600, true },
				Most:  func(string, int64) int64 { return math.MaxInt64 },
			})
			if err != nil {
				t.Fatal(err)
			}
			p.Resets = resets.New(resets.Options{
				Self: p.self, Ledger: p.ledger, Now: now, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
				TimeUS:  func() int64 { return startUS + now().Microseconds() },
				Regions: func() []string { return regions },
				Live: func() (live []quota.Process) {
					for _, o := range all {
						if o != p && !o.away.Load() {
							live = append(live, o.self)
						}
					}
					return live
				},
				Send: func(m wire.Reset) {
					m.From = p.self
					for _, o := range all {
						if o != p && !o.away.Load() && !p.away.Load() {
							go o.Receive(&m)
						}
					}
				},
				BurntMS: p.burntMS.Load,
				Delete: func(context.Context, string, int64) error {
					if p.broken.Load() {
						return errors.New("no store")
					}
					p.deleted.Add(1)
					return nil
				},
			})
			all = append(all, p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, p := range all {
			go func() { _ = p.Run(ctx) }()
		}
		f(all)
		cancel()
		synctest.Wait()
	})
}

// everywhere is what a reset of acme comes to, by region, and how long it took.
func everywhere(p *process) (outcome string, took time.Duration) {
	began := time.Now()
	all, err := p.Everywhere(context.Background(), "acme")
	if err != nil {
		return err.Error(), time.Since(began)
	}
	var words []string
	for _, r := range all {
		word := fmt.Sprint(r.Region, " ", r.Result)
		if r.BurntMS != 0 {
			word += fmt.Sprint(" burnt ", r.BurntMS)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", "), time.Since(began)
}

// cut is the state of a region's cut as a process knows it, -1 without one.
func cut(p *process, region string) int {
	for tenant, cuts := range p.ledger.Resets() {
		i := slices.IndexFunc(cuts, func(c wire.Cut) bool { return c.Region == region })
		if tenant == "acme" && i >= 0 {
			return int(cuts[i].State)
		}
	}
	return -1
}

// Every region deletes once, and every process knows the cuts of all. A region whose store lost data is cleared and still has no
// share of its own; the answer says so, whoever is asked.
func TestEverywhere(t *testing.T) {
	deployment(t, func(all []*process) {
		const want = "eu cleared burnt 90000, us cleared, ap cleared burnt -1"
		all[0].burntMS.Store(90_000)
		all[2].burntMS.Store(-1)
		if got, took := everywhere(all[0]); got != want || took > time.Second {
			t.Errorf("%s after %v", got, took)
		}
		synctest.Wait()
		for _, p := range all {
			if p.deleted.Load() != 1 {
				t.Errorf("%s deleted %d times", p.self.Region, p.deleted.Load())
			}
			for _, region := range []string{"eu", "us", "ap"} {
				if s := cut(p, region); s != int(wire.CutDeleted) {
					t.Errorf("%s has state %d of %s", p.self.Region, s, region)
				}
			}
		}
		for _, p := range all[1:] {
			if got, _ := everywhere(p); got != want {
				t.Errorf("asked of %s: %s", p.self.Region, got)
			}
		}
	}, "eu", "us", "ap")
}

// A region that is not received is unreached, one without a store has failed, and without
// its own store the caller gets an error.
func TestRegionsThatDoNot(t *testing.T) {
	deployment(t, func(all []*process) {
		all[1].away.Store(true)
		all[2].broken.Store(true)
		got, took := everywhere(all[0])
		if got != "eu cleared, us unreached, ap failed" || took != 5*time.Second {
			t.Errorf("%s after %v", got, took)
		}
		all[2].broken.Store(false)
		all[1].away.Store(false)
		if got, _ := everywhere(all[0]); got != "eu cleared, us cleared, ap cleared" {
			t.Errorf("asked again: %s", got)
		}
		all[0].broken.Store(true)
		if got, _ := everywhere(all[0]); got != "reset usage: no store" {
			t.Error(got)
		}
	}, "eu", "us", "ap")
}

// An order that comes again is carried out once, and answered again; one for another process is not.
func TestOrdersAreRepeated(t *testing.T) {
	deployment(t, func(all []*process) {
		order := func(id uint64, to *process) {
			for range 3 {
				all[1].Receive(&wire.Reset{Head: wire.Head{From: all[0].self}, ID: id, Tenant: "acme", To: []quota.Process{to.self}})
				time.Sleep(time.Second)
			}
		}
		order(7, all[1])
		order(8, all[0])
		if n := all[1].deleted.Load(); n != 1 {
			t.Errorf("deleted %d times", n)
		}
		all[1].broken.Store(true)
		order(9, all[1])
		all[1].broken.Store(false)
		order(9, all[1]) // one that failed is tried again
		if n := all[1].deleted.Load(); n != 2 {
			t.Errorf("deleted %d times in all", n)
		}
	}, "eu", "us")
}

// What the store has again is announced with the tenant's cuts.
func TestReturned(t *testing.T) {
	deployment(t, func(all []*process) {
		all[0].ledger.Supersede("acme", []wire.Cut{{Region: "eu", UpTo: startUS, State: wire.CutReturned}})
		all[0].Returned("acme")
		synctest.Wait()
		if s := cut(all[1], "eu"); s != int(wire.CutReturned) {
			t.Errorf("a peer has state %d", s)
		}
	}, "eu", "us")
}

// An order that comes again while it is carried out, or soon after, is carried out once, however
// many came before.
func TestOrdersAreRepeatedAmongMany(t *testing.T) {
	deployment(t, func(all []*process) {
		order := func(id uint64) {
			all[1].Receive(&wire.Reset{Head: wire.Head{From: all[0].self}, ID: id, Tenant: "acme", To: []quota.Process{all[1].self}})
		}
		const many = 1100
		for id := range uint64(many) {
			order(2 + id)
			if id > 0 {
				order(1 + id) // is in progress
			}
			time.Sleep(300 * time.Millisecond)
			order(2 + id) // is done
		}
		time.Sleep(time.Second)
		if n := all[1].deleted.Load(); n != many {
			t.Errorf("%d orders deleted %d times", many, n)
		}
	}, "eu", "us")
}
