package sync_test

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// resetInbox is what processes receive about resets, by region and instance.
type resetInbox struct {
	mu  sync.Mutex
	all map[string][]wire.Reset
}

func (b *resetInbox) add(name string, r *wire.Reset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[name] = append(b.all[name], *r)
}

func (b *resetInbox) of(name string) []wire.Reset {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all[name])
}

func (b *resetInbox) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.all)
}

// resetWorld is a process in each of two regions and a second one in us, of which all but eu keep
// what they receive about resets.
func resetWorld(t *testing.T, f func(w *world, eu *node, join func(region, instance string, boot int64) *node, got *resetInbox)) {
	t.Helper()
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		got := &resetInbox{all: map[string][]wire.Reset{}}
		join := func(region, instance string, boot int64) *node {
			n := w.newNode(region, instance, boot, 0)
			n.onReset = func(r *wire.Reset) { got.add(region+instance, r) }
			n.start(newCounters(n))
			return n
		}
		eu := w.newNode("eu", "a", 1, 0)
		eu.resets = func() iter.Seq2[string, []wire.Cut] {
			return maps.All(map[string][]wire.Cut{"globex": {{Region: "us", UpTo: startUS, State: wire.CutDeleted}}})
		}
		eu.start(newCounters(eu))
		join("us", "a", 2)
		join("us", "b", 3)
		sleep(2 * time.Second)
		f(w, eu, join, got)
	}, "eu", "us")
}

// A request to delete reaches all processes once, however often its record is sent again, and
// shows no tenant to the bus. A cut may come again.
func TestResetsTravel(t *testing.T) {
	resetWorld(t, func(_ *world, eu *node, join func(string, string, int64) *node, got *resetInbox) {
		got.clear()
		sent := eu.spy()
		to := []quota.Process{{Region: "us", Instance: "a", Boot: 2}}
		eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", To: to})
		sleep(time.Second)
		eu.SendReset(wire.Reset{ID: 7, Tenant: "acme", Cuts: []wire.Cut{{Region: "eu", UpTo: startUS}}})
		sleep(time.Second)
		records := sent(meshsync.SubjectReset)
		if len(records) != 2 {
			t.Fatalf("%d messages", len(records))
		}
		for _, name := range []string{"usa", "usb"} {
			if all := got.of(name); len(all) != 2 || all[0].Tenant != "acme" || all[0].ID != 7 || !slices.Equal(all[0].To, to) || len(all[1].Cuts) != 1 {
				t.Errorf("%s received %+v", name, all)
			}
		}
		for _, m := range records {
			if bytes.Contains(m.Data, []byte("acme")) {
				t.Errorf("the tenant is in clear in %q", m.Data)
			}
		}
		late := join("us", "c", 4)
		sleep(2 * time.Second)
		got.clear()
		for range 3 {
			late.bus.Inject(records[0].Subject, records[0].Data)
			late.bus.Inject(records[1].Subject, records[1].Data)
		}
		sleep(time.Second)
		// It never had a request, and the record names another process.
		if all := got.of("usc"); len(all) != 4 || len(all[0].To) != 1 || all[0].To[0].Instance != "a" {
			t.Errorf("the late process took %+v", all)
		}
		if n := late.counter("regiond.sync.refused", "reason", "stale"); n != 2 {
			t.Errorf("%d records of a request were refused", n)
		}
		// Under another region's subject, or changed, nothing of it is taken.
		got.clear()
		changed := slices.Clone(records[1].Data)
		changed[len(changed)/2] ^= 1
		late.bus.Inject(meshsync.SubjectReset+"us", records[1].Data)
		late.bus.Inject(records[1].Subject, changed)
		sleep(time.Second)
		if len(got.of("usc")) != 0 {
			t.Errorf("taken: %+v", got.of("usc"))
		}
	})
}

// Who starts, or was cut off, is given the cuts of all tenants.
func TestCutsAreRepeated(t *testing.T) {
	resetWorld(t, func(w *world, _ *node, join func(string, string, int64) *node, got *resetInbox) {
		given := func(name string) bool {
			return slices.ContainsFunc(got.of(name), func(r wire.Reset) bool {
				return r.Tenant == "globex" && len(r.To) == 0 && len(r.Cuts) == 1 && r.Cuts[0] == wire.Cut{Region: "us", UpTo: startUS, State: wire.CutDeleted}
			})
		}
		join("us", "c", 4)
		sleep(2 * time.Second)
		if !given("usc") {
			t.Errorf("the newcomer received %+v", got.of("usc"))
		}
		for _, cut := range []bool{true, false} {
			w.net.Set("us", "eu", meshtest.Link{Latency: oneWay, Cut: cut})
			w.net.Set("eu", "us", meshtest.Link{Latency: oneWay, Cut: cut})
			sleep(5 * time.Second)
			if cut {
				got.clear()
			}
		}
		if !given("usa") || !given("usb") {
			t.Errorf("after the heal %+v and %+v", got.of("usa"), got.of("usb"))
		}
	})
}
