//go:build linux

package chaos

import (
	"fmt"
	"slices"

	"github.com/regiond/regiond/test/chaos/wan"
)

// Nothing goes wrong: all lines have their delay, there and back.
func (w *World) Nothing() Fault {
	return Fault{Name: "nothing", Inject: nothing, Heal: func() error {
		for _, r := range w.Regions {
			trips, err := r.metric(`regiond_region_rtt_seconds\{.*\}`) // of both others
			if least := 4 * w.options.Line.Delay.Seconds(); err == nil && trips < least {
				err = fmt.Errorf("%s: round trips of %.3f s to two regions, want %.3f at least", r.Name, trips, least)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// Partition cuts all lines between groups of regions.
func (w *World) Partition(groups ...[]string) Fault {
	group := func(i int) int {
		return slices.IndexFunc(groups, func(names []string) bool { return slices.Contains(names, w.Regions[i].Name) })
	}
	return w.lines(fmt.Sprintf("partition %v", groups), func(from, to int) bool { return group(from) != group(to) }, wan.Link.Cut)
}

// CutBetween cuts the lines between two regions that a third still sees: a bridge.
func (w *World) CutBetween(a, b string) Fault {
	return w.lines(fmt.Sprintf("no line between %s and %s", a, b), func(from, to int) bool {
		return w.joins(from, to, a, b) || w.joins(from, to, b, a)
	}, wan.Link.Cut)
}

// CutOneWay swallows what one region sends to another, and nothing that comes back.
func (w *World) CutOneWay(from, to string) Fault {
	return w.lines(fmt.Sprintf("nothing gets from %s to %s", from, to), func(i, k int) bool { return w.joins(i, k, from, to) }, wan.Link.Cut)
}

// LoseUDP loses a share of UDP everywhere; TCP is untouched.
func (w *World) LoseUDP(share float64) Fault {
	return w.lines(fmt.Sprintf("%.0f %% of UDP lost", 100*share), everywhere, func(l wan.Link) wan.Link {
		l.LossUDP = share
		return l
	})
}

// Rough loses, repeats and reorders packets on all lines.
func (w *World) Rough(loss, duplicate, reorder float64) Fault {
	return w.lines(fmt.Sprintf("%.0f %% lost, %.0f %% repeated, %.0f %% reordered", 100*loss, 100*duplicate, 100*reorder),
		everywhere, func(l wan.Link) wan.Link {
			l.Loss, l.Duplicate, l.Reorder = loss, duplicate, reorder
			return l
		})
}

func (w *World) joins(from, to int, a, b string) bool {
	return w.Regions[from].Name == a && w.Regions[to].Name == b
}

// lines changes some lines, and makes them as they were.
func (w *World) lines(what string, which func(from, to int) bool, change func(wan.Link) wan.Link) Fault {
	apply := func(change func(wan.Link) wan.Link) error {
		w.Lines(func(from, to int, l wan.Link) wan.Link {
			if which(from, to) {
				return change(l)
			}
			return l
		})
		return nil
	}
	return set(what, apply, change, func(wan.Link) wan.Link { return w.options.Line })
}

// everywhere is all lines.
func everywhere(int, int) bool { return true }
