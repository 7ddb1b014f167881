package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/meshtest"
)

// calendarTruth is what each region admitted in each hour by its own clock.
type calendarTruth struct {
	w    *world
	used map[int64][]int64 // by hour since 1970 and region
	lent bool              // regions lend, so one may be told to come back in a second
}

const hourUS = int64(time.Hour / time.Microsecond)

// ask is one check of the i-th region's first process. One that is denied for want of units must be told to come back when the
// next hour begins by that region's clock.
func (c *calendarTruth) ask(i int, cost int64) quota.Decision {
	c.w.t.Helper()
	s := c.w.regions[i]
	before := s.nowUS()
	d := s.one().ask(cost)
	hour := s.nowUS() / hourUS
	if c.used[hour] == nil {
		c.used[hour] = make([]int64, len(c.w.regions))
	}
	if d.Allowed {
		c.used[hour][i] += cost
		return d
	}
	if c.lent && d.Limits[0].RetryAfter == time.Second {
		return d
	}
	until := before + d.Limits[0].RetryAfter.Microseconds()
	if off := until - (hour+1)*hourUS; d.Basis != quota.BasisLocal && (off < -1_000_000 || off > 1_000) {
		c.w.t.Errorf("%s at %v is told to wait for %v, which is %v off the next hour (%v)", s.name, time.UnixMicro(before).UTC(), d.Limits[0].RetryAfter, time.Duration(off)*time.Microsecond, d.Basis)
	}
	return d
}

// all is what all regions admitted in an hour.
func (c *calendarTruth) all(hour int64) (units int64) {
	for _, n := range c.used[hour] {
		units += n
	}
	return units
}

// TestWorldCalendar: three regions whose clocks differ by seconds spend one quota of an hour, across its end, over a bus that delays,
// repeats, reorders and loses messages. Both hours are used up, by no more than what was on its way; what a region
// that is ahead has used of the next hour does not count in this one. After that no restart, loss of data or cut admits
// anything more in the same hour, where no message is lost meanwhile.
func TestWorldCalendar(t *testing.T) {
	t.Parallel()
	const units = 60
	policies := fmt.Sprintf("policies:\n  - name: standard\n    limits: [{name: hourly, units: %d, calendar: hour, scope: global}]\ntenants:\n  default: {policy: standard}\n", units)
	for seed, loss := range []float64{0, 0.2} {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			t.Parallel()
			onRedises(t, policies, func(w *world) {
				dice := rand.New(rand.NewPCG(uint64(seed), 5))
				for _, s := range w.regions { // the first is 20 s before the end of an hour, the last 3.4 s nearer
					s.aheadUS.Add(hourUS - 20_000_000 - 10_000_000)
				}
				w.startAll()
				w.bus.SetAll(meshtest.Link{Latency: oneWay, Jitter: oneWay / 2, Loss: loss, Repeat: 0.1}, "eu-west", "us-east", "ap-south")
				h := &calendarTruth{w: w, used: map[int64][]int64{}}
				first := w.regions[0].nowUS() / hourUS
				for w.regions[0].nowUS() < (first+1)*hourUS+20_000_000 {
					h.ask(dice.IntN(3), 1)
					time.Sleep(150 * time.Millisecond)
				}
				// A unit is on its way for a tick and the way, and where that message is lost until the next of the partition or the repair of
				// the gap, about a second: at one unit in 150 ms.
				onItsWay := int64(3)
				if loss > 0 {
					onItsWay = 12
				}
				for _, hour := range []int64{first, first + 1} {
					if got := h.all(hour); got < units || got > units+onItsWay {
						t.Errorf("in hour %+d the regions admitted %d (%v), want %d and at most %d more", hour-first, got, h.used[hour], units, onItsWay)
					}
				}
				t.Logf("of %d units %d and %d were used", units, h.all(first), h.all(first+1))
				spent := h.all(first + 1)
				deny := func(what string) {
					t.Helper()
					for i, s := range w.regions {
						if d := h.ask(i, 1); d.Allowed {
							t.Errorf("%s: %s admits a unit more of %d, which are used", what, s.name, units)
						}
						if _, terms := s.one().explained("acme"); len(terms.Peers) != 2 {
							t.Errorf("%s: %s explains %+v", what, s.name, terms)
						}
					}
				}
				deny("at rest")
				usage, err := w.regions[1].one().limiter.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Usage: true})
				sum := int64(0)
				if err == nil {
					for _, r := range usage.Usage[0] {
						sum += r.Used
					}
				}
				if err != nil || sum != spent {
					t.Errorf("by region %v is used, %d were admitted (%v)", usage.Usage, spent, err)
				}
				// Nothing is lost from here on: a region that starts, or hears nothing for a second, goes by its share until it knows what
				// all have used, and may have used less.
				w.bus.SetAll(meshtest.Link{Latency: oneWay, Jitter: oneWay / 2, Repeat: 0.1}, "eu-west", "us-east", "ap-south")
				w.regions[2].one().kill()
				w.regions[2].start("again").awaitReady()
				deny("after a restart")
				w.regions[1].redis.FlushAll()
				deny("after a Redis forgot")
				w.isolate(0, true)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				deny("in a cut")
				if got := h.all(first + 1); got != spent {
					t.Errorf("%d units more than %d were admitted", got-spent, spent)
				}
			})
		})
	}
}

// TestWorldCalendarLends has one of three regions asked alone, under a strict bound of an hour, over messages that are lost, late and
// repeated: it uses what the others do not, and they have nothing left then. The next hour begins with the shares of all.
func TestWorldCalendarLends(t *testing.T) {
	t.Parallel()
	const units = 60
	policies := fmt.Sprintf("policies:\n  - name: standard\n    on_store_loss: closed\n    limits: [{name: hourly, units: %d, calendar: hour, "+
		"scope: global, max_overshoot: 0%%}]\ntenants: {default: {policy: standard}}\n", units)
	onRedises(t, policies, func(w *world) {
		for _, s := range w.regions {
			s.aheadUS.Add(hourUS - 120_000_000)
		}
		w.startAll()
		w.bus.SetAll(meshtest.Link{Latency: oneWay, Jitter: oneWay / 2, Loss: 0.1, Repeat: 0.1}, "eu-west", "us-east", "ap-south")
		h := &calendarTruth{w: w, used: map[int64][]int64{}, lent: true}
		first := w.regions[0].nowUS() / hourUS
		for range 500 {
			h.ask(0, 1)
			time.Sleep(150 * time.Millisecond)
		}
		if got := h.all(first); got > units || got < units-1 {
			t.Errorf("a region that is asked alone admitted %d of %d", got, units)
		}
		for range 5 {
			h.ask(1, 1)
			h.ask(2, 1)
			time.Sleep(time.Second)
		}
		if got := h.all(first); got > units {
			t.Errorf("all regions admitted %d of %d: %v", got, units, h.used)
		}
		for w.regions[0].nowUS() < (first+1)*hourUS+20_000_000 {
			h.ask(1, 1)
			h.ask(2, 1)
			time.Sleep(150 * time.Millisecond)
		}
		if got := h.all(first + 1); got > units || got < units*9/10 { // the first keeps some of its share for a while
			t.Errorf("in the next hour two regions admitted %d of %d", got, units)
		}
	})
}
