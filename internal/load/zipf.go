package load

import (
	"math"
	"math/rand/v2"
	"slices"
)

// zipf draws numbers from 0 on, of which k comes as often as 1/(k+1)^s. The standard
// library's wants s above 1, and the traffic of many tenants is near 1, or below.
type zipf struct {
	// upTo[k] is the chance of a number that is at most k; the last is 1.
	upTo []float64
}

func newZipf(count int, s float64) *zipf {
	z := &zipf{upTo: make([]float64, count)}
	sum := 0.0
	for k := range z.upTo {
		sum += math.Pow(float64(k+1), -s)
		z.upTo[k] = sum
	}
	for k := range z.upTo {
		z.upTo[k] /= sum
	}
	return z
}

func (z *zipf) draw(r *rand.Rand) int { return z.at(r.Float64()) }

// at is the number that a chance u of [0, 1) stands for: the first with upTo above u.
func (z *zipf) at(u float64) int {
	k, exactly := slices.BinarySearch(z.upTo, u)
	if exactly {
		k++ // [0, upTo[0]) is 0's: the end belongs to the next
	}
	return min(k, len(z.upTo)-1)
}
