package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/state"
)

// shutLabels are those of regiond.bound.shut.
type shutLabels struct {
	policy, limit string
	reason        quota.Reason
}

func (l shutLabels) set() attribute.Set {
	return attribute.NewSet(attribute.String("policy", l.policy), attribute.String("limit", l.limit), attribute.String("reason", l.reason.String()))
}

// boundWatch notes once a second which bounds leave nothing of the region's own share. Its instruments are:
//
//	regiond_bound_closed_seconds{policy,limit}             until the share is there again
//	regiond_bound_shut_seconds_total{policy,limit,reason}  how long it was not
type boundWatch struct {
	r     *replication
	total *instruments.CounterOf[shutLabels]
	last  time.Duration
	shut  []string // the limits at the last look
}

func newBoundWatch(r *replication, i *instruments.Maker) *boundWatch {
	w := &boundWatch{r: r, total: instruments.Of(i, "regiond.bound.shut", "s",
		"For how long nothing of the region's own share was left under the bound of a limit, whatever was used, by reason.", shutLabels.set)}
	i.Gauge("regiond.bound.closed", "s",
		"How long nothing of the region's own share is left yet under the bound of a limit; 0: it is there, or the end is not known.", func(observe instruments.Observe) {
			shut := r.shut()
			for policy, limit := range r.bounded() {
				at := slices.IndexFunc(shut, func(b status.Bound) bool { return b.Policy == policy && b.Name == limit })
				left := 0.0
				if at >= 0 {
					left = float64(shut[at].LeftMS) / 1000
				}
				observe(left, "policy", policy, "limit", limit)
			}
		})
	return w
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
			w.look(w.r.now(), w.r.shut())
		}
	}
}

func (w *boundWatch) look(now time.Duration, shut []status.Bound) {
	var names, begun []string
	for i := range shut {
		b := &shut[i]
		w.total.Add(shutLabels{b.Policy, b.Name, b.Reason}, int64((now-w.last+time.Second/2)/time.Second))
		name := b.Policy + "." + b.Name
		if names = append(names, name); !slices.Contains(w.shut, name) {
			begun = append(begun, name)
		}
	}
	if len(begun) > 0 { // by one loss, or at one start
		b := &shut[slices.Index(names, begun[0])]
		attrs := []slog.Attr{slog.String("limits", strings.Join(begun, " ")), slog.String("reason", b.Reason.String())}
		if b.Until != nil {
			attrs = append(attrs, slog.Time("until", *b.Until))
		}
		w.r.d.log.LogAttrs(context.Background(), slog.LevelWarn, b.Text, attrs...)
	}
	if over := slices.DeleteFunc(w.shut, func(name string) bool { return slices.Contains(names, name) }); len(over) > 0 {
		w.r.d.log.Info("the region's own share is there again", "limits", strings.Join(over, " "))
	}
	w.shut, w.last = names, now
}

// bounded yields policy and name of each limit with a bound.
func (r *replication) bounded() func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for _, p := range r.topology().EveryPolicy() {
			for i := range p.Limits {
				if l := &p.Limits[i]; l.MaxOvershoot > 0 && !yield(p.Name, l.Name) {
					return
				}
			}
		}
	}
}

// shut are the limits whose bounds leave nothing of the region's own share now.
func (r *replication) shut() (all []status.Bound) {
	now := r.d.timeUS()
	for policy, limit := range r.bounded() {
		b, _, _, ok := r.ceilings.Bound(policy, limit)
		why, left := b.Shut(now)
		if !ok || why == quota.ReasonNone {
			continue
		}
		one := status.Bound{Policy: policy, Name: limit, Reason: why, LeftMS: left.Milliseconds()}
		if left > 0 {
			until := time.UnixMicro(now).Add(left).UTC()
			one.Until = &until
		}
		one.Text = r.whyShut(&one)
		all = append(all, one)
	}
	return all
}

// burntMS is quota.RegionReset's of this region.
func (r *replication) burntMS() (longest int64) {
	for _, b := range r.shut() {
		if b.Until == nil {
			return -1
		}
		longest = max(longest, b.LeftMS)
	}
	return longest
}

// whyShut says why a bound is shut, and until when.
func (r *replication) whyShut(b *status.Bound) string {
	const clock = "15:04:05 UTC"
	if b.Until == nil {
		return fmt.Sprintf("Limit %s.%s admits nothing until it is known whether this region's Redis has lost data.", b.Policy, b.Name)
	}
	until := b.Until.Format(clock)
	if b.LeftMS >= 24*time.Hour.Milliseconds() {
		until = b.Until.Format("2006-01-02 " + clock)
	}
	if b.Reason == quota.ReasonBoundClosed {
		return fmt.Sprintf("The clock of this region's Redis is not certain. Until %s limit %s.%s admits nothing.", until, b.Policy, b.Name)
	}
	at := time.UnixMicro(r.loanStore().Lost).UTC().Format(clock)
	why := "lost its data at " + at
	switch {
	case r.d.redis == nil:
		why = "keeps usage in memory and started at " + at
	case r.state.Cause() == state.Stepped:
		why = "had the clock of its Redis step forward at " + at
	case r.state.Cause() == state.Unknown:
		why += ", or the clock of its Redis stepped forward"
	}
	return fmt.Sprintf("This region %s, so what it had admitted before is not known. Until %s its own share of limit %s.%s counts as used, and it "+
		"admits only what other regions lend it.", why, until, b.Policy, b.Name)
}
