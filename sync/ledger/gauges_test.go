package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// held is a limit under which reservations hold units.
var held = ledger.Series{ID: hash(7), Limit: "a.tokens", Units: 600, WindowUS: time.Hour.Microseconds()}

// heldBy is what a ledger gives of a region: units used, and units held.
func heldBy(l *ledger.Ledger, region string, at time.Duration) (used, units int64) {
	all, holds := make([]int64, 4), make([]int64, 4)
	l.Estimates(held.ID, held.WindowUS, held.Units, at, all)
	l.Held(held.ID, at, holds)
	i := l.Region(region)
	return all[i] - holds[i], holds[i]
}

// keeper is the store of a region: what it has, and what it ever had.
type keeper struct {
	counter quota.Counter
	gauge   quota.Gauge
	ends    int64 // of the gauge, µs of the processes' clock
	skewUS  int64 // its TIME minus that
	past    []past
}

// past is what the store had between two changes of the gauge.
type past struct {
	generation, sequence int64
	units, ends          int64
	leastUsed, mostUsed  int64
	counter              quota.Counter
	gauge                quota.Gauge
	storeUS              int64
	atUS                 int64 // when it began, by the processes' clock
}

// copyOf is a gauge that came to a process.
type copyOf struct {
	generation, sequence, units, ends int64
}

// process is a ledger, and the reference model of what it has to know: every copy that ever came to it.
type process struct {
	*ledger.Ledger
	region string
	copies []copyOf
}

// holding is the world of a random program: eu-west with two processes on one store, and a process of us-east.
type holding struct {
	*rapid.T
	clock    fakeClock
	store    keeper
	all      []*process // two of eu-west, one of us-east
	messages []message
	number   uint64
}

// message is what a process has published.
type message struct {
	atUS   int64
	groups []wire.Group
}

func (h *holding) start(i int) {
	p := &process{region: "eu-west"}
	if i == 2 {
		p.region = "us-east"
	}
	p.Ledger = newLedger(h.T, &h.clock, func(o *ledger.Options) { o.Self, o.Boot = p.region, startUS+int64(i) })
	h.all[i] = p
}

func (h *holding) now() int64 { return h.clock.us.Load() }

func (h *holding) storeUS() int64 { return h.store.skewUS + h.now() }

// remember notes what the store has now.
func (h *holding) remember() {
	s := &h.store
	if n := len(s.past); n > 0 && s.past[n-1].generation == s.counter.Generation && s.past[n-1].sequence == s.gauge.Sequence {
		s.past[n-1].mostUsed = s.counter.Units
	} else {
		s.past = append(s.past, past{
			generation: s.counter.Generation, sequence: s.gauge.Sequence, units: s.gauge.Units, ends: s.ends,
			leastUsed: s.counter.Units, mostUsed: s.counter.Units, atUS: h.now(),
		})
	}
	last := &s.past[len(s.past)-1]
	last.counter, last.gauge, last.storeUS = s.counter, s.gauge, h.storeUS()
}

// Change reserves, settles or extends: the gauge is another one, and units may have been used.
func (h *holding) Change(*rapid.T) {
	s := &h.store
	if s.counter.Generation == 0 {
		near := func(p past) bool { return quota.SameKey(p.generation, h.storeUS()) }
		for slices.ContainsFunc(s.past, near) { // a store does not lose its data and have its clock step within a millisecond
			h.clock.us.Add(10_000)
		}
		s.counter = quota.Counter{Generation: h.storeUS(), Bucket: h.storeUS() / held.WindowUS}
	}
	s.gauge.Sequence++
	s.gauge.Units, s.ends = 0, 0
	if s.gauge.UntilUS = 0; rapid.IntRange(0, 3).Draw(h.T, "none") > 0 {
		left := rapid.Int64Range(1, 49_000_000).Draw(h.T, "left")
		s.gauge.Units, s.gauge.UntilUS, s.ends = rapid.Int64Range(1, 300).Draw(h.T, "units"), h.storeUS()+left, h.now()+left
	}
	s.counter.Units += rapid.Int64Range(0, 2).Draw(h.T, "used")
	h.remember()
}

