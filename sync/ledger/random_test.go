package ledger_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// lines are the limits of the random programs. The last two are of one name, as after
// a change of configuration; "a.gone" is not in force.
var lines = []ledger.Series{
	{Limit: "a.pair", Units: 600, WindowUS: 60_000_000},
	{Limit: "a.odd", Units: 3, WindowUS: 7_000_000},
	{Limit: "a.gone", Units: 50, WindowUS: 10_000_000},
	{Limit: "b.changed", Units: 50, WindowUS: 10_000_000},
	{Limit: "b.changed", Units: 50, WindowUS: 5_000_000},
}

// ids are few, so that counters meet; the first two share a shard.
var ids = []uint64{0, 1<<58 - 1, 1<<64 - 1}

// pair is a ledger and its reference model, driven by one random program.
type pair struct {
	*rapid.T
	clock   fakeClock
	skew    map[string]int64 // each region's store clock minus ours
	regions int
	model   *model
	ledger  *ledger.Ledger
	ended   []overshot
	shared  map[meshtest.Cell]int64 // units of our own counters, by name, that others have, or that have no peers to go to
}

func newPair(t *rapid.T) *pair {
	p := &pair{T: t, regions: 3, model: newModel("eu-west", startUS), skew: map[string]int64{}, shared: map[meshtest.Cell]int64{}}
	known := map[string]int64{"a.pair": 600, "a.odd": 3, "b.changed": 50}
	for i, r := range []string{"eu-west", "us-east", "ap-south"} {
		p.skew[r] = startUS + int64(i)*1_234_567
	}
	l, err := ledger.New(ledger.Options{
		Self: "eu-west", Boot: startUS, Now: p.clock.now,
		Limit:   func(name string) (int64, bool) { l, ok := known[name]; return l, ok },
		Regions: func() int { return p.regions },
		Most:    func(string, int64) int64 { return math.MaxInt64 },
		Overshoot: func(limit string, units, limitUnits int64) {
			p.ended = append(p.ended, overshot{limit, units, limitUnits})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.ledger, p.model.units = l, known
	return p
}

func (p *pair) series() ledger.Series {
	s := rapid.SampledFrom(lines).Draw(p.T, "limit")
	s.ID = rapid.SampledFrom(ids).Draw(p.T, "id")
	return s
}

func (p *pair) region() string {
	return rapid.SampledFrom([]string{"eu-west", "us-east", "ap-south"}).Draw(p.T, "region")
}

// storeUS is a region's clock, or a little earlier.
func (p *pair) storeUS(region string) int64 {
	return p.skew[region] + p.clock.us.Load() - rapid.SampledFrom([]int64{0, 0, 700, 2000, 999_999, 1_000_000, 1_000_001}).Draw(p.T, "ago")
}

func (p *pair) generation() int64 {
	return startUS + rapid.SampledFrom([]int64{-5_000_000, -5_000_000, -5_000_000, -5_000_000, -4_999_001, -4_999_000, 3_000_000}).Draw(p.T, "generation")
}

func (p *pair) amount() int64 {
	return rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(quota.MaxCounter-2, quota.MaxCounter)).Draw(p.T, "units")
}

func (p *pair) Advance(*rapid.T) {
	us := rapid.OneOf(rapid.Int64Range(0, 900_000), rapid.Int64Range(0, 20_000_000),
		rapid.SampledFrom([]int64{1, 800_000, 60_000_000})).Draw(p.T, "us")
	p.clock.us.Add(us)
	p.model.nowUS += us
}

// Step moves a store's clock, back or forward, also by more than its windows.
func (p *pair) Step(*rapid.T) {
	p.skew[p.region()] += rapid.Int64Range(-90_000_000, 30_000_000).Draw(p.T, "step")
}

func (p *pair) Grow(*rapid.T) {
	p.regions = rapid.IntRange(1, 3).Draw(p.T, "regions")
	p.model.regions = p.regions
}

func (p *pair) Record(*rapid.T) {
	s, storeUS := p.series(), p.storeUS("eu-west")
	t := quota.Counter{Bucket: storeUS/s.WindowUS + rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1, -2, 2}).Draw(p.T, "bucket"), Generation: p.generation(), Units: p.amount()}
	if rapid.IntRange(0, 5).Draw(p.T, "absent") == 0 {
		t = quota.Counter{}
	}
	p.ledger.Record(&s, t, quota.Gauge{}, storeUS)
	p.model.record(&s, t, storeUS)
	p.alone(meshtest.Cell{ID: s.ID, Limit: s.Limit, WindowUS: s.WindowUS, Region: "eu-west", Bucket: t.Bucket, Generation: t.Generation}, t.Units)
}

