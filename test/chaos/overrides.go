//go:build linux

package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Override is one as a region answers it.
type Override struct {
	Version string           `json:"version"`
	Limits  map[string]int64 `json:"limits"`
}

// Units are those of the limit of the world's policies; 0 without an override.
func (o Override) Units() int64 { return o.Limits["limit"] }

// editEvery keeps a region below the edits that a caller may make in a second.
const editEvery = 150 * time.Millisecond

// SetOverride has a region give a tenant's limit other units, and with 0 those of the file. It returns the version that was made.
func (w *World) SetOverride(region, tenant string, units int64) (version string, err error) {
	time.Sleep(editEvery)
	method, body := "PUT", fmt.Sprintf(`{"limits":{"limit":%d},"reason":"chaos"}`, units)
	if units == 0 {
		method, body = "DELETE", ""
	}
	r, made := w.region(region), Override{}
	err = r.ask(r.admin, method, "/v1/overrides/"+tenant, body, &made)
	return made.Version, err
}

// Overrides are those in force in a region, by tenant.
func (w *World) Overrides(region string) (map[string]Override, error) {
	var page struct {
		Overrides []struct {
			Tenant string `json:"tenant"`
			Override
		} `json:"overrides"`
	}
	r := w.region(region)
	if err := r.ask(r.admin, "GET", "/v1/overrides?limit=1000", "", &page); err != nil {
		return nil, err
	}
	all := map[string]Override{}
	for _, o := range page.Overrides {
		all[o.Tenant] = o.Override
	}
	return all, nil
}

// Limit is a tenant's limit as a region's checks go by it.
func (w *World) Limit(region, tenant string) (int64, error) { return w.region(region).limit(tenant) }

// StrictTenant has the limit of class strict.
const StrictTenant = traffic.Strict + "-00"

// Strict is traffic that asks for more than the bound of StrictTenant, whose units overrides change meanwhile.
type Strict struct {
	w      *World
	watch  *watch
	cancel context.CancelFunc
	done   chan struct{}
	from   map[int64]time.Duration // when a region was first given so many units
}

// AskStrict begins.
func (w *World) AskStrict() *Strict {
	s := &Strict{w: w, watch: w.watchBounds(), done: make(chan struct{}), from: map[int64]time.Duration{}}
	load := traffic.Load{Profile: traffic.Steady(), Rate: 30, Bounded: true, Seed: w.options.Seed, History: w.History}
	for _, r := range w.Regions {
		load.Targets = append(load.Targets, r.target)
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		load.Run(ctx)
	}()
	return s
}

// Set has a region give StrictTenant so many units.
func (s *Strict) Set(region string, units int64) error {
	s.from[units] = s.w.History.Note(fmt.Sprintf("%s gives it %d units", region, units))
	_, err := s.w.SetOverride(region, StrictTenant, units)
	return err
}

// KeptFor is for how long a larger bound holds after all regions have gone by a smaller one.
func KeptFor() time.Duration { return boundKept }

// End ends it and judges: BoundUnits hold until the raise, which holds until all regions have had the cut for KeptFor, and the cut
// until the end. It returns the fullest window and what was borrowed.
func (s *Strict) End(raise, cut int64) (fullest judge.Fullest, borrowed int64, objects []string) {
	s.cancel()
	<-s.done
	s.watch.end()
	records, ended := s.w.History.Records(), s.w.History.Now()
	all := judge.Admissions{}
	objects = all.Answers(records, s.w.History.WallUS, s.w.trueUS, traffic.Strict)
	all.Stored(s.watch.stored[traffic.Strict])
	since, never := appliedBy(records, cut)
	if s.watch.failed != nil {
		never = append(never, s.watch.failed.Error())
	}
	since += boundKept
	fullest, exceeded := judge.Bound(all, s.w.History.WallUS, traffic.Strict, BoundWindow, []judge.Phase{
		{Span: judge.Span{To: s.from[raise]}, Units: BoundUnits},
		{Span: judge.Span{From: s.from[raise], To: since}, Units: raise},
		{Span: judge.Span{From: since, To: ended}, Units: cut},
	})
	for _, units := range s.watch.borrowed {
		borrowed += units
	}
	return fullest, borrowed, append(append(objects, never...), exceeded...)
}