// Charge uses units and changes no gauge.
func (h *holding) Charge(*rapid.T) {
	if h.store.counter.Generation != 0 {
		h.store.counter.Units++
		h.remember()
	}
}

// Lose empties the store; its clock may step back with that.
func (h *holding) Lose(*rapid.T) {
	h.store.counter, h.store.gauge, h.store.ends = quota.Counter{}, quota.Gauge{}, 0
	h.Step(h.T)
}

// Step sets the store's clock.
func (h *holding) Step(*rapid.T) {
	before := h.store.skewUS
	h.store.skewUS += rapid.Int64Range(-3_000_000, 3_000_000).Draw(h.T, "step")
	if h.store.gauge.UntilUS > 0 { // the set's clock goes on, and what the next change says is by the new TIME
		h.store.gauge.UntilUS += h.store.skewUS - before
		h.store.gauge.Sequence++
		h.remember()
	}
}

func (h *holding) Advance(*rapid.T) {
	h.clock.us.Add(rapid.OneOf(rapid.Int64Range(0, 500_000), rapid.Int64Range(0, 60_000_000)).Draw(h.T, "us"))
}

// Record has a process see what the store has, or what it had just before.
func (h *holding) Record(*rapid.T) {
	n := len(h.store.past)
	if n == 0 {
		return
	}
	p := h.all[rapid.IntRange(0, 1).Draw(h.T, "process")]
	was := h.store.past[max(0, n-1-rapid.IntRange(0, 1).Draw(h.T, "ago"))]
	if h.storeUS()-was.storeUS > 500_000 || was.storeUS-h.storeUS() > 500_000 { // no reply takes longer
		was = h.store.past[n-1]
		was.storeUS = h.storeUS()
	}
	if was.counter.Generation != h.store.counter.Generation {
		return // it is lost
	}
	p.Record(&held, was.counter, was.gauge, was.storeUS)
	left := max(0, was.gauge.UntilUS-was.storeUS)
	p.copies = append(p.copies, copyOf{was.generation, was.sequence, was.units, h.now() + left})
}

// Publish has a process send what has changed, or all that it has.
func (h *holding) Publish(*rapid.T) {
	p := h.all[rapid.IntRange(0, 1).Draw(h.T, "process")]
	h.number++
	if groups := p.Take(8, true, h.number); len(groups) > 0 {
		h.messages = append(h.messages, message{h.now(), groups})
	}
	if rapid.IntRange(0, 3).Draw(h.T, "snapshot") == 0 {
		for groups := range p.Live("eu-west", 0, 8) {
			h.messages = append(h.messages, message{h.now(), groups})
		}
	}
}

// Deliver gives one of the messages, of which some never come and some come again, to a process.
func (h *holding) Deliver(*rapid.T) {
	h.messages = slices.DeleteFunc(h.messages, func(m message) bool { return m.atUS+10_000_000 <= h.now() }) // none is so late
	if len(h.messages) == 0 {
		return
	}
	p := h.all[rapid.IntRange(0, 2).Draw(h.T, "to")]
	i := len(h.messages) - 1 - rapid.IntRange(0, min(5, len(h.messages)-1)).Draw(h.T, "message")
	sent := wire.Append(nil, &wire.Usage{
		Head: wire.Head{From: quota.Process{Region: "eu-west", Instance: "one", Boot: 1}, Seq: 1}, Number: 1, TimeUS: h.storeUS(), Groups: h.messages[i].groups,
	})
	got, err := wire.Decode[*wire.Usage](sent)
	if err != nil {
		h.Fatal(err)
	}
	if err := p.Fold("eu-west", h.storeUS(), h.clock.now(), got.Groups, false); err != nil {
		h.Fatal(err)
	}
	for _, g := range got.Groups {
		for row, c := range g.Gauges {
			if c.Sequence > 0 {
				p.copies = append(p.copies, copyOf{g.Generations[row], c.Sequence, c.Units, h.now() + c.LeftUS})
			}
		}
		for row, generation := range g.Generations {
			if len(g.Gauges) == 0 || g.Gauges[row].Sequence == 0 {
				first := slices.IndexFunc(h.store.past, func(s past) bool { return s.generation == generation })
				if h.store.past[first].atUS+60_000_000 > h.now() {
					h.Fatalf("a counter of generation %d came without its gauge", generation)
				}
			}
		}
	}
}

