package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// reload has the process go by the world's present file.
func (p *node) reload() {
	p.w.t.Helper()
	if err := p.tryReload(); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *node) tryReload() error {
	top, _, err := region.Parse("topology.yaml", []byte(p.w.text))
	if err != nil {
		return err
	}
	return p.apply(top)
}

// TestWorldReloadReachesOneFirst: while only some regions count for another window, and when
// all do, each knows what the others use and have used before.
func TestWorldReloadReachesOneFirst(t *testing.T) {
	t.Parallel()
	for _, change := range []struct{ name, old, becomes string }{
		{"a longer window", "per: 10m", "per: 20m"},
		{"a shorter window", "per: 10m", "per: 9m"},
	} {
		onRedises(t, worldOf(1000, 10*time.Minute, ""), func(w *world) {
			w.startAll()
			eu, us := w.regions[0], w.regions[1]
			eu.one().ask(100)
			us.one().ask(30)
			knows := func(who, whose *nodeRegion, units int64) {
				w.t.Helper()
				w.await(change.name+": "+who.name+" knows what "+whose.name+" has used", time.Second, func() bool {
					return who.one().estimate(whose) == units
				})
			}
			knows(us, eu, 100)
			knows(eu, us, 30)
			if w.text = strings.Replace(w.text, change.old, change.becomes, 1); !strings.Contains(w.text, change.becomes) {
				w.t.Fatalf("%q is not in the file:\n%s", change.old, w.text)
			}
			us.one().reload()
			knows(us, eu, 100)
			eu.one().ask(5)
			us.one().ask(7)
			knows(us, eu, 105)
			knows(eu, us, 37)
			for _, s := range []*nodeRegion{eu, w.regions[2]} {
				s.one().reload()
			}
			knows(us, eu, 105)
			knows(eu, us, 37)
			knows(w.regions[2], eu, 105)
			if mode := us.one().mode(); mode != quota.ModeGlobal {
				t.Errorf("%s: mode %v, want global", change.name, mode)
			}
		})
	}
}
