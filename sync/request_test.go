package sync

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/sync/wire"
)

// plainTracker keeps every chunk of every snapshot.
type plainTracker struct {
	received map[wire.Chunk]bool
	newest   uint64
	done     map[uint64]bool
}

func (d *plainTracker) add(c wire.Chunk) bool {
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
func (d *plainTracker) all(last wire.Chunk) bool {
	indexes := map[uint32]bool{}
	for c := range d.received {
		if c.Snapshot == last.Snapshot {
			indexes[c.Index] = true
		}
	}
	return len(indexes) == int(last.Count)
}

func (d *plainTracker) reset() { clear(d.received) }

func TestSnapshotIsWholeWhenAllChunksWereHeard(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Uint32Range(1, 130), 4, 4).Draw(rt, "chunks of each snapshot")
		streamed := rapid.Bool().Draw(rt, "streamed")
		tracker, plain := chunkTracker{}, plainTracker{received: map[wire.Chunk]bool{}, done: map[uint64]bool{}}
		snapshot, index := uint64(1), uint32(0)
		for range rapid.IntRange(1, 500).Draw(rt, "events") {
			at := snapshot
			switch rapid.IntRange(0, 19).Draw(rt, "event") {
			case 0: // a silence
				tracker.reset()
				plain.reset()
				plain.done[plain.newest] = false
				continue
			case 1: // an old chunk
				at = rapid.Uint64Range(1, snapshot).Draw(rt, "old snapshot")
			case 2: // one out of order, or twice
				index = rapid.Uint32Range(0, sizes[snapshot-1]-1).Draw(rt, "index")
			}
			c := wire.Chunk{Snapshot: at, Index: min(index, sizes[at-1]-1), Count: sizes[at-1]}
			if streamed && c.Index+1 < c.Count {
				c.Count = c.Index + 2
			}
			if got, want := tracker.add(c), plain.add(c); got != want {
				rt.Fatalf("%+v makes it whole: %v, must be %v", c, got, want)
			}
			if index++; index >= sizes[snapshot-1] {
				index, snapshot = 0, min(snapshot+1, uint64(len(sizes)))
			}
		}
	})
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