// Restart begins another life of a process, which knows nothing.
func (h *holding) Restart(*rapid.T) { h.start(rapid.IntRange(0, 2).Draw(h.T, "which")) }

func (h *holding) Sweep(*rapid.T) {
	for _, p := range h.all {
		sweep(p.Ledger)
	}
}

// expected is what a process has to count as held: of each key the copy with the largest sequence, until the first end that
// one of its kind says; of several keys the most.
func (p *process) expected(now int64) (units int64, newest map[int64]copyOf) {
	newest = map[int64]copyOf{}
	for _, c := range p.copies {
		n, known := newest[c.generation]
		switch {
		case !known, c.sequence > n.sequence:
			newest[c.generation] = c
		case c.sequence == n.sequence:
			n.ends = min(n.ends, c.ends)
			newest[c.generation] = n
		}
	}
	for _, c := range newest {
		if now < c.ends {
			units = max(units, c.units)
		}
	}
	return units, newest
}

// Check holds each process to the model, and what it counts to what the store had: used and held are of one moment, and
// nothing is forgotten before it ends.
func (h *holding) Check(*rapid.T) {
	for i, p := range h.all {
		want, newest := p.expected(h.now())
		used, units := heldBy(p.Ledger, "eu-west", h.clock.now())
		if units != want {
			h.Fatalf("process %d counts %d held, want %d", i, units, want)
		}
		least, most := int64(0), int64(0)
		forgotten := len(h.store.past) > 0 && h.store.past[0].atUS+60_000_000 <= h.now() // what has ended
		for generation, c := range newest {
			at := slices.IndexFunc(h.store.past, func(s past) bool { return s.generation == generation && s.sequence == c.sequence })
			if at < 0 {
				h.Fatalf("process %d has gauge %d of generation %d, which the store never had", i, c.sequence, generation)
			}
			was := h.store.past[at]
			if c.units != was.units || c.ends < was.ends && was.units > 0 {
				h.Fatalf("process %d has %d units until %d, the store had %d until %d", i, c.units, c.ends, was.units, was.ends)
			}
			least, most = least+was.leastUsed, most+was.mostUsed
		}
		if used < least || used > most && !forgotten {
			h.Fatalf("process %d counts %d used beside gauge %s: it was %d to %d then", i, used, fmt.Sprint(newest), least, most)
		}
	}
}

// TestGauges: whatever is lost, repeated, late or out of order, and whoever restarts, a process counts as held what the
// latest gauge that ever came to it says, until that ends, and as used what was used then. Without the order, with the
// arrival in its place, with keys that are ordered by their time of birth, or with a gauge that travels apart from what was
// used, this fails.
func TestGauges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &holding{T: t, all: make([]*process, 3), store: keeper{skewUS: startUS}}
		h.clock.us.Store(1_000_000)
		for i := range h.all {
			h.start(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": h.Check, "change": h.Change, "change again": h.Change, "charge": h.Charge, "lose": h.Lose, "step": h.Step, "advance": h.Advance,
			"record": h.Record, "record again": h.Record, "publish": h.Publish, "publish again": h.Publish,
			"deliver": h.Deliver, "deliver again": h.Deliver, "deliver once more": h.Deliver, "restart": h.Restart, "sweep": h.Sweep,
		})
	})
}

