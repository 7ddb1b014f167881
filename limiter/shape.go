package limiter

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// Shape is a set of limits that are decided together, grouped by the key that
// each is asked of. Requests of one policy for which the same limits apply have
// the same shape. Immutable, shared between goroutines.
type Shape struct {
	keys   []keyShape
	limits []*quota.Limit // flattened in the order of keys: the order of ceilings and verdicts
	order  []int          // order[i] is the place of limits[i] among the limits given
	global int            // how many of the limits are global
	wire   []any          // the shape's ARGV, see lua/decide.lua

	capacities []int64 // of limits: the ceilings where no other region has a part in it
}

// keyShape is one Redis key: a log that any number of limits question, or the
// counters of a single limit.
type keyShape struct {
	kind   byte // 'l' log, 'w' window, 'g' level
	limits []*quota.Limit
	trim   int64 // the log keeps this many admissions: the largest L
	ttl    time.Duration

	longest int64 // the longest W, µs
	step    int64 // of the mirror, for the limit that remembers longest, µs
}

// ttlMargin is added to two windows so that no answer depends on a TTL: clocks
// of Redis and its replicas may differ, and a small step forward loses nothing.
const ttlMargin = time.Minute

// NewShape groups limits by key. They must be valid and apply together.
func NewShape(limits []*quota.Limit) *Shape {
	s := &Shape{}
	for _, l := range limits {
		k := slices.IndexFunc(s.keys, func(k keyShape) bool {
			return k.kind == 'l' && l.Algorithm == quota.SlidingLog && quota.SamePartition(k.limits[0], l)
		})
		if k < 0 {
			s.keys = append(s.keys, keyShape{kind: kindOf(l.Algorithm)})
			k = len(s.keys) - 1
		}
		key := &s.keys[k]
		key.limits = append(key.limits, l)
		key.trim = max(key.trim, l.Units)
		key.ttl = max(key.ttl, ttlOf(l))
		key.longest = max(key.longest, l.WindowUS())
		key.step = max(key.step, mirrorStep(l))
	}
	s.flatten(limits)
	s.encode()
	return s
}

func kindOf(a quota.Algorithm) byte {
	switch a {
	case quota.SlidingWindow:
		return 'w'
	case quota.GCRA:
		return 'g'
	default:
		return 'l'
	}
}

// ttlOf is two windows and a margin, or for a level the longest that it can take
// to drain: an expired level is an empty one.
func ttlOf(l *quota.Limit) time.Duration {
	if l.Algorithm != quota.GCRA {
		return 2*l.Window + ttlMargin
	}
	// Reports can hold four times the capacity; validation bounds the drain of one.
	full := (quota.Level{Units: 4 * l.Capacity()}).Falls(0, l.Units, l.WindowUS())
	return time.Duration(full)*time.Microsecond + l.Window + ttlMargin
}

func (s *Shape) flatten(limits []*quota.Limit) {
	for _, k := range s.keys {
		for _, l := range k.limits {
			s.limits = append(s.limits, l)
			s.capacities = append(s.capacities, l.Capacity())
			s.order = append(s.order, slices.Index(limits, l))
			if l.Scope == quota.ScopeGlobal {
				s.global++
			}
		}
	}
}

func (s *Shape) encode() {
	add := func(v int64) { s.wire = append(s.wire, strconv.FormatInt(v, 10)) }
	add(int64(len(s.keys)))
	for _, k := range s.keys {
		s.wire = append(s.wire, string(k.kind))
		add(k.trim)
		add(k.ttl.Milliseconds())
		add(int64(len(k.limits)))
		for _, l := range k.limits {
			add(l.WindowUS())
			if l.Scope != quota.ScopeGlobal {
				add(l.Capacity())
				add(l.Units)
				continue
			}
			s.wire = append(s.wire, "-")
			add(l.Units)
			add(l.BucketUS())
			add(int64(earlierBuckets(l)))
		}
	}
}

// Keys returns the keys of a request in the shape's order. They are injective:
// two partitions never share a key, whatever tenant and values contain.
//
//	rl:{acme}:l:standard:user:2.42:      the log of user 42 under policy standard
//	rl:{acme}:w.daily:standard:::        the window counters of limit daily
//
// prefix is quota.AppendPrefix of the tenant.
func (s *Shape) Keys(prefix, policy string, dims quota.Dimensions) []string {
	var names []string
	return s.appendKeys(&names, []byte(prefix), policy, dims)
}

// appendKeys is Keys, whose strings are one allocation, appended to names.
func (s *Shape) appendKeys(names *[]string, prefix []byte, policy string, dims quota.Dimensions) []string {
	var room [256]byte
	buf := room[:0]
	var ends [quota.MaxLimits]int
	for i := range s.keys {
		k := &s.keys[i]
		buf = append(buf, prefix...)
		buf = append(buf, k.kind)
		if k.kind != 'l' {
			buf = append(buf, '.')
			buf = append(buf, k.limits[0].Name...)
		}
		buf = append(buf, ':')
		buf = quota.AppendPartition(buf, policy, k.limits[0], dims)
		ends[i] = len(buf)
	}
	all, from, first := string(buf), 0, len(*names)
	for _, end := range ends[:len(s.keys)] {
		*names = append(*names, all[from:end])
		from = end
	}
	return (*names)[first:len(*names):len(*names)]
}

// earlierBuckets is how many buckets of a total still count beside the newest.
func earlierBuckets(l *quota.Limit) int { return max(l.GlobalBuckets, 2) - 1 }

// Totals returns the keys of the usage totals of a request's global limits, in
// the shape's order, nil without any. They are injective as Keys are, and a limit
// whose buckets change their length begins new ones: CutBuckets gives what they share.
//
//	rl:{acme}:t.sustained.60000000:standard:::   limit sustained, buckets of a minute
func (s *Shape) Totals(prefix, policy string, dims quota.Dimensions) []string {
	if s.global == 0 {
		return nil
	}
	keys := make([]string, 0, s.global)
	for _, l := range s.limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		buf := make([]byte, 0, 160)
		buf = append(buf, prefix...)
		buf = append(buf, totalMark...)
		buf = append(buf, l.Name...)
		buf = append(buf, '.')
		buf = strconv.AppendInt(buf, l.BucketUS(), 10)
		buf = append(buf, ':')
		keys = append(keys, string(quota.AppendPartition(buf, policy, l, dims)))
	}
	return keys
}

// totalMark begins the name of a total below its tenant.
const totalMark = "t."

// CutBuckets takes the length of the buckets out of the key of a usage total: before
// and after it, together, name the partition and the limit however it is counted.
// Any other key is left whole, as before. It allocates nothing.
//
//	rl:{acme}:t.sustained.60000000:standard:::   rl:{acme}:t.sustained and :standard:::
func CutBuckets(total string) (before, after string) {
	_, rest, _ := strings.Cut(total, "}") // a tenant's id has no brace
	_, rest, _ = strings.Cut(rest, ":")
	name, _, _ := strings.Cut(rest, ":")
	dot := strings.LastIndexByte(name, '.')
	if !strings.HasPrefix(name, totalMark) || dot < len(totalMark) {
		return total, ""
	}
	begin := len(total) - len(rest)
	return total[:begin+dot], total[begin+len(name):]
}

// recordKey is where the admission of a tenant's Idempotency-Key is kept. The
// tenant is named again because newcomers beyond max_unknown share a prefix.
func recordKey(prefix, tenant, key string) string {
	return prefix + "i:" + strconv.Itoa(len(tenant)) + "." + tenant + ":" + key
}