// alone notes a counter that grew while there were no peers.
func (p *pair) alone(c meshtest.Cell, units int64) {
	if p.regions == 1 {
		p.shared[c] = max(p.shared[c], units)
	}
}

// has notes that others have a counter.
func (p *pair) has(c meshtest.Cell) {
	units := c.Units
	c.Units = 0
	p.shared[c] = max(p.shared[c], units)
}

func (p *pair) Local(*rapid.T) {
	s, storeUS, units := p.series(), p.storeUS("eu-west"), p.amount()+1
	p.ledger.Local(&s, units, storeUS)
	p.model.local(&s, units, storeUS)
	p.alone(meshtest.Cell{ID: s.ID, Limit: s.Limit, WindowUS: s.WindowUS, Region: "eu-west", Bucket: storeUS / s.WindowUS, Generation: startUS}, quota.MaxCounter)
}

func (p *pair) Fold(*rapid.T) {
	author := p.region()
	clockUS := p.storeUS(author)
	var groups []wire.Group
	for range rapid.IntRange(0, 3).Draw(p.T, "groups") {
		s := p.series()
		g := wire.Group{
			Limit: s.Limit, WindowUS: s.WindowUS,
			Bucket: clockUS/s.WindowUS + rapid.SampledFrom([]int64{0, 0, 0, 1, 1, -1, -1, -2, 2}).Draw(p.T, "bucket"),
		}
		for range rapid.IntRange(0, 4).Draw(p.T, "entries") {
			g.IDs = append(g.IDs, rapid.SampledFrom(ids).Draw(p.T, "id"))
			g.Generations, g.Units = append(g.Generations, p.generation()), append(g.Units, p.amount())
		}
		groups = append(groups, g)
	}
	whole := rapid.Bool().Draw(p.T, "whole")
	returned := whole && author == "eu-west" && rapid.Bool().Draw(p.T, "returned")
	err := error(nil)
	if returned {
		err = p.ledger.FoldReturned(clockUS, p.clock.now(), groups)
	} else {
		err = p.ledger.Fold(author, clockUS, p.clock.now(), groups, whole)
	}
	if p.model.fold(author, clockUS, groups, returned); err != nil {
		p.Fatalf("refused: %v", err)
	}
	if author != "eu-west" || returned {
		return
	}
	for _, g := range groups {
		for i, id := range g.IDs {
			p.has(meshtest.Cell{ID: id, Limit: g.Limit, WindowUS: g.WindowUS, Region: author, Bucket: g.Bucket, Generation: g.Generations[i], Units: g.Units[i]})
		}
	}
}

func (p *pair) Take(*rapid.T) {
	entries, all := rapid.IntRange(1, 6).Draw(p.T, "entries"), rapid.Bool().Draw(p.T, "all")
	select {
	case <-p.ledger.Urgent():
	default:
	}
	p.model.number++
	got := flatten(p.T, "eu-west", entries, p.ledger.Take(entries, all, p.model.number))
	if diff := cmp.Diff(p.model.take(entries, all), got); diff != "" {
		p.Fatalf("taken (-want +got):\n%s", diff)
	}
	for _, c := range got {
		p.has(c)
	}
	if all && len(got) < entries {
		p.nothingIsKeptBack()
	}
}

