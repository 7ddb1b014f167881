package daemon

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// strictly is what was admitted under a limit with max_overshoot, in true time.
type strictly struct {
	w        *world
	window   time.Duration
	log      []strictEntry
	sum      int64
	worst    int64
	asked    int
	admitted int64
}

type strictEntry struct{ us, units int64 }

func (s *strictly) ask(p *node, cost int64) quota.Decision {
	d := p.ask(cost)
	s.asked++
	if !d.Allowed {
		return d
	}
	now := s.w.now()
	s.log, s.sum, s.admitted = append(s.log, strictEntry{now, cost}), s.sum+cost, s.admitted+cost
	for s.log[0].us <= now-s.window.Microseconds() {
		s.sum -= s.log[0].units
		s.log = s.log[1:]
	}
	s.worst = max(s.worst, s.sum)
	return d
}

// fill asks every process of the regions for so many checks a second each.
func (s *strictly) fill(lasts time.Duration, dice *rand.Rand, rates ...float64) {
	for until := s.w.now() + lasts.Microseconds(); s.w.now() < until; {
		time.Sleep(10 * time.Millisecond)
		for i, r := range s.w.regions {
			for n := rates[i] / 100; n > 0 && dice.Float64() < n && len(r.processes) > 0; n-- {
				s.ask(r.processes[dice.IntN(len(r.processes))], 1)
			}
		}
	}
}

// TestLongWorldBound: no window of three regions holds more than the bound, whatever is cut,
// restarted or lost; and one region alone gets nearly all of it.
func TestLongWorldBound(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		overshoot string
		most      int64
		redises   bool
		faults    int
	}{{"0%", 60, false, 8}, {"10%", 66, false, 8}, {"0%", 60, true, 3}} {
		t.Run(fmt.Sprintf("%s on Redis %v", row.overshoot, row.redises), func(t *testing.T) {
			worldStores(t, worldOf(60, 4*time.Second, `, max_overshoot: `+row.overshoot), row.redises, func(w *world) {
				s := &strictly{w: w, window: 4 * time.Second}
				dice := rand.New(rand.NewPCG(1, 2))
				w.startAll()
				if d, terms := w.regions[0].one().explained("acme"); !row.redises && (d.Limits[0].Ceiling != 0 || terms.Bound.Binds != "closed" || terms.Bound.ClosedMS <= 0) {
					t.Errorf("memory that has just begun admits %d: %+v", d.Limits[0].Ceiling, terms.Bound)
				}
				time.Sleep(7 * time.Second) // what the stores held before, if anything, is over
				s.fill(12*time.Second, dice, 40, 0, 0)
				if got := s.sum; got < 55 {
					t.Errorf("one region alone holds %d of %d", got, row.most)
				}
				_, terms := w.regions[0].one().explained("acme")
				if b := terms.Bound; b == nil || b.Units != row.most || b.Share < 20 || b.Share > 22 || b.Borrowed < 30 || b.Lent != 0 || b.Binds == "closed" {
					t.Errorf("it explains %q, bound %+v", terms.Formula, b)
				}
				for i := range row.faults {
					w.cut(i%3, (i+1)%3, true)
					s.fill(4*time.Second, dice, dice.Float64()*40, dice.Float64()*40, dice.Float64()*40)
					w.cut(i%3, (i+1)%3, false)
					r := w.regions[dice.IntN(3)]
					switch i % 3 {
					case 0:
						r.one().kill()
						r.start("again")
					case 1:
						r.one().stop()
						r.start("anew")
					default:
						if row.redises {
							r.redis.FlushAll()
						}
					}
					s.fill(6*time.Second, dice, dice.Float64()*40, dice.Float64()*40, dice.Float64()*40)
				}
				t.Logf("%d asked, %d admitted, %d in the worst window of %d", s.asked, s.admitted, s.worst, row.most)
				if s.worst > row.most {
					t.Errorf("%d in the worst window of %d", s.worst, row.most)
				}
			})
		})
	}
}
