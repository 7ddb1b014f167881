package top

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// counted is a sketch beside what it counts, exactly.
type counted struct {
	*sketch
	exact map[string]int64
	total int64
	held  int // the fewest counters that it had when it dropped one
}

func (c *counted) add(of string, units int64) {
	before := c.floor
	c.sketch.add(c.hash(of), units, name{key: of})
	c.exact[of] += units
	c.total += units
	if c.floor > before {
		c.held = min(c.held, len(c.heap))
	}
}

// lose is an event whose name the sketch does not learn.
func (c *counted) lose(name string, units int64) {
	c.sketch.lose(units, units)
	c.exact[name] += units
	c.total += units
}

func (c *counted) hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// check holds a sketch to its bounds.
func (c *counted) check(t rapid.TB) {
	t.Helper()
	if len(c.heap) > c.room || c.text > textBytes {
		t.Fatalf("%d counters with %d bytes of names, allowed are %d and %d", len(c.heap), c.text, c.room, textBytes)
	}
	if c.sketch.total != c.total {
		t.Fatalf("counted %d units, there were %d", c.sketch.total, c.total)
	}
	if c.floor > c.total/int64(max(1, c.held)) {
		t.Fatalf("the floor is %d, more than %d units ÷ %d counters", c.floor, c.total, c.held)
	}
	held := map[string]bool{}
	for _, s := range c.heap {
		held[s.name.key] = true
		if truth := c.exact[s.name.key]; truth < s.low || truth > s.count+c.lost {
			t.Fatalf("%s had %d units, the sketch says %d to %d", s.name.key, truth, s.low, s.count+c.lost)
		}
	}
	for name, truth := range c.exact {
		if !held[name] && truth > c.floor+c.lost {
			t.Fatalf("%s had %d units and is not held, although the floor is %d, with %d lost", name, truth, c.floor, c.lost)
		}
		if m := int64(max(1, c.held)); !held[name] && truth-c.lost > c.total/m {
			t.Fatalf("%s had %d of %d units, more than one in %d, and is not held", name, truth, c.total, m)
		}
	}
}

func newCounted(room int) *counted {
	return &counted{sketch: newSketch(room), exact: map[string]int64{}, held: room}
}

// draw has a sketch count events of which some names have most.
func (c *counted) draw(t *rapid.T) {
	long := strings.Repeat("x", rapid.SampledFrom([]int{0, 0, 9_000}).Draw(t, "long"))
	for range rapid.IntRange(0, 60).Draw(t, "events") {
		n := rapid.IntRange(0, 40).Draw(t, "name")
		if rapid.Bool().Draw(t, "hot") {
			n %= 3
		}
		name, units := fmt.Sprintf("%s%d", long, n), rapid.Int64Range(1, 20).Draw(t, "units")
		if rapid.IntRange(0, 15).Draw(t, "lost") == 0 {
			c.lose(name, units)
		} else {
			c.add(name, units)
		}
	}
	c.check(t)
}

// join is the merged sketch of some, with what all of them counted.
func join(all []*counted) *counted {
	m := newCounted(all[0].room)
	var of []*sketch
	for _, c := range all {
		of = append(of, c.sketch)
		for name, units := range c.exact {
			m.exact[name] += units
		}
		m.total += c.total
		m.held = min(m.held, c.held)
	}
	if m.sketch = merged(of...); m.floor > 0 {
		m.held = min(m.held, len(m.heap))
	}
	return m
}

// TestSketch: sketches beside exact maps, merged, counting on, and merged again.
func TestSketch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 12).Draw(t, "room")
		var all []*counted
		for range rapid.IntRange(1, 4).Draw(t, "sketches") {
			c := newCounted(room)
			c.draw(t)
			all = append(all, c)
		}
		m := join(all)
		m.check(t)
		if len(all) > 1 {
			m.draw(t)
			join([]*counted{m, all[0]}).check(t)
		}
	})
}

// TestSketchLarge: of 20,000 names each with more than a thousandth is found.
func TestSketchLarge(t *testing.T) {
	t.Parallel()
	c := newCounted(Counters)
	for i := range 100_000 {
		c.add(fmt.Sprintf("tenant-%d standard minute ::", i*i%20_011), 1)
		if i%50 == 0 {
			c.add(fmt.Sprintf("heavy-%d standard minute ::", i/50%10), 1+int64(i%7))
		}
	}
	c.check(t)
	names := slices.Sorted(maps.Keys(c.exact))
	if len(c.heap) != Counters || len(names) < 10_000 {
		t.Errorf("%d counters of %d names", len(c.heap), len(names))
	}
}
