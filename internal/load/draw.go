package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Costs are what requests ask for: units between Min and Max, all equally likely.
type Costs struct {
	Min, Max int64
}

// ParseCosts reads "3", or a range such as "1-5", ends included.
func ParseCosts(text string) (Costs, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	least, err1 := strconv.ParseInt(first, 10, 64)
	most, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil {
		return Costs{}, errors.New("is a number of units, or a range such as 1-5")
	}
	c := Costs{Min: least, Max: most}
	if c.validate() != nil {
		return Costs{}, fmt.Errorf("is between 1 and %d units, the smaller end of a range first", quota.MaxUnits)
	}
	return c, nil
}

func (c Costs) validate() error {
	if c.Min < 1 || c.Max < c.Min || c.Max > quota.MaxUnits {
		return fmt.Errorf("cost is between 1 and %d units, not %v", quota.MaxUnits, c)
	}
	return nil
}

// String is what ParseCosts reads.
func (c Costs) String() string {
	if c.Min == c.Max {
		return strconv.FormatInt(c.Min, 10)
	}
	return fmt.Sprintf("%d-%d", c.Min, c.Max)
}

func (c Costs) draw(r *rand.Rand) int64 { return c.Min + r.Int64N(c.Max-c.Min+1) }

// zipf draws numbers from 0 on, of which k comes as often as 1/(k+1)^s: element k is the sum
// of the weights up to k. The standard library's wants s above 1, and the traffic of many
// tenants is near 1, or below.
type zipf []float64

func newZipf(count int, s float64) zipf {
	z, sum := make(zipf, count), 0.0
	for k := range z {
		sum += math.Pow(float64(k+1), -s)
		z[k] = sum
	}
	return z
}

func (z zipf) draw(r *rand.Rand) int {
	u := r.Float64() * z[len(z)-1]
	return min(sort.Search(len(z), func(k int) bool { return z[k] > u }), len(z)-1)
}
