package ledger_test

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// model is the reference model of a ledger, in plain maps and big numbers: no shards, slices,
// lists or indexes, and everything looked for by looking at everything.
type model struct {
	self    string
	boot    int64
	nowUS   int64
	regions int
	units   map[string]int64 // L
	cells   map[meshtest.Cell]*modelCounter
	states  map[modelSeries]modelState
	waits   map[modelSeries]modelWait
	limits  map[modelSeries]int64  // L by the newest change
	number  uint64                 // of the newest take
	numbers map[modelSeries]uint64 // of the newest that took from it
	turn    uint64                 // shard where the next take begins
	came    int                    // of the newest wait
	ended   []overshot
}

type modelSeries struct {
	id       uint64
	limit    string
	windowUS int64
}

type modelCounter struct {
	units, taken, began int64
	log                 []modelGrowth
}

// modelGrowth is units that came when a bucket had gone on for us, as a 64th of it.
type modelGrowth struct{ slot, units int64 }

// span is at least and at most as much as may be told: a slot is not known any finer, nor is a level.
type span struct{ least, most int64 }

func (s span) add(o span) span { return span{s.least + o.least, s.most + o.most} }

func (s span) has(units int64) bool { return s.least <= units && units <= s.most }

type modelState struct{ generation, storeUS int64 }

type modelWait struct {
	since  int64
	urgent bool
	came   int // counts the waits, as they begin and become urgent
}

type overshot struct {
	limit             string
	units, limitUnits int64
}

func newModel(self string, boot int64) *model {
	return &model{
		self: self, boot: boot, cells: map[meshtest.Cell]*modelCounter{},
		states: map[modelSeries]modelState{}, waits: map[modelSeries]modelWait{}, limits: map[modelSeries]int64{}, numbers: map[modelSeries]uint64{},
	}
}

func seriesOf(c meshtest.Cell) modelSeries { return modelSeries{c.ID, c.Limit, c.WindowUS} }

// named is a cell's name: the cell without units.
func (s modelSeries) named(region string, bucket, generation int64) meshtest.Cell {
	return meshtest.Cell{ID: s.id, Limit: s.limit, WindowUS: s.windowUS, Region: region, Bucket: bucket, Generation: generation}
}

func (w *model) over(c meshtest.Cell) bool {
	return w.cells[c].began+2*c.WindowUS <= w.nowUS
}

// raise finds or makes a cell, ends what is over in its series when it makes one, and has
// it hold that many units. It reports whether that is more than before.
func (w *model) raise(c meshtest.Cell, clockUS, units int64, stored bool) (t *modelCounter, grew bool) {
	began := min(w.nowUS, w.nowUS-clockUS+c.Bucket*c.WindowUS)
	if began+2*c.WindowUS <= w.nowUS {
		return nil, false
	}
	if w.cells[c] == nil {
		if stored && c.Bucket*c.WindowUS-clockUS > c.WindowUS+1_000_000 {
			return nil, false // from before the clock stepped back
		}
		w.finish(seriesOf(c))
		w.cells[c] = &modelCounter{began: began}
	}
	t = w.cells[c]
	if grew = units > t.units; grew {
		t.began = max(t.began, began)
		slot := min(63, (w.nowUS-t.began)*64/c.WindowUS)
		if n := len(t.log); n > 0 {
			slot = max(slot, t.log[n-1].slot) // it began later than we thought
		}
		t.log = append(t.log, modelGrowth{slot, units - t.units})
		t.units = units
	}
	return t, grew
}

func (w *model) record(s *ledger.Series, t quota.Counter, storeUS int64) {
	key := modelSeries{s.ID, s.Limit, s.WindowUS}
	if t.Generation != 0 && t.Units > 0 {
		if c, grew := w.raise(key.named(w.self, t.Bucket, t.Generation), storeUS, t.Units, true); grew {
			w.changed(key, c, s.Units)
		}
	}
	old, known := w.states[key]
	if late := known && storeUS < old.storeUS && storeUS >= old.storeUS-1_000_000; !late && w.hasOwn(key) {
		w.states[key] = modelState{t.Generation, storeUS}
	}
}

