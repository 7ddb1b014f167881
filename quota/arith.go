package quota

import "math/bits"

// MulDiv returns the quotient and the remainder of a·b ÷ d without overflow.
// a and b are not negative, d is positive, and the quotient must fit an int64:
// MulDiv panics otherwise, as an integer division by zero does.
func MulDiv(a, b, d int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(d))
	return int64(q), int64(r)
}

// MulDivUp is MulDiv rounded up.
func MulDivUp(a, b, d int64) int64 {
	q, r := MulDiv(a, b, d)
	if r > 0 {
		q++
	}
	return q
}

// productAbove reports whether a·b > c·d, none of them negative.
func productAbove(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}
