package ledger

import "math/bits"

// slots is how many parts of its bucket the growth of a counter is known for.
const slots = 64

// growth is how a counter grew while its bucket lasted: a path through a grid of 64 slots of
// time by 64 levels of units. Read from the lowest bit, a 0 rises by a level and a 1 ends a
// slot. What comes in the last slot, or after the bucket, is not in it: that is the rest of the
// counter, which the zeros above stand for.
//
// A level is 2^shiftOf(units), so that there are 32 to 63 of them once there are as many units.
// As soon as units outgrow that, levels are halved, which is exact: the levels of a path are those that
// the finer numbers rounded down would have given at once.
//
// There are at most 63 of each, so the two highest bits are none of the path. The highest is guessed.
type growth [2]uint64

// guessed is set in the second word while some of the path may be too late: earlier messages were missing.
const guessed = uint64(1) << 63

func (g *growth) isGuess() bool { return g[1]&guessed != 0 }

// shiftOf is by how much units are shifted right to be a level, 0 to 63.
func shiftOf(units int64) int { return max(0, bits.Len64(uint64(units))-6) }

// grow notes that a counter had from units until a slot, and has to in that slot. A slot
// before the last one that grew counts as that: our clock has been there.
func (g *growth) grow(slot int64, from, to int64) {
	ended := g.slot()
	if n := int(min(slot, slots-1)) - ended; n > 0 {
		g.put(uint(from>>shiftOf(from))+uint(ended), uint(n))
	}
	if by := shiftOf(to) - shiftOf(from); by > 0 {
		g.coarsen(by)
	}
}

// slot is the one in which the counter last grew: as many as have ended.
func (g *growth) slot() int { return bits.OnesCount64(g[0]) + bits.OnesCount64(g[1]&^guessed) }

// fits reports whether the path can be that of so many units.
func (g *growth) fits(units int64) bool {
	ended, last := g.slot(), 64+bits.Len64(g[1]&^guessed)
	if last == 64 {
		last = bits.Len64(g[0])
	}
	return ended < slots && int64(last-ended) <= units>>shiftOf(units)
}

// put puts n ones from a bit on.
func (g *growth) put(at, n uint) {
	ones := uint64(1)<<n - 1
	g[0] |= ones << at
	g[1] |= ones>>(64-at) | ones<<(at-64) // a shift by too much, as one below 0 is, gives 0
}

// coarsen makes a level of 2^by.
func (g *growth) coarsen(by int) {
	fine, ended := *g, uint(0)
	*g = growth{0, fine[1] & guessed}
	for i, word := range []uint64{fine[0], fine[1] &^ guessed} {
		for ; word != 0; word &= word - 1 {
			level := uint(64*i+bits.TrailingZeros64(word)) - ended
			g.put(level>>by+ended, 1)
			ended++
		}
	}
}

// left is what is yet to fade of units when a window has gone on for us since the bucket ended:
// what grew in the slots before has faded, and of the present slot a part, by a line. If much more
// grew in it than in the slot before, that was a burst whose time within the slot is not known;
// so the line ends by no more than that and two levels, and the rest goes with the slot.
// 0 <= us < windowUS.
func (g *growth) left(units, us, windowUS int64) int64 {
	slot := us * slots / windowUS
	part := us*slots - slot*windowUS
	at := g.end(slot)
	if at == never {
		return 0
	}
	shift := shiftOf(units)
	faded, rise := (at-slot+1)<<shift, int64(2)<<shift
	if slot > 0 {
		rise += faded - (g.end(slot-1)-slot+2)<<shift
	}
	if next := g.end(slot + 1); next < never {
		rise = min(rise, (next-slot)<<shift-faded)
	}
	rise = min(rise, units-faded)
	return units - faded - int64(float64(rise)*(float64(part)/float64(windowUS)))
}

// never is the end of a slot that has not ended.
const never = 128

// end is the bit that ends so many slots; -1 is the beginning.
func (g *growth) end(ended int64) int64 {
	word, n, from := g[0], int(ended), int64(0)
	if n == 0 {
		return -1
	}
	if ones := bits.OnesCount64(word); n > ones {
		word, n, from = g[1]&^guessed, n-ones, 64
		if n > bits.OnesCount64(word) {
			return never
		}
	}
	for half := 32; half > 0; half /= 2 { // the n-th one is in the lower half, or in the upper
		if ones := bits.OnesCount64(word & (1<<half - 1)); ones < n {
			word, n, from = word>>half, n-ones, from+int64(half)
		}
	}
	return from
}
