package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/state"
)

// One region alone has a bound too: where data are lost nothing of a limit is admitted until all that was used has left the
// window, or an operator reopens the region.
func TestALoneRegionHasABound(t *testing.T) {
	t.Parallel()
	const units, window = 30, 20 * time.Second
	for _, row := range []struct {
		name   string
		redis  bool
		change worldChange
		starts bool // with its share
		says   string
	}{
		{"redis", true, func(*Options) {}, true, "This region lost its data at "},
		{"in memory", false, func(*Options) {}, false, "This region keeps usage in memory and started at "},
		{"a demo", false, func(o *Options) { o.DemoState = func() any { return nil } }, true, ""},
	} {
		worldStores(t, worldOf(units, window, ", max_overshoot: 0%"), row.redis, func(w *world) {
			eu := w.regions[0]
			_, policies, _ := strings.Cut(w.text, "policies:")
			w.text = `regions: [{name: eu-west, http: "127.0.0.1:0", admin: "127.0.0.1:0", redis: ` + eu.redisField() + "}]\npolicies:" + policies
			p := eu.start("one", row.change)
			time.Sleep(2 * state.TurnEvery)
			used := func() (n int) {
				for range units + 1 {
					if p.ask(1).Allowed {
						n++
					}
				}
				return n
			}
			open := func(when string, want bool) {
				t.Helper()
				n := used()
				if n != map[bool]int{true: units}[want] {
					t.Errorf("%s, %s: %d of %d units are admitted", row.name, when, n, units)
				}
			}
			burnt := func(when string) {
				t.Helper()
				open(when, false)
				d, _ := p.explained("acme")
				all := p.seen().Bounds
				if d.Reason != quota.ReasonBoundBurnt || len(all) != 1 || !strings.HasPrefix(all[0].Text, row.says) || !strings.HasSuffix(all[0].Text, " and it admits nothing.") {
					t.Errorf("%s, %s: %v, and it says %+v", row.name, when, d.Reason, all)
				}
				if text := strings.Join(d.Explanation.Sentences, " "); !strings.Contains(text, "Until then it admits nothing.") {
					t.Errorf("%s, %s: explained by %s", row.name, when, text)
				}
			}
			lose := func() {
				eu.redis.FlushAll()
				time.Sleep(2 * state.TurnEvery)
				burnt("after a loss")
			}
			switch {
			case row.starts:
				open("at first", true)
				if time.Sleep(window); row.redis {
					lose()
				}
			default:
				burnt("at first")
			}
			if row.says == "" {
				return
			}
			if refused, err := p.reopen(context.Background(), "eu-west"); refused != "" || err != nil {
				t.Errorf("%s: reopened: %s, %v", row.name, refused, err)
			}
			time.Sleep(state.TurnEvery)
			open("reopened", true)
			if refused, _ := p.reopen(context.Background(), "eu-west"); refused != state.ErrOpen.Error() {
				t.Errorf("%s: reopened once more: %q", row.name, refused)
			}
			if !row.redis {
				return
			}
			lose()
			time.Sleep(time.Duration(loan.TermsOf(window.Microseconds()).Keep()) * time.Microsecond)
			open("when all has left the window", true)
		})
	}
}
