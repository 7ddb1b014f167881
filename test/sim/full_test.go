package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/meshtest"
)

// TestRoomRunsOut: BUS-7. A process that receives more partitions than MaxSeries keeps to the
// bound, evicts nothing that still counts, and advertises that it is full: others keep to
// their shares. When the rush is over all is as before.
func TestRoomRunsOut(t *testing.T) {
	const room, tenants = 8, 40
	o := Options{Seed: 5, MaxSeries: room, Policies: []quota.Policy{{Name: "p", EnforcePercent: -1, Limits: []quota.Limit{
		{Name: "all", Units: 100, Window: 20 * time.Second, Scope: quota.ScopeGlobal},
	}}}}
	for i := range 3 {
		o.Regions = append(o.Regions, RegionOptions{Name: fmt.Sprintf("r%d", i)})
	}
	w := New(o)
	w.RunUntil(5 * time.Second)
	var share int
	before := make([]map[meshtest.Cell]int64, 3)
	for n := range 1200 {
		w.RunUntil(w.Now() + 50*time.Millisecond)
		if a := w.Check(n%3, fmt.Sprintf("t%d", n/3%tenants), 1); a.Decision.Mode == quota.ModePartitioned {
			share++
		}
		for i, p := range w.living() {
			if got := p.ceilings.Ledger().Series(); got > room {
				t.Fatalf("at %v %s knows %d partitions", w.Now(), p.self.Region, got)
			}
			before[i] = keeps(t, p, before[i])
		}
	}
	if share == 0 {
		t.Error("no region kept to its share, although a process was full")
	}
	w.RunUntil(w.Now() + 3*time.Minute)
	for i := range 3 {
		if a := w.Check(i, "late", 1); !a.Decision.Allowed || a.Decision.Mode != quota.ModeGlobal {
			t.Errorf("after the rush r%d decides %+v", i, a.Decision)
		}
	}
}

// keeps fails unless a process holds everything that it held before and that still
// counts, and returns what it holds now. Stores here show true time.
func keeps(t *testing.T, p *process, before map[meshtest.Cell]int64) map[meshtest.Cell]int64 {
	t.Helper()
	now := map[meshtest.Cell]int64{}
	for _, c := range meshtest.Cells(p.ceilings.Ledger()) {
		units := c.Units
		c.Units = 0
		now[c] = units
	}
	for c, units := range before {
		if ends := (c.Bucket + 2) * c.WindowUS; now[c] < units && ends > p.region.nowUS() {
			t.Fatalf("at %v %s held %d units of %+v and holds %d", p.region.w.Now(), p.self.Region, units, c, now[c])
		}
	}
	return now
}