func (w *model) local(s *ledger.Series, units, storeUS int64) {
	key := modelSeries{s.ID, s.Limit, s.WindowUS}
	name := key.named(w.self, storeUS/s.WindowUS, w.boot)
	if t := w.cells[name]; t != nil {
		units += t.units
	}
	if c, grew := w.raise(name, storeUS, min(units, quota.MaxCounter), false); grew {
		w.changed(key, c, s.Units)
	}
}

func (w *model) changed(key modelSeries, c *modelCounter, limitUnits int64) {
	if w.regions == 1 {
		c.taken = c.units
		w.settle(key)
		return
	}
	w.limits[key] = limitUnits
	behind := new(big.Rat).SetInt64(w.unpublished(key))
	bound := big.NewRat(limitUnits, 100*int64(w.regions-1))
	w.wait(key, behind.Cmp(bound) > 0 && behind.Cmp(big.NewRat(1, 1)) > 0)
}

// wait puts a series into the outbox.
func (w *model) wait(key modelSeries, urgent bool) {
	wait, waits := w.waits[key]
	if waits && (wait.urgent || !urgent) {
		return
	}
	if !waits {
		wait.since = w.nowUS
	}
	w.came++
	w.waits[key] = modelWait{wait.since, urgent, w.came}
}

func (w *model) unpublished(key modelSeries) (units int64) {
	for c, t := range w.cells {
		if seriesOf(c) == key && c.Region == w.self {
			units += t.units - t.taken
		}
	}
	return units
}

func (w *model) hasOwn(key modelSeries) bool {
	for c := range w.cells {
		if seriesOf(c) == key && c.Region == w.self {
			return true
		}
	}
	return false
}

func (w *model) fold(author string, clockUS int64, groups []wire.Group, returned bool) {
	for _, g := range groups {
		for i, id := range g.IDs {
			key := modelSeries{id, g.Limit, g.WindowUS}
			if g.Units[i] == 0 {
				continue
			}
			c, grew := w.raise(key.named(author, g.Bucket, g.Generations[i]), clockUS, g.Units[i], false)
			_, waits := w.waits[key]
			switch {
			case c == nil:
			case returned && grew:
				w.wait(key, false)
			case author == w.self && !returned:
				c.taken = max(c.taken, g.Units[i])
				w.settle(key)
			case author != w.self && waits && grew:
				w.wait(key, true)
			}
		}
	}
}

// settle forgets what has ended.
func (w *model) settle(key modelSeries) {
	if w.unpublished(key) == 0 {
		delete(w.waits, key)
	}
	if !w.hasOwn(key) {
		delete(w.states, key)
		delete(w.numbers, key)
		delete(w.limits, key)
	}
}

// finish ends the aligned windows of a series in which nothing counts any more.
func (w *model) finish(key modelSeries) {
	type window struct {
		units    int64
		live     bool
		repeated bool // a region has renewed its key in it
	}
	windows := map[int64]window{}
	for c, t := range w.cells {
		if seriesOf(c) == key {
			v := windows[c.Bucket]
			v.units, v.live = v.units+t.units, v.live || !w.over(c)
			for o := range w.cells {
				v.repeated = v.repeated || seriesOf(o) == key && o != c && o.Region == c.Region && o.Bucket == c.Bucket &&
					quota.SameKey(o.Generation, c.Generation)
			}
			windows[c.Bucket] = v
		}
	}
	for c := range w.cells {
		if seriesOf(c) == key && !windows[c.Bucket].live {
			delete(w.cells, c)
		}
	}
	for _, v := range windows {
		if l, ok := w.units[key.limit]; ok && !v.live && !v.repeated {
			if own := w.limits[key]; own > 0 {
				w.ended = append(w.ended, overshot{key.limit, v.units, own})
			} else if v.units <= l {
				w.ended = append(w.ended, overshot{key.limit, v.units, l})
			}
		}
	}
	w.settle(key)
}

func (w *model) sweep() {
	for key := range w.series() {
		w.finish(key)
	}
}

func (w *model) series() map[modelSeries]bool {
	all := map[modelSeries]bool{}
	for c := range w.cells {
		all[seriesOf(c)] = true
	}
	return all
}

func (w *model) estimate(id uint64, windowUS int64, region string, atUS int64) (units span) {
	for c, t := range w.cells {
		if c.ID == id && c.Region == region {
			units = units.add(counted(c, t, windowUS, atUS))
		}
	}
	return units
}

