package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Overshoot is by how much all regions together may exceed a global limit in any window: 1 more than hundredths
// of a percent of its units. The zero value is none: nothing bounds what they admit before they know of each other.
type Overshoot uint32

const (
	// Strict is max_overshoot: 0%.
	Strict Overshoot = 1
	// MaxOvershoot is max_overshoot: 1000%, the largest.
	MaxOvershoot = Strict + 1000*hundredths
	// hundredths is how many steps of an Overshoot are a percent.
	hundredths = 100
)

var errOvershoot = errors.New("must be none or a percentage between 0% and 1000% with at most two decimals, such as 10%")

// UnmarshalText reads "none", or a percentage with at most two decimals such as "10%" or "0.25%".
func (o *Overshoot) UnmarshalText(text []byte) error {
	*o = 0
	if string(text) == "none" {
		return nil
	}
	number, ok := strings.CutSuffix(string(text), "%")
	whole, part, _ := strings.Cut(number, ".")
	n, err := strconv.ParseUint(whole+(part + "00")[:2], 10, 32)
	if !ok || len(part) > 2 || strings.HasSuffix(number, ".") || err != nil || whole == "" || n > uint64(MaxOvershoot-Strict) {
		return fmt.Errorf("%w, is %q", errOvershoot, Clip(string(text)))
	}
	*o = Strict + Overshoot(n)
	return nil
}

// String is what UnmarshalText reads, without needless digits.
func (o Overshoot) String() string {
	if o == 0 {
		return "none"
	}
	return strconv.FormatFloat(float64(o-Strict)/hundredths, 'f', -1, 64) + "%"
}

// Bound is B = ⌊L·(1+x)⌋, the most units that all regions together admit in any window of a limit with
// max_overshoot: x. It is false for a limit without one.
func (l *Limit) Bound() (units int64, ok bool) {
	if l.MaxOvershoot == 0 {
		return 0, false
	}
	more, _ := MulDiv(l.Units, int64(l.MaxOvershoot-Strict), 100*hundredths)
	return l.Units + more, true
}

// Bound is this region's part of a limit's bound B. The zero value admits nothing.
type Bound struct {
	// Share is how many units of B the region may use before it lends or borrows any: the least of what it has under
	// all topologies that may be in force somewhere. 0…B.
	Share int64
	// Epoch is that of the data in the region's store, see loan.Store; 0 means that it is not known, and closes the bound.
	Epoch uint32
	// OpenFromUS is the store's TIME from which on anything is admitted: before, what was lent and used by data that
	// are lost may still count. 0 means at once.
	OpenFromUS int64
}
