package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// worldLate is how long after an admission some peer may still not know of it: a
// tick, the way, and what the promise leaves for work.
const worldLate = 250 * time.Millisecond

// truth is what was admitted in a world, and how far it went over the limit. It
// believes nothing that the program says but yes and no.
type truth struct {
	w      *world
	judge  *oracle.Global
	limit  int64
	window time.Duration
	asked  int
	denied int

	over        int64 // the worst over all windows
	beyond      int64 // of it, what the buckets do not explain
	unexplained int64 // what not even news as old as worldLate explain
	// blurred is by region what buckets had forgotten at its newest admission, stale by
	// region and peer the most that they remembered too long at any since it was reset.
	blurred []int64
	stale   [][]int64
	worstAt time.Duration
}

// newTruth is for a limit of so many units in a window, told in buckets.
func newTruth(w *world, units int64, window, bucket time.Duration) *truth {
	return &truth{
		w: w, limit: units, window: window, blurred: make([]int64, len(w.sites)), stale: tables(len(w.sites)), over: -units, beyond: -units, unexplained: -units,
		judge: oracle.NewGlobal(len(w.sites), window.Microseconds(), bucket.Microseconds()),
	}
}

// ask sends one check to a process and writes down what came of it.
func (h *truth) ask(p *citizen, cost int64) quota.Decision {
	h.w.t.Helper()
	d := p.ask(cost)
	h.asked++
	if !d.Allowed {
		h.denied++
		return d
	}
	s := oracle.Spend{Region: p.site.place, US: h.w.now(), StoreUS: p.site.nowUS(), Units: cost}
	j := h.judge.Admit(s, worldLate.Microseconds())
	bias := int64(0)
	for peer, b := range j.Bias {
		bias += b
		h.stale[s.Region][peer] = max(h.stale[s.Region][peer], -b)
	}
	h.blurred[s.Region] = j.Blurred()
	if over := j.Used - h.limit; over > h.over {
		h.over, h.worstAt = over, time.Since(h.w.began)
	}
	h.beyond = max(h.beyond, j.Used-h.limit-max(0, bias))
	h.unexplained = max(h.unexplained, j.Used-h.limit-bias-j.Late)
	return d
}

func tables(n int) [][]int64 {
	rows := make([][]int64, n)
	for i := range rows {
		rows[i] = make([]int64, n)
	}
	return rows
}

func (h *truth) windowUS() int64 { return h.window.Microseconds() }

// all is what all regions together used in the window that ends at a moment.
func (h *truth) all(us int64) int64 { return h.judge.Between(us-h.windowUS(), us) }

// share is units as percent of the limit.
func (h *truth) share(units int64) float64 { return 100 * float64(units) / float64(h.limit) }

// demand is how much is asked for: units a second in each region, some time after
// it began.
type demand func(since time.Duration) []float64

// evenly is one demand for ever.
func evenly(rates ...float64) demand {
	return func(time.Duration) []float64 { return rates }
}

// moving has the first of the rates at another region every so often.
func moving(every time.Duration, rates ...float64) demand {
	return func(since time.Duration) []float64 {
		now := slices.Clone(rates)
		hot := int(since/every) % len(rates)
		now[0], now[hot] = now[hot], now[0]
		return now
	}
}

// drive sends random traffic for so long, each check of one cost, to each region's
// first process.
func (h *truth) drive(seed uint64, lasts time.Duration, cost int64, d demand, each func(p *citizen, d quota.Decision)) {
	h.w.t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	began := time.Now()
	most := sum(d(0)) / float64(cost) // checks a second
	for {
		time.Sleep(time.Duration(dice.ExpFloat64() / most * float64(time.Second)))
		since := time.Since(began)
		if since > lasts {
			return
		}
		rates := d(since)
		at := dice.Float64() * sum(rates)
		i := slices.IndexFunc(rates, func(r float64) bool { at -= r; return at < 0 })
		if i < 0 || len(h.w.sites[i].processes) == 0 {
			continue
		}
		p := h.w.sites[i].one()
		if decision := h.ask(p, cost); each != nil {
			each(p, decision)
		}
	}
}

func sum(rates []float64) float64 {
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total
}

// report prints what became of it.
func (h *truth) report(t *testing.T, name string) {
	t.Helper()
	t.Logf("%-34s L %5d: %6d checks, %5d admitted; worst window %+.1f %% of L (at %v), beyond the buckets' bias %+.1f %%, past what news of 250 ms ago allows %+d units",
		name, h.limit, h.asked, h.asked-h.denied, h.share(h.over), h.worstAt.Round(time.Second), h.share(h.beyond), h.unexplained)
}
