package view

import "math/bits"

// Set holds regions by their place in the topology, 0…127; a topology has at most
// region.MaxRegions. The zero value is empty. It is a value: copies are free.
type Set [2]uint64

// Has reports whether the i-th region is in the set.
func (s Set) Has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }

// With returns the set with the i-th region in it.
func (s Set) With(i int) Set {
	s[i>>6] |= 1 << (i & 63)
	return s
}

// Len is how many regions are in the set.
func (s Set) Len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }
