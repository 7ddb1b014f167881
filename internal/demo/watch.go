package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// watcher looks at the regions once a second, for the page and for the table.
type watcher struct {
	cluster *cluster
	table   printer
	before  []map[string]limiter.Outcomes // of each region since it began, by policy
	most    Most
}

func newWatcher(c *cluster, out io.Writer) *watcher {
	return &watcher{cluster: c, table: printer{out: out}, before: make([]map[string]limiter.Outcomes, len(c.nodes))}
}

// run looks until ctx ends, and then prints the table once more.
func (w *watcher) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		s, err := w.look(ctx)
		if err != nil {
			return err
		}
		w.cluster.shown.Store(s)
		w.table.look(s)
		select {
		case <-ctx.Done():
			fmt.Fprint(w.table.out, "\n", w.table.table) // below the ^C that a terminal shows
			return nil
		case <-ticker.C:
		}
	}
}

func (w *watcher) look(ctx context.Context) (*PageState, error) {
	c := w.cluster
	s := &PageState{
		Tenant: Busy, Strict: Strict, Limit: global, Units: BusyUnits, WindowMS: BusyWindow.Milliseconds(),
		Demand: c.demand.Rate(), MaxDemand: MaxDemand, Quiet: c.quiet, Cut: c.cuts.Off(),
	}
	var used, usedStrict int64
	for i, node := range c.nodes {
		// A look spends nothing and is not counted.
		seen, err := node.Peek(ctx, quota.Request{Tenant: Busy, Cost: 1, Explain: true})
		if err != nil {
			return nil, err
		}
		strict, err := node.Peek(ctx, quota.Request{Tenant: Strict, Cost: 1, Explain: true})
		if err != nil {
			return nil, err
		}
		now := node.Outcomes()
		r := PageSite{
			Region: c.names[i], Mode: seen.Mode.String(), Reason: seen.Reason.String(), Bound: boundTerms(&strict), Fresh: freshPeers(&seen),
			Asked: since(w.before[i][seen.Policy], now[seen.Policy]), StrictAsked: since(w.before[i][strict.Policy], now[strict.Policy]),
		}
		r.Used, r.Ceiling = Meter(&seen)
		r.Units = unitsOf(&seen)
		r.Strict, _ = Meter(&strict)
		used, usedStrict = used+r.Used, usedStrict+r.Strict
		w.before[i] = now
		s.Regions = append(s.Regions, r)
	}
	w.most = Most{max(w.most.Estimated, used), max(w.most.Strict, usedStrict)}
	s.Most = w.most
	return s, nil
}

func since(before, now limiter.Outcomes) Asked {
	return Asked{Allowed: now.Allowed - before.Allowed, Denied: now.Denied - before.Denied}
}

// freshPeers are the regions on whose reports a decision counted.
func freshPeers(d *quota.Decision) (names []string) {
	if d.Explanation == nil {
		return nil
	}
	for _, l := range d.Explanation.Limits {
		for _, p := range l.Peers {
			if p.State == "fresh" {
				names = append(names, p.Region)
			}
		}
	}
	return slices.Compact(names)
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

// traffic asks every region over HTTP, as a gateway would, until ctx ends.
func (c *cluster) traffic(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: askTimeout}
	defer client.CloseIdleConnections()
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
						spend(ctx, client, node.DataAddr().String(), tenant)
					}
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// spend asks for one unit. What is answered, or that nothing is, shows in the table.
func spend(ctx context.Context, client *http.Client, addr, tenant string) {
	body := strings.NewReader(`{"tenant":"` + tenant + `"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/check", body)
	if err != nil {
		return
	}
	if res, err := client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body) // so that the connection is used again
		_ = res.Body.Close()
	}
}
