package daemon

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
)

// closedLabels are those of regiond.bound.closed.time.
type closedLabels struct {
	policy, limit string
	reason        quota.Reason
}

func (l closedLabels) set() attribute.Set {
	return attribute.NewSet(attribute.String("policy", l.policy), attribute.String("limit", l.limit), attribute.String("reason", l.reason.String()))
}

// boundWatch notes once a second which bounds leave nothing of the region's own share.
type boundWatch struct {
	d      *Daemon
	total  *instruments.CounterOf[closedLabels]
	last   time.Duration
	closed []string // the limits at the last look
}

func newBoundWatch(d *Daemon) (*boundWatch, error) {
	i := instruments.On(d.telemetry.Meter("regiond"))
	w := &boundWatch{d: d, total: instruments.Of(i, "regiond.bound.closed.time", "s",
		"For how long nothing of the region's own share was left under the bound of a limit, whatever was used, by reason.", closedLabels.set)}
	i.Gauge("regiond.bound.closed", "s",
		"How long nothing of the region's own share is left yet under the bound of a limit; 0: it is there, or the end is not known.", func(observe instruments.Observe) {
			closed := d.closedBounds()
			for p, l := range bounded(d.config.Load().topology) {
				at := slices.IndexFunc(closed, func(b status.Bound) bool { return b.Policy == p.Name && b.Name == l.Name })
				left := 0.0
				if at >= 0 {
					left = float64(closed[at].LeftMS) / 1000
				}
				observe(left, "policy", p.Name, "limit", l.Name)
			}
		})
	return w, i.Err()
}

// run looks until ctx ends.
func (w *boundWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look(w.d.clock.Now(), w.d.closedBounds())
		}
	}
}

func (w *boundWatch) look(now time.Duration, closed []status.Bound) {
	var names, begun []string
	for i := range closed {
		b := &closed[i]
		w.total.Add(closedLabels{b.Policy, b.Name, b.Reason}, int64((now-w.last+time.Second/2)/time.Second))
		name := b.Policy + "." + b.Name
		if names = append(names, name); !slices.Contains(w.closed, name) {
			begun = append(begun, name)
		}
	}
	if len(begun) > 0 { // by one loss, or at one start
		b := &closed[slices.Index(names, begun[0])]
		attrs := []slog.Attr{slog.String("limits", strings.Join(begun, " ")), slog.String("reason", b.Reason.String())}
		if b.Until != nil {
			attrs = append(attrs, slog.Time("until", *b.Until))
		}
		w.d.log.LogAttrs(context.Background(), slog.LevelWarn, b.Text, attrs...)
	}
	if over := slices.DeleteFunc(w.closed, func(name string) bool { return slices.Contains(names, name) }); len(over) > 0 {
		w.d.log.Info("the region's own share is there again", "limits", strings.Join(over, " "))
	}
	w.closed, w.last = names, now
}

// bounded yields each limit with a bound, and its policy.
func bounded(top *region.Topology) iter.Seq2[*quota.Policy, *quota.Limit] {
	return func(yield func(*quota.Policy, *quota.Limit) bool) {
		for _, p := range top.EveryPolicy() {
			for i := range p.Limits {
				if l := &p.Limits[i]; l.MaxOvershoot > 0 && !yield(p, l) {
					return
				}
			}
		}
	}
}

func hasBounds(top *region.Topology) bool {
	for range bounded(top) {
		return true
	}
	return false
}

// closedBounds are the limits whose bounds leave nothing of the region's own share now.
func (d *Daemon) closedBounds() (all []status.Bound) {
	now := d.timeUS()
	for p, l := range bounded(d.config.Load().topology) {
		b, regions, ok := d.ceilings.Bound(p.Name, l)
		why, left := b.Closed(now)
		if !ok || why == quota.ReasonNone {
			continue
		}
		one := status.Bound{Policy: p.Name, Name: l.Name, Reason: why, LeftMS: (left + time.Millisecond - 1).Milliseconds()}
		if left > 0 {
			until := time.UnixMicro(now).Add(left).UTC()
			one.Until = &until
		}
		one.Text = d.whyClosed(&one, &b, regions)
		all = append(all, one)
	}
	return all
}

// burntMS is quota.RegionReset's of this region.
func (d *Daemon) burntMS() (longest int64) {
	for _, b := range d.closedBounds() {
		if b.Until == nil {
			return -1
		}
		longest = max(longest, b.LeftMS)
	}
	return longest
}

// whyClosed says why nothing of the share is left of one of so many regions, and until when.
func (d *Daemon) whyClosed(one *status.Bound, b *quota.Bound, regions int) string {
	const clock = "15:04:05 UTC"
	switch name := one.Policy + "." + one.Name; {
	case b.Drifting:
		return "The clock of this region's Redis runs more than 2 % too fast or too slow. Limit " + name + " admits nothing until it does not."
	case one.Until == nil:
		return "Limit " + name + " admits nothing until it is known whether this region's Redis has lost data."
	}
	until := one.Until.Format(clock)
	if one.LeftMS >= 24*time.Hour.Milliseconds() {
		until = one.Until.Format("2006-01-02 " + clock)
	}
	of := d.state.Store()
	at := time.UnixMicro(of.Lost).UTC().Format(clock)
	if b.BurntThrough > 0 {
		at = time.UnixMicro(of.DataLost).UTC().Format(clock)
	}
	why, admits := "lost its data at "+at, "only what other regions lend it"
	switch {
	case d.redis == nil:
		why = "keeps usage in memory and started at " + at
	case d.state.Cause() == state.Stepped:
		why = "had the clock of its Redis step forward at " + at
	case d.state.Cause() == state.Unknown:
		why += ", or the clock of its Redis stepped forward"
	}
	if regions < 2 || b.BurntThrough > 0 { // nobody lends under a calendar's limit
		admits = "nothing"
	}
	return fmt.Sprintf("This region %s, so what it had admitted before is not known. Until %s its own share of limit %s.%s counts as used, and it "+
		"admits %s.", why, until, one.Policy, one.Name, admits)
}

// lone is limiter.Global for a region that exchanges usage with none: bounds are all that it adds.
type lone struct{ *view.Ceilings }

// Record implements limiter.Global.
func (lone) Record(context.Context, *quota.Policy, *quota.Limit, *quota.CounterKey, quota.Counter, quota.Gauge, int64) {
}

// Local implements limiter.Global.
func (lone) Local(context.Context, *quota.Policy, *quota.Limit, *quota.CounterKey, int64) {}
