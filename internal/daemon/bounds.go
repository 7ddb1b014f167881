package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
)

// boundWatch notes once a second which bounds leave nothing of the region's own share.
type boundWatch struct {
	d      *Daemon
	total  *instruments.Counter
	last   time.Duration
	closed []string // the limits at the last look
}

func newBoundWatch(d *Daemon) (*boundWatch, error) {
	i := instruments.On(d.telemetry.Meter("regiond"))
	w := &boundWatch{d: d, total: i.CounterBy("regiond.bound.closed.time", "s",
		"For how long nothing of the region's own share was left under the bound of a limit, whatever was used, by reason.", "policy")}
	i.Gauge("regiond.bound.closed", "s",
		"How long nothing of the region's own share is left yet under the bound of a limit; 0: it is there, or the end is not known.", func(observe instruments.Observe) {
			closed := d.closedBounds()
			for _, l := range bounded(d.config.Load().topology) {
				at := slices.IndexFunc(closed, func(b status.Bound) bool { return b.Policy == l.policy && b.Name == l.Name })
				left := 0.0
				if at >= 0 {
					left = float64(closed[at].LeftMS) / 1000
				}
				observe(left, "policy", l.policy, "limit", l.Name)
			}
		})
	return w, i.Err()
}

// run looks until ctx ends.
func (w *boundWatch) run(ctx context.Context) error {
	tick := time.Tick(time.Second)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			w.look(w.d.clock.Now(), w.d.closedBounds())
		}
	}
}

func (w *boundWatch) look(now time.Duration, closed []status.Bound) {
	var names, begun []string
	var longest *status.Bound // of those
	for i := range closed {
		b := &closed[i]
		w.total.Add(int64((now-w.last+time.Second/2)/time.Second), "policy", b.Policy, "limit", b.Name, "reason", b.Reason.String())
		name := b.Policy + "." + b.Name
		if names = append(names, name); !slices.Contains(w.closed, name) {
			begun = append(begun, name)
			if longest == nil || b.LeftMS > longest.LeftMS {
				longest = b
			}
		}
	}
	if b := longest; b != nil { // by one loss, or at one start
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

// boundedLimit is a limit with a bound.
type boundedLimit struct {
	*quota.Limit
	policy string
}

func bounded(top *region.Topology) (all []boundedLimit) {
	for _, p := range top.EveryPolicy() {
		for i := range p.Limits {
			if l := &p.Limits[i]; l.MaxOvershoot > 0 {
				all = append(all, boundedLimit{l, p.Name})
			}
		}
	}
	return all
}

// closedBounds are the limits whose bounds leave nothing of the region's own share now.
func (d *Daemon) closedBounds() (all []status.Bound) {
	now := d.timeUS()
	for _, l := range bounded(d.config.Load().topology) {
		b, regions, ok := d.ceilings.Bound(l.policy, l.Limit)
		why, left := b.Closed(now)
		if !ok || why == quota.ReasonNone {
			continue
		}
		one := status.Bound{Policy: l.policy, Name: l.Name, Reason: why, LeftMS: (left + time.Millisecond - 1).Milliseconds()}
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
	now := time.UnixMicro(d.timeUS())
	text := func(at time.Time) string {
		if at.Sub(now).Abs() >= 24*time.Hour {
			return at.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		return at.UTC().Format("15:04:05 UTC")
	}
	switch name := one.Policy + "." + one.Name; {
	case b.Drifting:
		return "The clock of this region's Redis runs more than 2 % too fast or too slow. Limit " + name + " admits nothing until it does not."
	case one.Until == nil:
		return "Limit " + name + " admits nothing until it is known whether this region's Redis has lost data."
	}
	of := d.state.Store()
	at := text(time.UnixMicro(of.Lost))
	if b.BurntThrough > 0 {
		at = text(time.UnixMicro(of.DataLost))
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
	if regions < 2 {
		admits = "nothing"
	}
	return fmt.Sprintf("This region %s, so what it had admitted before is not known. Until %s its own share of limit %s.%s counts as used, and it "+
		"admits %s.", why, text(*one.Until), one.Policy, one.Name, admits)
}

// lone is limiter.Global for a region that exchanges usage with none: bounds are all that it adds.
type lone struct{ *view.Ceilings }

// Record implements limiter.Global.
func (lone) Record(context.Context, *quota.Policy, *quota.Limit, *quota.CounterKey, quota.Counter, quota.Gauge, int64) {
}

// Local implements limiter.Global.
func (lone) Local(context.Context, *quota.Policy, *quota.Limit, *quota.CounterKey, int64) {}
