package daemon

import (
	"context"
	"regexp"
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

// A region that is left alone with a limit has the others' shares only when all that they used has left the window: after a
// reload, and as a process that knows of no other region, of which a restart forgets nothing.
func TestTheLastRegionWaitsForTheOthersShares(t *testing.T) {
	t.Parallel()
	const units, window = 30, 20 * time.Second
	for _, reloads := range []bool{true, false} {
		onRedises(t, worldOf(units, window, ", max_overshoot: 0%"), func(w *world) {
			w.startAll()
			used, eu := 0, w.regions[0]
			use := func(p *node) {
				for p.ask(1).Allowed {
					used++
				}
			}
			for _, r := range w.regions {
				use(r.one())
			}
			w.regions[1].one().stop()
			w.regions[2].one().stop()
			time.Sleep(window / 4) // nobody is there who has to confirm
			left := func() {
				t.Helper()
				for began := time.Now(); time.Since(began) < window/4; time.Sleep(time.Second) {
					use(eu.one())
				}
				if used != units {
					t.Errorf("reloaded %v: in one window %d units are admitted, want %d", reloads, used, units)
				}
			}
			file := regexp.MustCompile(`(?m)^  - \{name: (ap-south|us-east).*\n`).ReplaceAllString(w.text, "")
			if reloads {
				w.text = "revision: 1\n" + file
				eu.one().reload()
				left()
			} else {
				eu.one().stop()
				_, policies, _ := strings.Cut(w.text, "policies:")
				w.text = `regions: [{name: eu-west, http: "127.0.0.1:0", admin: "127.0.0.1:0", redis: ` + eu.redisField() + "}]\npolicies:" + policies
				if err := eu.attempt("one"); err == nil || !strings.Contains(err.Error(), "set revision: 1") {
					t.Errorf("with other regions than are in force under one revision it starts: %v", err)
				}
				w.text = "revision: 1\n" + w.text
				eu.start("one")
				left()
				eu.one().stop()
				eu.start("two")
				left()
			}
			time.Sleep(time.Duration(loan.TermsOf(window.Microseconds()).Keep()) * time.Microsecond)
			used = 0
			if use(eu.one()); used != units {
				t.Errorf("reloaded %v: later it admits %d of %d units", reloads, used, units)
			}
		})
	}
}
