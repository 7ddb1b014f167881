package overrides

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// regionStore is a region's Redis: it outlives processes, and may be emptied.
type regionStore struct {
	memory
	log []string
}

func newStore() *regionStore {
	return &regionStore{memory: memory{texts: map[string]string{}, lines: map[string][]string{}}}
}

func (s *regionStore) scan(_ context.Context, slice int, each func(tenant, text string)) error {
	s.mu.Lock() // slices are compared at the same time
	defer s.mu.Unlock()
	for tenant, text := range s.texts {
		if sliceOf(tenant) == slice {
			each(tenant, text)
		}
	}
	return nil
}

func (s *regionStore) announce(_ context.Context, tenant string) error {
	s.log = append(s.log, tenant)
	return nil
}

func (s *regionStore) edits(_ context.Context, at int64) ([]string, int64, bool, error) {
	n := int64(len(s.log))
	if at > n {
		return nil, n, false, nil
	}
	return s.log[at:], n, true, nil
}

// mesh is three regions of two processes each on a network that loses, repeats and delays, of one clock.
type mesh struct {
	*rapid.T
	now       time.Time
	stores    []*regionStore
	processes []*follower
	queue     []sent
	cut       int // the region that is cut off; -1: none
	largest   map[string]*quota.Override
}

type sent struct {
	from, to int
	payload  []byte
}

const perRegion = 2

func regionOf(process int) int { return process / perRegion }

// start has a process begin anew.
func (m *mesh) start(i int) {
	name := fmt.Sprint("region-", regionOf(i))
	top := &region.Topology{Policies: []quota.Policy{{Name: "p", Limits: []quota.Limit{{Name: "l", Units: 1000, Window: time.Minute}}}}, Tenants: region.Tenants{Default: &quota.Tenant{Policy: "p"}}}
	v, err := New(Options{
		Region: name, TimeUS: func() int64 { return m.now.UnixMicro() }, Now: func() time.Time { return m.now },
		Topology: func() *region.Topology { return top }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.Fatal(err)
	}
	v.keeper, v.shared = m.stores[regionOf(i)], m.stores[regionOf(i)]
	v.loaded.Store(false)
	v.Connect(Peers{
		Self: quota.Process{Region: name, Instance: fmt.Sprint(i), Boot: m.now.UnixMicro() + int64(i)}, Regions: func() []string { return nil },
		Live: func() []quota.Process { return nil }, // an edit waits for nobody
		Send: func(payload []byte) bool {
			for to := range m.processes {
				if regionOf(to) != regionOf(i) && m.cut != regionOf(i) && m.cut != regionOf(to) {
					m.queue = append(m.queue, sent{i, to, payload})
				}
			}
			return true
		},
	})
	m.processes[i] = &follower{Overlay: v, at: -1}
	m.step(i)
}

// step is what Run does when it wakes.
func (m *mesh) step(i int) {
	m.processes[i].step(m.Context())
	m.processes[i].advertise()
}

func (m *mesh) deliver(s sent) {
	m.processes[s.to].handle(m.Context(), received{m.processes[s.from].peers.Self, s.payload})
}

func (m *mesh) process() int {
	return rapid.IntRange(0, len(m.processes)-1).Draw(m.T, "process")
}

// Edit sets or deletes an override anywhere. With one process of a region away its store is edited all the same.
func (m *mesh) Edit(*rapid.T) {
	i, tenant := m.process(), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.T, "tenant")
	o := quota.Override{Tenant: tenant, By: "x", Reason: fmt.Sprint(i), Deleted: rapid.IntRange(0, 3).Draw(m.T, "delete") == 0}
	if !o.Deleted {
		o.Limits = []quota.OverrideLimit{{Name: "l", Units: rapid.Int64Range(0, 1000).Draw(m.T, "units")}}
	}
	before := m.processes[i].table.get(tenant)
	if _, err := m.processes[i].Edit(m.Context(), quota.Edit{Override: o}); err != nil {
		m.Fatal(err)
	}
	after := m.processes[i].table.get(tenant)
	if after == nil || before != nil && after.Version == before.Version {
		return
	}
	if l := m.largest[tenant]; l == nil || after.Version.Compare(l.Version) > 0 {
		m.largest[tenant] = after
	}
}

// Carry delivers a message out of order, loses it, or delivers it and keeps it.
func (m *mesh) Carry(*rapid.T) {
	if len(m.queue) == 0 {
		return
	}
	at := rapid.IntRange(0, len(m.queue)-1).Draw(m.T, "message")
	s, fate := m.queue[at], rapid.IntRange(0, 4).Draw(m.T, "fate")
	if fate != 0 {
		m.queue = append(m.queue[:at:at], m.queue[at+1:]...)
	}
	if fate != 1 {
		m.deliver(s)
	}
}

func (m *mesh) Advance(*rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(m.T, "ms")) * time.Millisecond)
	m.step(m.process())
}

func (m *mesh) Restart(*rapid.T) { m.start(m.process()) }

func (m *mesh) Cut(*rapid.T) { m.cut = rapid.IntRange(-1, 2).Draw(m.T, "cut") }

// Lose empties a region's store and ends its processes. Other regions have what they received of it, and it what they had.
func (m *mesh) Lose(*rapid.T) {
	r := regionOf(m.process())
	for tenant, l := range m.largest { // what nobody else has is gone with it
		known := false
		for i, p := range m.processes {
			o := p.table.get(tenant)
			known = known || regionOf(i) != r && o != nil && o.Version == l.Version
		}
		if !known {
			m.Skip("it would be lost")
		}
	}
	m.stores[r] = newStore()
	for i := range m.processes {
		if regionOf(i) == r {
			m.start(i)
		}
	}
}

// rest lets all messages arrive, those that are sent by then too, and reports what differs: in the memory of each process, and in
// the stores.
func (m *mesh) rest() (differs string) {
	m.cut = -1
	for range 8 {
		m.now = m.now.Add(2 * rootEvery)
		for i := range m.processes {
			m.step(i)
		}
		for len(m.queue) > 0 {
			s := m.queue[0]
			m.queue = m.queue[1:]
			m.deliver(s)
		}
	}
	for tenant, want := range m.largest {
		for i, p := range m.processes {
			if got := p.table.get(tenant); got == nil || got.Version != want.Version || !got.SameTerms(want) {
				return fmt.Sprintf("process %d has %+v of %s, want %+v", i, got, tenant, want)
			}
		}
		for r, s := range m.stores {
			if !strings.HasPrefix(s.texts[tenant], "1 "+want.Version.String()+" ") {
				return fmt.Sprintf("store %d has %q of %s, want %v", r, s.texts[tenant], tenant, want.Version)
			}
		}
	}
	return ""
}

// TestConvergence: whatever is edited where, whatever is lost, repeated, late, restarted, cut off or emptied, at rest all
// processes and stores hold the largest version of each override.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &mesh{T: t, now: time.UnixMicro(1_700_000_000_000_000), cut: -1, largest: map[string]*quota.Override{}, processes: make([]*follower, 3*perRegion)}
		m.stores = []*regionStore{newStore(), newStore(), newStore()}
		for i := range m.processes {
			m.start(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"edit": m.Edit, "edit again": m.Edit, "carry": m.Carry, "carry again": m.Carry, "carry more": m.Carry, "advance": m.Advance,
			"restart": m.Restart, "cut": m.Cut, "lose": m.Lose,
		})
		if differs := m.rest(); differs != "" {
			t.Fatal(differs)
		}
	})
}
