package demo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regiond/regiond/internal/load"
	"github.com/regiond/regiond/quota"
)

// watcher draws the table once a second.
type watcher struct {
	cluster *cluster
	screen  *Screen
	before  []outcomes // one per region
	worst   Worst
}

// outcomes are how many requests a region has allowed and denied since it began.
type outcomes struct{ allowed, denied int64 }

func newWatcher(c *cluster, screen *Screen) *watcher {
	return &watcher{cluster: c, screen: screen, before: make([]outcomes, len(c.nodes))}
}

func (w *watcher) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		rows, err := w.rows(ctx)
		if err != nil {
			return err
		}
		w.worst.add(rows)
		w.cluster.show(rows, w.worst)
		w.screen.Show(Table(rows, w.worst, w.cluster.cuts.Off(), w.cluster.quiet))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *watcher) rows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for i, node := range w.cluster.nodes {
		// A look spends nothing and is not counted.
		seen, err := node.Peek(ctx, quota.Request{Tenant: Busy, Cost: 1, Explain: true})
		if err != nil {
			return nil, err
		}
		now, err := countOutcomes(node.Metrics())
		if err != nil {
			return nil, err
		}
		row := demoRow(w.cluster.names[i], &seen)
		strict, err := node.Peek(ctx, quota.Request{Tenant: Strict, Cost: 1, Explain: true})
		if err != nil {
			return nil, err
		}
		row.Strict, _ = Meter(&strict)
		row.Bound = boundTerms(&strict)
		row.Allowed, row.Denied = now.allowed-w.before[i].allowed, now.denied-w.before[i].denied
		w.before[i] = now
		rows = append(rows, row)
	}
	return rows, nil
}

// demoRow reads one region's row off what it would answer.
func demoRow(self string, d *quota.Decision) Row {
	used, ceiling := Meter(d)
	row := Row{Region: self, Ceiling: ceiling, Mode: d.Mode.String(), Reason: d.Reason.String()}
	peers := map[string]quota.PeerTerm{}
	if d.Explanation != nil {
		for _, l := range d.Explanation.Limits {
			for _, p := range l.Peers {
				peers[p.Region] = p
			}
		}
	}
	for _, name := range Regions() {
		if name == self {
			row.Used = append(row.Used, used)
			continue
		}
		p := peers[name]
		row.Used = append(row.Used, p.Estimate)
		row.Peers = append(row.Peers, Peer{Region: name, State: p.State, Heard: time.Duration(p.AgeMS) * time.Millisecond})
	}
	return row
}

// boundTerms are those of the bounded limit that a decision explains; nil before any are known.
func boundTerms(d *quota.Decision) *quota.BoundTerms {
	if d.Explanation == nil {
		return nil
	}
	for i := range d.Explanation.Limits {
		if b := d.Explanation.Limits[i].Bound; b != nil {
			return b
		}
	}
	return nil
}

// countOutcomes adds up what a node's own metric has counted, of all tenants. What was
// shed is neither allowed nor denied.
func countOutcomes(metrics prometheus.Gatherer) (outcomes, error) {
	var sum outcomes
	families, err := metrics.Gather()
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

// traffic asks every region over HTTP, as a gateway would, until ctx ends.
func (c *cluster) traffic(ctx context.Context) error {
	client := load.NewHTTP(1, askTimeout, "", nil)
	defer client.Close()
	var wg sync.WaitGroup
	for i, node := range c.nodes {
		wg.Go(func() {
			for {
				next := time.NewTimer(c.demand.interval(i))
				select {
				case <-ctx.Done():
					next.Stop()
					return
				case <-next.C:
					for _, tenant := range []string{Busy, Strict} {
						ask(ctx, client, "http://"+node.DataAddr().String(), tenant)
					}
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func ask(ctx context.Context, client *load.HTTP, target, tenant string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client.Ask(ctx, target, &load.Request{Tenant: tenant, Cost: 1})
}
