package foreign_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/regiond/regiond/internal/page"
	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// TestPageOfABurntShare: a region that lost its data sees all others, and neither the page nor the demo shows that as if all were
// well: they say what it means and for how long yet.
func TestPageOfABurntShare(t *testing.T) {
	const text = "This region lost its data at 11:58:04 UTC, so what it had admitted before is not known. " +
		"Until 12:01:30 UTC its own share of limit standard.login counts as used, and it admits only what other regions lend it."
	sample := func(leftMS int64) page.Sample {
		row := func(name string, self bool) status.Region {
			return status.Region{RegionRow: members.RegionRow{Region: name, Self: self, State: members.StateFresh, InUse: true, HeardMS: 100}}
		}
		report := &status.Report{
			Region: "eu-west", Mode: status.Mode{Mode: "global"}, Store: status.Store{Available: true},
			Regions: []status.Region{row("eu-west", true), row("us-east", false)},
		}
		bound := quota.BoundTerms{Units: 100, Share: 34, Borrowed: 20, BurntMS: leftMS, Binds: "share"}
		if leftMS > 0 {
			until := time.Now()
			report.Bounds = []status.Bound{{Policy: "standard", Name: "login", Reason: quota.ReasonBoundBurnt, Until: &until, LeftMS: leftMS, Text: text}}
			bound.Binds = "burnt"
		}
		asked := map[string]int{"allowed": 4, "denied": 2}
		return page.Sample{Regions: report, Demo: map[string]any{ // as internal/demo's PageState
			"units": 100, "window_ms": 10_000, "demand": 12, "max_demand": 60, "cut": []string{}, "most": map[string]int{"estimated": 0, "strict": 0},
			"regions": []map[string]any{{"region": "eu-west", "mode": "global", "asked": asked, "strict_asked": asked, "used": 10, "ceiling": 50, "strict": 10, "bound": bound}},
		}}
	}
	f := &figures{now: sample(90_000), top: map[string]any{}}
	address := f.serve(t)
	b := openBrowser(t, 1280, 900)
	b.do(t, scheme("light"), chromedp.Navigate(address+"/"))
	notice := func(want string) {
		b.await(t, time.Minute, `document.getElementById("bounds-text").textContent === "`+want+`"`)
	}
	pills := func(tone, region, site string) {
		t.Helper()
		b.await(t, 20*time.Second, `(() => {
			const own = document.querySelector("#regions tbody tr .pill"), site = document.querySelector("#site-eu-west .mode");
			return [own.dataset.tone, own.textContent, site.dataset.tone, site.textContent].join("|");
		})() === "`+tone+"|"+region+"|"+tone+"|"+site+`"`)
	}
	notice(text + " (90 s left)")
	pills("warn", "its share counts as used", "share counts as used, 90 s left")
	b.await(t, 5*time.Second, `!document.getElementById("mode-text").textContent.includes("hold for all")`)
	b.await(t, 5*time.Second, `document.querySelector("#site-eu-west .why").textContent.includes("what it had admitted is not known")`)
	b.await(t, 5*time.Second, fits)
	b.screenshot(t, "burnt", true)
	f.set(func(f *figures) { f.now = sample(1_500) })
	notice(text + " (2 s left)")
	f.set(func(f *figures) { f.now = sample(0) })
	pills("good", "this region", "global")
	b.await(t, 5*time.Second, `document.getElementById("bounds-text").hidden`)
	if c := b.complained(); len(c) > 0 {
		t.Errorf("the console has %q", c)
	}
}
