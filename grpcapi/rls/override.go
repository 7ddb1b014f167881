package rls

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// override is the name of the limits, and of the dimension, of rules that come with a request.
const override = "override"

// Override is the rule of a limit that comes with a descriptor. It holds in one region: the others do not know it. nil
// means that no limit can be made of it.
func Override(perUnit uint32, unit int32, multiplier uint32) *Rule {
	i := slices.IndexFunc(units, func(u unitName) bool { return u.number == unit })
	if i < 0 || multiplier < 1 || int64(multiplier) > int64(quota.MaxWindow/units[i].lasts) {
		return nil
	}
	l := &quota.Limit{Name: override, Units: int64(perUnit), Window: units[i].lasts * time.Duration(multiplier), By: []string{override}}
	if l.Units > quota.MaxLogUnits {
		l.Algorithm = quota.SlidingWindow
	}
	return &Rule{Path: override, Limit: l, PerUnit: perUnit, Unit: unit, Multiplier: multiplier, own: true}
}

// RuleOf is what a status says of a limit: its units, per what, and its name. Unit is 0 where the protocol has no unit for it.
func RuleOf(l *quota.Limit) Rule {
	r := Rule{Name: l.Name, PerUnit: uint32(min(l.Units, math.MaxUint32)), Multiplier: 1} //nolint:gosec // it is 0 or more
	named := func(name string) {                                                          // with as many of a unit as there are in the window
		i := slices.IndexFunc(units, func(u unitName) bool { return u.name == name })
		r.Unit, r.Multiplier = units[i].number, uint32(l.Window/units[i].lasts) //nolint:gosec // it is at most MaxWindow in seconds
	}
	switch {
	case l.Calendar != nil:
		named(l.Calendar.Unit.String())
	case l.Algorithm == quota.Concurrent || l.Window%time.Second != 0:
	case l.Window == 30*24*time.Hour:
		named("month")
	case l.Window%(24*time.Hour) == 0:
		named("day")
	case l.Window%time.Hour == 0:
		named("hour")
	case l.Window%time.Minute == 0:
		named("minute")
	default:
		named("second")
	}
	return r
}

// whole is one id for all keys and values of a descriptor under limits of one window. Those of another have another log: what
// a shorter window has left behind, the longer one still counts.
func whole[E Entry](window time.Duration, entries []E) string {
	text := binary.AppendUvarint(nil, uint64(window)) //nolint:gosec // it is above 0
	for _, e := range entries {
		for _, s := range [...]string{e.GetKey(), e.GetValue()} {
			text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
		}
	}
	sum := sha256.Sum256(text)
	return hashed + base64.RawURLEncoding.EncodeToString(sum[:])
}
