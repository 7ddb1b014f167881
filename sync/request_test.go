package sync

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/sync/wire"
)

// place is that of a chunk.
type place struct {
	Snapshot     uint64
	Index, Count uint32
}

// plainTracker keeps every chunk of every snapshot.
type plainTracker struct {
	received map[place]bool
	newest   uint64
	done     map[uint64]bool
}

func (d *plainTracker) add(c place) bool {
	d.newest = max(d.newest, c.Snapshot)
	if c.Snapshot != d.newest {
		return false
	}
	d.received[c] = true
	if d.done[c.Snapshot] {
		return false
	}
	for last := range d.received {
		if last.Snapshot == c.Snapshot && last.Index+1 == last.Count && d.all(last) {
			d.done[c.Snapshot] = true
			return true
		}
	}
	return false
}

// all reports whether each chunk up to the last was received.
func (d *plainTracker) all(last place) bool {
	indexes := map[uint32]bool{}
	for c := range d.received {
		if c.Snapshot == last.Snapshot {
			indexes[c.Index] = true
		}
	}
	return len(indexes) == int(last.Count)
}

func TestSnapshotIsWholeWhenAllChunksWereHeard(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Uint32Range(1, 130), 4, 4).Draw(rt, "chunks of each snapshot")
		streamed := rapid.Bool().Draw(rt, "streamed")
		tracker, plain := chunkTracker{}, plainTracker{received: map[place]bool{}, done: map[uint64]bool{}}
		snapshot, index := uint64(1), uint32(0)
		for range rapid.IntRange(1, 500).Draw(rt, "events") {
			at := snapshot
			switch rapid.IntRange(0, 19).Draw(rt, "event") {
			case 0, 1: // an old chunk
				at = rapid.Uint64Range(1, snapshot).Draw(rt, "old snapshot")
			case 2: // one out of order, or twice
				index = rapid.Uint32Range(0, sizes[snapshot-1]-1).Draw(rt, "index")
			}
			c := place{Snapshot: at, Index: min(index, sizes[at-1]-1), Count: sizes[at-1]}
			if streamed && c.Index+1 < c.Count {
				c.Count = c.Index + 2
			}
			if got, want := tracker.add(&wire.Chunk{Snapshot: c.Snapshot, Index: c.Index, Count: c.Count}), plain.add(c); got != want {
				rt.Fatalf("%+v makes it whole: %v, must be %v", c, got, want)
			}
			if index++; index >= sizes[snapshot-1] {
				index, snapshot = 0, min(snapshot+1, uint64(len(sizes)))
			}
		}
	})
}

// plainChanges keeps each number by itself.
type plainChanges struct {
	newest  uint64
	missing map[uint64]time.Duration
}

func (d *plainChanges) named(number uint64, now time.Duration) {
	for ; d.newest < number; d.newest++ {
		d.missing[d.newest+1] = now
	}
}

func TestChangesAreCompleteOrMissing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var c changes
		plain := plainChanges{missing: map[uint64]time.Duration{}}
		for now := time.Duration(1); now < 60; now++ {
			number := rapid.Uint64Range(1, plain.newest+5).Draw(rt, "number")
			switch rapid.IntRange(0, 5).Draw(rt, "event") {
			case 0:
				c.named(number, now)
				plain.named(number, now)
			case 1:
				c.filled(number)
				plain.named(number, now)
				maps.DeleteFunc(plain.missing, func(n uint64, _ time.Duration) bool { return n <= number })
			default:
				gap := number > plain.newest+1
				if got := c.arrived(number, now); got != gap {
					rt.Fatalf("%d after %d opens a gap: %v", number, plain.newest, got)
				}
				plain.named(number, now)
				delete(plain.missing, number)
			}
			complete, since := plain.newest, time.Duration(0)
			if len(plain.missing) > 0 {
				first := slices.Min(slices.Collect(maps.Keys(plain.missing)))
				complete, since = first-1, plain.missing[first]
			}
			missing := uint64(0)
			for _, g := range c.gaps {
				missing += g.to - g.from + 1
			}
			if c.complete() != complete || c.newest != plain.newest || missing != uint64(len(plain.missing)) || since > 0 && c.gaps[0].since != since {
				rt.Fatalf("%+v, must be complete up to %d, newest %d, %d missing since %d", c, complete, plain.newest, len(plain.missing), since)
			}
		}
	})
}

// However many gaps there are, their number is bounded, and nothing that is missing is
// forgotten.
func TestGapsAreBounded(t *testing.T) {
	var c changes
	for n := uint64(2); n < 1000; n += 2 {
		c.arrived(n, time.Duration(n))
	}
	if len(c.gaps) > maxGaps || c.complete() != 0 || c.gaps[0].since != 2 {
		t.Errorf("%d gaps, complete up to %d", len(c.gaps), c.complete())
	}
	c.filled(997)
	if c.complete() != 998 {
		t.Errorf("complete up to %d: %+v", c.complete(), c.gaps)
	}
}

func TestRingFindsTheLatestOnly(t *testing.T) {
	var r ring
	if _, ok := r.find(0); ok {
		t.Error("found a message that was never sent")
	}
	for seq := uint64(1); seq <= 3*ringSize; seq++ {
		r.add(sending{seq: seq, timeUS: int64(seq)})
		for _, back := range []uint64{0, 1, ringSize - 1, ringSize, ringSize + 1} {
			s, ok := r.find(seq - min(back, seq))
			if want := back < ringSize && back < seq; ok != want || ok && s.timeUS != int64(seq-back) {
				t.Fatalf("after %d, %d back: %+v, %v", seq, back, s, ok)
			}
		}
		if _, ok := r.find(seq + 1); ok {
			t.Fatalf("found %d before it was sent", seq+1)
		}
	}
}
