package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldExplained: what is used beyond a ceiling, because others used what was free, is told
// as it is, in the sentences and in the denial log.
func TestWorldExplained(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(100, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us := w.regions[0], w.regions[1]
		for _, one := range []struct {
			region *nodeRegion
			cost   int64
		}{{eu, 90}, {us, 50}} {
			if _, err := one.region.one().limiter.Report(t.Context(), quota.Request{Tenant: "acme", Cost: one.cost}); err != nil {
				w.t.Fatal(err)
			}
		}
		w.await("eu knows what us used", time.Second, func() bool { return eu.one().estimate(us) == 50 })
		d, _ := eu.one().explained("acme")
		if want := "Region eu-west used 90 units of it, and may hold 50 of it now."; !slices.Contains(d.Explanation.Sentences, want) {
			w.t.Errorf("it says %q, not %q", d.Explanation.Sentences, want)
		}
		if s := d.DeniedBy(); s == nil || s.Used() != 90 || s.Ceiling != 50 {
			w.t.Errorf("denied by %+v", s)
		}
	})
}

// TestWorldNeverFits: a region that is cut off names no time for what costs more than its share.
func TestWorldNeverFits(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(100, 10*time.Second, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		w.cut(0, 1, true)
		w.cut(0, 2, true)
		w.await("eu keeps to its share", 5*time.Second, func() bool { d, _ := eu.one().explained("acme"); return d.Limits[0].Ceiling < 50 })
		request := quota.Request{Tenant: "acme", Cost: 50, Explain: true}
		d, err := eu.one().limiter.Peek(t.Context(), request)
		if err != nil {
			w.t.Fatal(err)
		}
		lines := d.Explanation.Sentences
		if d.Allowed || strings.Contains(lines[0], "it fits in") || !slices.Contains(lines, "The request costs more than that, and when it may hold enough is not known.") {
			w.t.Errorf("it says %q", lines)
		}
		time.Sleep(d.RetryAfter())
		if d, err := eu.one().limiter.Peek(t.Context(), request); err != nil || d.Allowed {
			w.t.Fatalf("it fits: %+v %v", d, err)
		}
	})
}
