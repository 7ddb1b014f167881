package loans

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota/loan"
)

// sums are what this process knows of the loans of a limit, over the partitions that it tends.
type sums struct {
	Lent, Borrowed int64
	Closed         time.Duration // until the limit opens again
}

// metrics are the tender's instruments; docs/observe.md describes them.
type metrics struct {
	messages, voided metric.Int64Counter

	mu   sync.Mutex
	sums map[[2]string]sums // by policy and limit
}

// The kinds of message.
const (
	kindWant   = "want"
	kindGrant  = "grant"
	kindReturn = "return"
)

// The reasons for which loans held are void.
const (
	voidLost  = "lost"  // the store lost data, or was rolled back
	voidClock = "clock" // the clock stepped, or nobody had watched it
)

func newMetrics(m metric.Meter) (*metrics, error) {
	x := &metrics{sums: map[[2]string]sums{}}
	var errs [6]error
	x.messages, errs[0] = m.Int64Counter("regiond.loans.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Wants, grants and returns of loans that were published, by kind, each for one partition."))
	x.voided, errs[1] = m.Int64Counter("regiond.loans.voided", metric.WithUnit("{loan}"),
		metric.WithDescription("Loans held that were given up before their end, by reason."))
	lent, err := m.Int64ObservableGauge("regiond.loans.lent_units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units of a bounded limit that this region has lent to others, over the partitions that this process tends."))
	errs[2] = err
	borrowed, err := m.Int64ObservableGauge("regiond.loans.borrowed_units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units of a bounded limit that this region has borrowed from others, over the partitions that this process tends."))
	errs[3] = err
	closed, err := m.Float64ObservableGauge("regiond.bound.closed", metric.WithUnit("s"),
		metric.WithDescription("How long a bounded limit admits nothing yet, because its region's store has lost data; 0: it is open."))
	errs[4] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	_, errs[5] = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		for name, s := range x.sums {
			of := metric.WithAttributes(attribute.String("policy", name[0]), attribute.String("limit", name[1]))
			o.ObserveInt64(lent, s.Lent, of)
			o.ObserveInt64(borrowed, s.Borrowed, of)
			o.ObserveFloat64(closed, s.Closed.Seconds(), of)
		}
		return nil
	}, lent, borrowed, closed)
	for _, kind := range []string{kindWant, kindGrant, kindReturn} { // there from the start, for rate()
		x.sent(kind, 0)
	}
	for _, reason := range []string{voidLost, voidClock} {
		x.voids(reason, 0)
	}
	return x, errs[5]
}

func (m *metrics) sent(kind string, n int) {
	m.messages.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("kind", kind)))
}

func (m *metrics) voids(reason string, n int) {
	m.voided.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("reason", reason)))
}

// observeEvery is how often the sums are taken.
const observeEvery = time.Second

// observe takes the sums over all that is tended.
func (t *Tender) observe(now time.Duration) {
	if t.metrics == nil || now-t.observed < observeEvery {
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
		s.Lent += left(p.book.Lent)
		s.Borrowed += left(p.book.Held)
		if p.book.Store.Lost > 0 {
			s.Closed = max(s.Closed, time.Duration(p.book.Store.Lost+p.book.Terms.Keep()-p.at)*time.Microsecond)
		}
		all[name] = s
	}
	t.metrics.mu.Lock()
	t.metrics.sums = all
	t.metrics.mu.Unlock()
}

func left(loans []loan.Loan) (n int64) {
	for i := range loans {
		n += loans[i].Left()
	}
	return n
}
