package sync

import "github.com/regiond/regiond/sync/wire"

// assembly follows the chunks of one author's newest digest until it is whole. The
// last chunk is the one whose index is one below its count, and only that one need
// know how many there are: an author that walks its totals piece by piece says in
// each of the others merely that another follows.
type assembly struct {
	digest uint64
	seen   []uint64 // a bit for each chunk
	heard  uint32   // how many bits are set
	total  uint32   // how many there are; 0 until the last was heard
	whole  bool
}

// add notes a chunk and reports whether the digest is whole by that. Chunks of an
// older digest, and repeated ones, change nothing. wire bounds the index.
func (a *assembly) add(c wire.Chunk) bool {
	if c.Snapshot < a.digest {
		return false
	}
	if c.Snapshot > a.digest {
		a.reset()
		a.digest = c.Snapshot
	}
	word, bit := int(c.Index/64), uint64(1)<<(c.Index%64)
	for len(a.seen) <= word {
		a.seen = append(a.seen, 0)
	}
	if a.whole || a.seen[word]&bit != 0 {
		return false
	}
	a.seen[word] |= bit
	a.heard++
	if c.Index+1 == c.Count {
		a.total = c.Count
	}
	a.whole = a.total > 0 && a.heard == a.total
	return a.whole
}

// reset forgets what was heard. What is still to come of the same digest does not
// make it whole, except for one of a single chunk.
func (a *assembly) reset() {
	a.seen, a.heard, a.total, a.whole = a.seen[:0], 0, 0, false
}