// TestForgedGaugeEnds: a gauge with the largest number that there is, which only one can make who has the key, hides those of its
// region for as long as any gauge may count, and a minute or two more: two processes that give it to each other do not keep it.
func TestForgedGaugeEnds(t *testing.T) {
	var clock fakeClock
	clock.us.Store(1_000_000)
	from, to := newLedger(t, &clock, nil), newLedger(t, &clock, nil)
	fold := func(l *ledger.Ledger, groups []wire.Group) {
		if err := l.Fold("us-east", startUS+clock.us.Load(), clock.now(), groups, false); err != nil {
			t.Fatal(err)
		}
	}
	gauge := func(sequence, units int64) []wire.Group {
		return []wire.Group{{
			Limit: held.Limit, WindowUS: held.WindowUS, Bucket: startUS / held.WindowUS, IDs: []uint64{held.ID},
			Generations: []int64{startUS}, Units: []int64{0}, Gauges: []wire.Gauge{{Sequence: sequence, Units: units, LeftUS: maxLeftUS}},
		}}
	}
	fold(from, gauge(wire.EndOfTime, 600))
	const step = 20 * time.Second
	for after := step; ; after += step {
		clock.advance(step)
		for groups := range from.Live("us-east", 0, 8) {
			fold(to, groups)
		}
		from, to = to, from
		fold(from, gauge(startUS+clock.us.Load(), 7))
		sweep(from)
		_, units := heldBy(from, "us-east", clock.now())
		_, others := heldBy(to, "us-east", clock.now())
		if units == 7 && others == 7 {
			return
		}
		if after > time.Hour+3*time.Minute {
			t.Fatalf("after %v %d and %d units are held, want 7 and 7", after, units, others)
		}
	}
}

// maxLeftUS is the longest that a gauge lasts.
const maxLeftUS = int64(quota.MaxTTL / time.Microsecond)

// TestGaugeBesideSnapshot: a hold of the longest time that is recorded while a snapshot is made does not last longer in it, which
// receivers would refuse with all that is in the message.
func TestGaugeBesideSnapshot(t *testing.T) {
	var clock fakeClock
	clock.us.Store(1_000_000)
	var l *ledger.Ledger
	sequence, overtaken := int64(0), false
	record := func() {
		now := startUS + clock.us.Load()
		sequence++
		c := quota.Counter{Generation: startUS, Bucket: now / held.WindowUS}
		l.Record(&held, c, quota.Gauge{Sequence: sequence, Units: 60, UntilUS: now + maxLeftUS}, now)
	}
	l = newLedger(t, &clock, func(o *ledger.Options) {
		o.Now = func() time.Duration {
			now := clock.now()
			if overtaken {
				overtaken = false // the Record asks for the time too
				clock.advance(time.Millisecond)
				record()
				overtaken = true
			}
			return now
		}
	})
	record()
	overtaken = true
	pieces := slices.Collect(l.Live("eu-west", 0, 8))
	overtaken = false
	if len(pieces) != 1 || sequence < 2 {
		t.Fatalf("%d pieces after %d records", len(pieces), sequence)
	}
	if g := pieces[0][0].Gauges[0]; g.LeftUS < maxLeftUS/2 || g.LeftUS > maxLeftUS {
		t.Errorf("%d µs are left, want %d at most", g.LeftUS, maxLeftUS)
	}
}

// TestGaugeOutOfRange: what a store cannot have noted is not published, since receivers would refuse all that is in the message; its
// counter is.
func TestGaugeOutOfRange(t *testing.T) {
	for _, g := range []quota.Gauge{
		{Sequence: wire.EndOfTime + 1, Units: 60, UntilUS: startUS + maxLeftUS},
		{Sequence: 1, Units: quota.MaxUnits + 1, UntilUS: startUS + maxLeftUS},
		{Sequence: 1, Units: -1, UntilUS: startUS + maxLeftUS},
	} {
		var clock fakeClock
		l := newLedger(t, &clock, nil)
		l.Record(&held, quota.Counter{Generation: startUS, Bucket: startUS / held.WindowUS, Units: 5}, g, startUS)
		groups := l.Take(8, true, 1)
		if len(groups) != 1 || groups[0].Units[0] != 5 || groups[0].Gauges != nil {
			t.Errorf("%+v: published %+v", g, groups)
		}
	}
}
