package quota

import (
	"cmp"
	"strconv"
)

// Counter is how many units one region has admitted of a partition in one bucket of
// time, in one generation. It only grows. Two counters of the same bucket and
// generation merge to the larger; counters of different generations are added.
type Counter struct {
	// Bucket numbers a stretch of the author's store clock: it lasts from
	// Bucket·length to (Bucket+1)·length, µs since the epoch. Under a limit with a calendar it is Period.Number.
	Bucket int64
	// Generation is the TIME (µs) at which the author's store created the key of the
	// counter; see SameKey.
	Generation int64
	Units      int64 // 0…MaxCounter
	// EndsUS is the TIME of the author's store at which the period Bucket ends, of a limit with a calendar; else 0.
	EndsUS int64
}

// Gauge is how many units the open reservations of one region hold of a partition under a global limit. In one
// generation of the counter that it belongs to (SameKey), the one with the larger Sequence holds.
type Gauge struct {
	Sequence int64 // the store's TIME of the change, or one more than the last if that is larger; 0: nothing was ever held
	Units    int64 // 0…MaxUnits
	UntilUS  int64 // the store's TIME at which the last hold ends, 0 without any
}

// CounterKey names the usage counter of one partition under one global limit, in
// buckets as long as the limit's window or in periods of its calendar.
type CounterKey struct {
	// Tenant is "" for the partition that unlisted tenants beyond max_unknown share.
	Tenant        string
	Policy, Limit string
	Partition     string // AppendPartition of the request
	WindowUS      int64  // Limit.WindowUS when the units were counted
	// Calendar is Calendar.ID of a limit with one, else "". Periods of calendars that divide time differently have
	// nothing in common, so their counters are never added up.
	Calendar string
}

// AppendID appends the text by which regions identify the counter to each other: all
// of the key but the window, which a calendar says too. While a reload that changes that has not reached every
// process, and until what was admitted before has aged out, one partition has counters
// of several windows, and its usage is the sum of them all.
// Injective, since no part contains a space.
func (k *CounterKey) AppendID(dst []byte) []byte {
	for _, part := range [...]string{k.Tenant, k.Policy, k.Limit} {
		dst = append(dst, part...)
		dst = append(dst, ' ')
	}
	if dst = append(dst, k.Partition...); k.Calendar != "" {
		dst = append(append(dst, ' '), k.Calendar...)
	}
	return dst
}

// Of reports whether the key is one under a limit as it is now: with the same window or calendar.
func (k *CounterKey) Of(l *Limit) bool {
	return k.WindowUS == l.WindowUS() && k.Calendar == l.Calendar.ID()
}

// AppendLoansID appends the text by which regions identify loans under the limit to each other: all of the key. How long
// a loan is used and its record stands goes by the window, so regions with different ones do not lend to each other.
func (k *CounterKey) AppendLoansID(dst []byte) []byte {
	return strconv.AppendInt(append(k.AppendID(dst), ' '), k.WindowUS, 10)
}

const (
	// MaxCounter is where a counter stops growing: reports may go past every limit,
	// and beyond 4·MaxUnits one more changes no answer.
	MaxCounter = 4 * MaxUnits
	// maxRenewals is how many generations one key can go through.
	maxRenewals = 1000
)

// SameKey reports whether two generations were counted in one key that the store
// has held all the time. When a store's clock steps back, its buckets start over
// under the next number, generation+1, and nothing is lost. A key that the store
// lost and created again starts at a TIME of its own.
func SameKey(a, b int64) bool {
	d := a - b
	return -maxRenewals < d && d < maxRenewals
}

// Compare orders the counters of one key as the store has them one after the other.
func (c Counter) Compare(o Counter) int {
	return cmp.Or(cmp.Compare(c.Generation, o.Generation), cmp.Compare(c.Bucket, o.Bucket), cmp.Compare(c.Units, o.Units))
}

// Holds reports whether a store whose counter is c has lost nothing since it was known,
// zero for none: neither the key nor its last writes.
func (c Counter) Holds(known Counter) bool {
	return known.Generation == 0 || SameKey(c.Generation, known.Generation) && c.Compare(known) >= 0
}
