package rls

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// override is the name of the limits, and of the dimension, of rules that come with a request.
const override = "override"

// Override is the rule of a limit that comes with a descriptor. It holds in one region: the others do not know it. false
// means that no limit can be made of it.
func Override(perUnit uint32, unit int32, multiplier uint32) (*Rule, bool) {
	i := slices.IndexFunc(units, func(u unitName) bool { return u.number == unit })
	if i < 0 || multiplier < 1 || int64(multiplier) > int64(quota.MaxWindow/units[i].lasts) {
		return nil, false
	}
	l := &quota.Limit{Name: override, Units: int64(perUnit), Window: units[i].lasts * time.Duration(multiplier), By: []string{override}}
	if l.Units > quota.MaxLogUnits {
		l.Algorithm = quota.SlidingWindow
	}
	return &Rule{Path: override, Limit: l, PerUnit: perUnit, Unit: unit, Multiplier: multiplier, own: true}, true
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
