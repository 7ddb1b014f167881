package main

import (
	"context"
	"slices"
	"time"

	"github.com/regiond/regiond/cmd/regiond/internal/demo"
	"github.com/regiond/regiond/quota"
)

// watcher draws the table once a second.
type watcher struct {
	trio   *trio
	screen *demo.Screen
	before []outcomes // one per region
}

// outcomes are how many requests a region has allowed and denied since it began.
type outcomes struct{ allowed, denied int64 }

func newWatcher(t *trio, screen *demo.Screen) *watcher {
	return &watcher{trio: t, screen: screen, before: make([]outcomes, len(t.daemons))}
}

func (w *watcher) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		rows, err := w.rows(ctx)
		if err != nil {
			return err
		}
		w.screen.Show(demo.Table(rows, w.trio.cuts.Off(), w.trio.quiet))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *watcher) rows(ctx context.Context) ([]demo.Row, error) {
	var rows []demo.Row
	for i, d := range w.trio.daemons {
		// A look spends nothing and is not counted.
		seen, err := d.limiter.Peek(ctx, quota.Request{Tenant: demo.Busy, Cost: 1, Explain: true})
		if err != nil {
			return nil, err
		}
		now, err := d.outcomes()
		if err != nil {
			return nil, err
		}
		row := demoRow(d.options.region, &seen)
		row.Allowed, row.Denied = now.allowed-w.before[i].allowed, now.denied-w.before[i].denied
		w.before[i] = now
		rows = append(rows, row)
	}
	return rows, nil
}

// demoRow reads one region's row off what it would answer.
func demoRow(self string, d *quota.Decision) demo.Row {
	used, ceiling := demo.Meter(d)
	row := demo.Row{Region: self, Ceiling: ceiling, Mode: d.Mode.String(), Reason: d.Reason.String()}
	peers := map[string]quota.PeerTerm{}
	if d.Explanation != nil {
		for _, l := range d.Explanation.Limits {
			for _, p := range l.Peers {
				peers[p.Region] = p
			}
		}
	}
	for _, name := range demo.Regions() {
		if name == self {
			row.Used = append(row.Used, used)
			continue
		}
		p := peers[name]
		row.Used = append(row.Used, p.Estimate)
		row.Peers = append(row.Peers, demo.Peer{Region: name, State: p.State, Heard: time.Duration(p.AgeMS) * time.Millisecond})
	}
	return row
}

// outcomes adds up what the region's own metric has counted, of all tenants.
func (d *daemon) outcomes() (outcomes, error) {
	var sum outcomes
	families, err := d.telemetry.registry.Gather()
	if err != nil {
		return sum, err
	}
	for _, f := range families {
		if f.GetName() != "regiond_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "decision" && slices.Contains([]string{"allowed", "reported"}, l.GetValue()) {
					sum.allowed += int64(m.GetCounter().GetValue())
				}
				if l.GetName() == "decision" && l.GetValue() == "denied" {
					sum.denied += int64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return sum, nil
}