// nothingIsKeptBack checks a ledger that has nothing left to take: what counts as
// published was handed out, or is over.
func (p *pair) nothingIsKeptBack() {
	for _, c := range p.model.list(func(c meshtest.Cell) bool { return c.Region == "eu-west" && !p.model.over(c) }) {
		units := c.Units
		c.Units = 0
		if p.shared[c] < units {
			p.Fatalf("%d units of %+v were never handed out, only %d", units, c, p.shared[c])
		}
	}
}

func (p *pair) Live(*rapid.T) {
	region, entries := p.region(), rapid.IntRange(1, 9).Draw(p.T, "entries")
	var got []meshtest.Cell
	since := uint64(0)
	if region == "eu-west" {
		since = rapid.Uint64Range(0, p.model.number).Draw(p.T, "since")
	}
	for piece := range p.ledger.Live(region, since, entries) {
		got = append(got, flatten(p.T, region, entries+50, piece)...) // with those of one series more
	}
	p.same("live", got, region, since)
}

func (p *pair) same(what string, got []meshtest.Cell, region string, since uint64) {
	slices.SortFunc(got, meshtest.Compare)
	want := p.model.list(func(c meshtest.Cell) bool {
		return c.Region == region && !p.model.over(c) && (since == 0 || p.model.numbers[seriesOf(c)] > since)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		p.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func (p *pair) Sweep(*rapid.T) {
	sweep(p.ledger)
	p.model.sweep()
}

// Check compares all that can be asked.
func (p *pair) Check(*rapid.T) {
	counts := func(c meshtest.Cell) bool { return !p.model.over(c) }
	if diff := cmp.Diff(p.model.list(counts), meshtest.Cells(p.ledger)); diff != "" {
		p.Fatalf("snapshot (-want +got):\n%s", diff)
	}
	at := p.clock.now() + time.Duration(rapid.SampledFrom([]int64{0, 1, 3_500_000, 61_000_000}).Draw(p.T, "at"))*time.Microsecond
	s := p.series()
	window := s.WindowUS
	for _, id := range ids {
		out := make([]int64, 4)
		lost, known := p.ledger.Estimates(id, window, 1<<62, at, out)
		for _, r := range []string{"eu-west", "us-east", "ap-south"} {
			if got, want := out[p.ledger.Region(r)], p.model.estimate(id, window, r, at.Microseconds()); !want.has(got) {
				p.Fatalf("id %d: %s has used %d, want %+v", id, r, got, want)
			}
		}
		if want := p.model.lost(id, window, at.Microseconds()); !want.has(lost) {
			p.Fatalf("id %d: %d are lost, want %+v", id, lost, want)
		}
		least, most := p.model.known(id, window, at.Microseconds(), false), p.model.known(id, window, at.Microseconds(), true)
		if known != least && known != most {
			p.Fatalf("id %d: the store has to hold %v, want %v or %v", id, known, least, most)
		}
	}
	if got, want := p.ledger.Unsent().Microseconds(), p.model.unsentUS(); got != want {
		p.Fatalf("unsent for %d µs, want %d", got, want)
	}
	if len(p.model.order(false)) > 0 && len(p.ledger.Urgent()) == 0 {
		p.Fatal("something is urgent without a signal")
	}
	if p.ledger.Full() || p.ledger.Series() != len(p.model.series()) {
		p.Fatalf("%d series (full: %v), want %d", p.ledger.Series(), p.ledger.Full(), len(p.model.series()))
	}
	order := func(a, b overshot) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(p.ended, order)
	slices.SortFunc(p.model.ended, order)
	if !slices.Equal(p.ended, p.model.ended) {
		p.Fatalf("windows ended with %v, want %v", p.ended, p.model.ended)
	}
	p.ended, p.model.ended = nil, nil
}

// TestAgainstModel: whatever happens, in whatever order, a ledger answers as its
// model does, in everything that can be asked.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		p.model.regions = p.regions
		t.Repeat(map[string]func(*rapid.T){
			"": p.Check, "advance": p.Advance, "step": p.Step, "grow": p.Grow,
			"record": p.Record, "record again": p.Record, "local": p.Local, "fold": p.Fold, "fold again": p.Fold, "take": p.Take, "live": p.Live, "sweep": p.Sweep,
		})
	})
}
