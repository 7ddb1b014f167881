package loans

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire"
)

// sums are what this process knows of the loans of a limit, over the partitions that it tends.
type sums struct {
	Lent, Borrowed int64
}

// metrics are the tender's instruments; docs/observe.md describes them.
type metrics struct {
	messages, voided *instruments.Counter

	mu   sync.Mutex
	sums map[[2]string]sums // by policy and limit
}

// The reasons for which loans held are void.
const (
	voidLost  = "lost"  // the store lost data or was rolled back, its clock stepped forward, or it was reopened
	voidClock = "clock" // any other new epoch
)

func newMetrics(m metric.Meter) (*metrics, error) {
	i, x := instruments.On(m), &metrics{sums: map[[2]string]sums{}}
	x.messages = i.CounterBy("regiond.loans.messages", "{message}",
		"Wants, grants and returns of loans that were published, by kind, each for one partition.", "kind", "want", "grant", "return")
	x.voided = i.CounterBy("regiond.loans.voided", "{loan}", "Loans held that were given up before their end, by reason.",
		"reason", voidLost, voidClock)
	gauge := func(name, unit, help string, value func(s sums) float64) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) {
			x.mu.Lock()
			defer x.mu.Unlock()
			for name, s := range x.sums {
				observe(value(s), "policy", name[0], "limit", name[1])
			}
		})
	}
	gauge("regiond.loans.lent_units", "{unit}", "Units of a bounded limit that this region has lent to others, over the partitions that this process tends.",
		func(s sums) float64 { return float64(s.Lent) })
	gauge("regiond.loans.borrowed_units", "{unit}", "Units of a bounded limit that this region has borrowed from others, over the partitions that this process tends.",
		func(s sums) float64 { return float64(s.Borrowed) })
	return x, i.Err()
}

func (m *metrics) sent(l *wire.Loans) {
	for kind, n := range map[string]int{"want": len(l.Wants), "grant": len(l.Grants), "return": len(l.Returns)} {
		m.messages.Add(int64(n), "kind", kind)
	}
}

// observeEvery is how often the sums are taken.
const observeEvery = time.Second

// observe takes the sums over all that is tended.
func (t *Tender) observe(now time.Duration) {
	if now-t.observed < observeEvery {
		return
	}
	t.observed = now
	all := map[[2]string]sums{}
	for name := range t.metrics.sums { // a line ends at 0
		all[name] = sums{}
	}
	for _, p := range t.tended {
		name := [2]string{p.key.Policy, p.key.Limit}
		s := all[name]
		s.Lent += loan.Left(p.book.Lent, p.book.Period.Number)
		s.Borrowed += p.book.Borrowed(p.at, p.book.Period.Number)
		all[name] = s
	}
	t.metrics.mu.Lock()
	t.metrics.sums = all
	t.metrics.mu.Unlock()
}

// Lent is how many units of a limit this region has lent and borrowed, over the partitions that
// this process tends. It is at most a second old.
func (t *Tender) Lent(policy, limit string) (lent, borrowed int64) {
	t.metrics.mu.Lock()
	defer t.metrics.mu.Unlock()
	s := t.metrics.sums[[2]string{policy, limit}]
	return s.Lent, s.Borrowed
}