func (w *model) lost(id uint64, windowUS, atUS int64) (units span) {
	for c, t := range w.cells {
		if c.ID != id || c.Region != w.self {
			continue
		}
		if c.Generation == w.boot || !quota.SameKey(c.Generation, w.held(seriesOf(c))) {
			units = units.add(counted(c, t, windowUS, atUS))
		}
	}
	return units
}

// held is the generation that the store has of a series: the newest of all until it was read.
func (w *model) held(key modelSeries) (generation int64) {
	if life, known := w.states[key]; known {
		return life.generation
	}
	for c := range w.cells {
		if seriesOf(c) == key && c.Region == w.self && c.Generation != w.boot {
			generation = max(generation, c.Generation)
		}
	}
	return generation
}

// known is the newest counter for a window that the store has to hold: of those of which
// something counts, or may count.
func (w *model) known(id uint64, windowUS, atUS int64, may bool) (newest quota.Counter) {
	for c, t := range w.cells {
		counts := counted(c, t, windowUS, atUS)
		if c.ID == id && c.Region == w.self && c.WindowUS == windowUS && c.Generation != w.boot &&
			quota.SameKey(c.Generation, w.held(seriesOf(c))) && (counts.least > 0 || may && counts.most > 0) {
			if k := (quota.Counter{Bucket: c.Bucket, Generation: c.Generation, Units: t.units}); k.Compare(newest) > 0 {
				newest = k
			}
		}
	}
	return newest
}

// counted is what is left of a counter: of a bucket that fades, what came in later slots than the
// one that has come to leave, and in that slot some of it.
func counted(c meshtest.Cell, t *modelCounter, windowUS, atUS int64) span {
	switch age := atUS - t.began; {
	case age >= c.WindowUS+windowUS:
		return span{}
	case c.WindowUS != windowUS || age < windowUS:
		return span{t.units, t.units}
	default:
		slot, s := (age-windowUS)*64/windowUS, span{t.units, t.units}
		for _, g := range t.log {
			if g.slot <= slot {
				s.least -= g.units
			}
			if g.slot < slot {
				s.most -= g.units
			}
		}
		if s.most > 0 {
			s.most = min(t.units, s.most+t.units/32)
		}
		return s
	}
}

// take gives what Take should, and marks it.
func (w *model) take(entries int, all bool) []meshtest.Cell {
	var out []meshtest.Cell
	for _, key := range w.order(all) {
		if len(out) == entries {
			break
		}
		var own []meshtest.Cell
		for c, t := range w.cells {
			switch {
			case seriesOf(c) != key || c.Region != w.self:
			case w.over(c):
				t.taken = t.units
			case t.units > t.taken:
				own = append(own, c)
			}
		}
		slices.SortFunc(own, meshtest.Compare)
		for _, c := range own[:min(len(own), entries-len(out))] {
			t := w.cells[c]
			t.taken, w.numbers[key] = t.units, w.number
			c.Units = t.units
			out = append(out, c)
		}
		if w.settle(key); len(out) == entries {
			w.turn = shardOf(key)
		}
	}
	slices.SortFunc(out, meshtest.Compare)
	return out
}

func shardOf(key modelSeries) uint64 { return key.id >> 58 }

// order is who goes first: who waited longer than 800 ms, the urgent, the others; of these by shard from the turn on, and then
// who came first.
func (w *model) order(all bool) []modelSeries {
	var keys []modelSeries
	for key, wait := range w.waits {
		if all || wait.urgent {
			keys = append(keys, key)
		}
	}
	rank := func(k modelSeries) int {
		switch wait := w.waits[k]; {
		case wait.urgent:
			return 1
		case w.nowUS-wait.since > 800_000:
			return 0
		}
		return 2
	}
	slices.SortFunc(keys, func(a, b modelSeries) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare((shardOf(a)-w.turn)%64, (shardOf(b)-w.turn)%64), w.waits[a].came-w.waits[b].came)
	})
	return keys
}

func (w *model) unsentUS() (age int64) {
	for _, wait := range w.waits {
		age = max(age, w.nowUS-wait.since)
	}
	return age
}

// list gives the counters for which keep holds.
func (w *model) list(keep func(meshtest.Cell) bool) []meshtest.Cell {
	var out []meshtest.Cell
	for c, t := range w.cells {
		if keep(c) {
			c.Units = t.units
			out = append(out, c)
		}
	}
	slices.SortFunc(out, meshtest.Compare)
	return out
}
