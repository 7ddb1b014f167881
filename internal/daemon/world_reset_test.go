package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// resetAll deletes acme's usage in all regions and returns what each did.
func (p *node) resetAll() string {
	p.w.t.Helper()
	regions, err := p.replication.resets.Everywhere(p.w.t.Context(), "acme")
	if err != nil {
		p.w.t.Fatal(err)
	}
	var all []string
	for _, r := range regions {
		word := fmt.Sprint(r.Region, " ", r.Result)
		if r.BurntMS != 0 {
			word += " burnt"
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// TestWorldResetEverywhere: a tenant that is denied is let in again in all regions that can be reached, and the answer names the one
// that cannot. Neither that region, when it is back, nor a restart brings the old usage back; what is used after the reset counts.
func TestWorldResetEverywhere(t *testing.T) {
	t.Parallel()
	const limit = 900
	onRedises(t, worldOf(limit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		eu.start("two")
		w.await("the sibling sees every other", 10*time.Second, w.global)
		for _, s := range w.regions {
			s.one().ask(limit / 3)
		}
		time.Sleep(3 * time.Second)
		if d := us.one().ask(1); d.Allowed {
			t.Fatal("more than the limit is admitted")
		}
		w.isolate(2, true)
		time.Sleep(2 * time.Second)

		if got := eu.one().resetAll(); got != "eu-west cleared, us-east cleared, ap-south unreached" {
			t.Fatal(got)
		}
		time.Sleep(time.Second)
		counted := func(when string, used map[*nodeRegion]int64) {
			t.Helper()
			for _, p := range w.alive {
				for _, s := range w.regions {
					if p.home == ap || p.home == s {
						continue
					}
					if n := p.estimate(s); n != used[s] {
						t.Errorf("%s: %s/%s counts %d units of %s, want %d", when, p.home.name, p.options.Instance, n, s.name, used[s])
					}
				}
			}
		}
		counted("after the reset", nil)
		eu.one().ask(7)
		us.one().ask(11)
		time.Sleep(time.Second)
		used := map[*nodeRegion]int64{eu: 7, us: 11}
		counted("after later usage", used)
		w.isolate(2, false)
		w.await("all see all", time.Minute, w.global)
		time.Sleep(10 * time.Second)
		counted("after the heal", used)
		us.one().kill()
		us.start("one").awaitReady()
		w.await("the restarted process sees every other", time.Minute, w.global)
		counted("after a restart", used)

		if got := us.one().resetAll(); got != "eu-west cleared, us-east cleared, ap-south cleared" {
			t.Fatal(got)
		}
		ap.one().ask(5)
		time.Sleep(time.Second)
		counted("after the second reset", map[*nodeRegion]int64{ap: 5})
		for _, p := range w.alive {
			if n := p.sum("regiond_sync_lost_units_total"); n != 0 {
				t.Errorf("%s/%s takes %v deleted units for lost", p.home.name, p.options.Instance, n)
			}
		}
	})
}
