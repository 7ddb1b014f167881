package daemon

import (
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// worldLate is how long after an admission some peer may still not know of it: a
// tick, the way, and what the promise leaves for work.
const worldLate = 250 * time.Millisecond

// fadesWithin is how far an estimate may let windows exceed the limit beyond what is in transit, in percent.
const fadesWithin = 3.0

// truth is what was admitted in a world, and how far that exceeded the limit. Of what
// the program reports it uses only whether a request was allowed.
type truth struct {
	w      *world
	judge  *oracle.Global
	limit  int64
	window time.Duration

	over   int64 // the worst over all windows
	beyond int64 // of it, what others did not admit too recently to be known
}

// newTruth is for a limit of so many units in a window.
func newTruth(w *world, units int64, window time.Duration) *truth {
	return &truth{
		w: w, limit: units, window: window, over: -units, beyond: -units,
		judge: oracle.NewGlobal(window.Microseconds()),
	}
}

// ask sends one check to a process and records the answer.
func (h *truth) ask(p *node, cost int64) quota.Decision {
	h.w.t.Helper()
	d := p.ask(cost)
	if !d.Allowed {
		return d
	}
	j := h.judge.Admit(oracle.Spend{Region: p.home.place, US: h.w.now(), Units: cost}, worldLate.Microseconds())
	h.over = max(h.over, j.Used-h.limit)
	h.beyond = max(h.beyond, j.Used-h.limit-j.Late)
	return d
}

// all is what all regions together used in the window that ends at a moment.
func (h *truth) all(us int64) int64 { return h.judge.Between(us-h.window.Microseconds(), us) }

// share is units as percent of the limit.
func (h *truth) share(units int64) float64 { return 100 * float64(units) / float64(h.limit) }
