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
	top, _, err := region.Parse("topology.yaml", []byte(p.w.text))
	if err != nil {
		p.w.t.Fatal(err)
	}
	if err := p.apply(top); err != nil {
		p.w.t.Fatal(err)
	}
}

// TestWorldReloadReachesOneFirst: while only some regions count in other buckets, and when
// all do, each knows what the others use and have used before.
func TestWorldReloadReachesOneFirst(t *testing.T) {
	for _, change := range []struct{ name, old, becomes string }{
		{"finer buckets", "scope: global", "scope: global, global_buckets: 11"},
		{"a longer window", "per: 10m", "per: 20m"},
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

// TestWorldOtherKey: a region whose ids are made with another key is heard and not
// counted on, and whoever looks is told which process it is and what to do.
func TestWorldOtherKey(t *testing.T) {
	inWorld(t, worldOf(900, time.Hour, ""), func(w *world) {
		text := w.text
		for i, s := range w.regions {
			if i == 2 {
				w.text = "cluster: other\n" + text
			}
			s.start("one")
		}
		time.Sleep(5 * time.Second)
		for i, s := range w.regions {
			p := s.one()
			if p.mode() != quota.ModePartitioned {
				t.Errorf("%s is in mode %v, want partitioned", s.name, p.mode())
			}
			other := w.regions[2]
			if i == 2 {
				other = w.regions[0]
			}
			const says = "process one uses another gossip key"
			for _, r := range p.Daemon.regions().(report).Regions {
				if r.Region == other.name && !strings.Contains(r.Text, says) {
					t.Errorf("of %s, %s reports %q, want %q", other.name, s.name, r.Text, says)
				}
			}
			if !strings.Contains(p.log.String(), says) {
				t.Errorf("the log of %s does not say %q:\n%s", s.name, says, p.log)
			}
		}
		for w.regions[0].one().ask(1).Allowed {
		}
		if d, _ := w.regions[2].one().explained("acme"); d.Limits[0].Remaining != 300 {
			t.Errorf("the region with a key of its own may use %d, want its part of 300", d.Limits[0].Remaining)
		}
		if d, _ := w.regions[0].one().explained("acme"); d.Limits[0].Ceiling != 600 {
			t.Errorf("the others may use %d together, want their parts of 600", d.Limits[0].Ceiling)
		}
	})
}
