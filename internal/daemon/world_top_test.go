package daemon

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/meshtest"
)

// ranked is what a process answers of the last minute.
func (p *node) ranked(by quota.TopBy, scope quota.Scope) quota.TopReport {
	p.w.t.Helper()
	v, err := p.top(quota.TopQuery{By: by, Window: time.Minute, Scope: scope, Rows: quota.MaxTopRows})
	if err != nil {
		p.w.t.Fatal(err)
	}
	return v
}

// rowsOf are a report's rows, each as tenant and bounds.
func rowsOf(v quota.TopReport) string {
	var all []string
	for _, r := range v.Rows {
		all = append(all, fmt.Sprintf("%s %d-%d", r.Tenant, r.AtLeast, r.AtMost))
	}
	return strings.Join(all, ", ")
}

// TestWorldTop: what processes of all regions denied adds up, siblings' too, with no name on the
// bus in clear. A region that is cut off is named and no longer counted.
func TestWorldTop(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(10, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		eu.start("two")
		w.await("the sibling sees every other", 10*time.Second, w.global)
		var sent []meshsync.Message
		eu.one().bus.(*meshtest.Bus).Spy(func(m meshsync.Message) {
			if strings.HasPrefix(m.Subject, meshsync.SubjectTop) {
				sent = append(sent, m)
			}
		})
		admitted := int64(0)
		deny := func(p *node, tenant string, times int) {
			t.Helper()
			for p.askFor(tenant, 1).Allowed {
				admitted++
				time.Sleep(10 * time.Millisecond)
			}
			for range times - 1 {
				if p.askFor(tenant, 1).Allowed {
					t.Fatalf("%s admits %s", p.home.name, tenant)
				}
			}
		}
		deny(eu.one(), "acme", 100)
		deny(eu.processes[1], "acme", 20)
		deny(us.one(), "acme", 30)
		deny(ap.one(), "acme", 7)
		deny(ap.one(), "globex", 300)
		time.Sleep(top.ShareEvery + time.Second)

		for _, p := range w.alive {
			v := p.ranked(quota.TopDenied, quota.ScopeGlobal)
			if got := rowsOf(v); got != "globex 300-300, acme 157-157" || v.Total != 457 || v.Processes != 4 || len(v.Absent)+len(v.Notes) > 0 ||
				!slices.Equal(v.Regions, []string{"eu-west", "us-east", "ap-south"}) || v.BehindMS > 6000 {
				t.Errorf("%s/%s: %s in %+v", p.home.name, p.options.Instance, got, v)
			}
		}
		if got := rowsOf(eu.one().ranked(quota.TopDenied, quota.ScopeRegion)); got != "acme 120-120" {
			t.Errorf("eu-west alone: %s", got)
		}
		if used := eu.one().ranked(quota.TopUsed, quota.ScopeGlobal); used.Total != admitted || used.Total < 20 {
			t.Errorf("%d admitted, used: %+v", admitted, used)
		}
		if len(sent) == 0 {
			t.Fatal("nothing was sent")
		}
		for _, m := range sent {
			if bytes.Contains(m.Data, []byte("acme")) || bytes.Contains(m.Data, []byte("standard")) {
				t.Errorf("names are in clear in %q", m.Data)
			}
		}

		w.isolate(2, true)
		time.Sleep(20 * time.Second)
		v := us.one().ranked(quota.TopDenied, quota.ScopeGlobal)
		if got := rowsOf(v); got != "acme 150-150" || !slices.Equal(v.Absent, []string{"ap-south"}) || !slices.Equal(v.Regions, []string{"eu-west", "us-east"}) {
			t.Errorf("without ap-south: %s in %+v", got, v)
		}
	})
}

// TestWorldTopAlone: with share_top: false nothing is sent and each process counts for itself, and says so.
func TestWorldTopAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, "share_top: false\n"+worldOf(10, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us := w.regions[0].one(), w.regions[1].one()
		for _, p := range []*node{eu, us} {
			p.bus.(*meshtest.Bus).Spy(func(m meshsync.Message) {
				if strings.HasPrefix(m.Subject, meshsync.SubjectTop) {
					t.Errorf("%s sends %q", p.home.name, m.Subject)
				}
			})
			p.ask(3)
		}
		time.Sleep(2 * top.ShareEvery)
		v := eu.ranked(quota.TopUsed, quota.ScopeGlobal)
		if rowsOf(v) != "acme 3-3" || !slices.Equal(v.Absent, []string{"us-east", "ap-south"}) || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "share_top is false") {
			t.Errorf("%+v", v)
		}
		if _, err := eu.top(quota.TopQuery{Policy: "none", Window: time.Minute, Rows: 1}); err == nil || !strings.Contains(err.Error(), `"none" is not a policy`) {
			t.Errorf("of an unknown policy: %v", err)
		}
	})
}
