package limiter

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// KeyPlan is a set of limits that are decided together, grouped by the key that
// each is asked of. Requests of one policy for which the same limits apply have
// the same key plan. Immutable, shared between goroutines.
type KeyPlan struct {
	keys   []plannedKey
	limits []*quota.Limit // flattened in the order of keys: the order of ceilings and verdicts
	order  []int          // order[i] is the place of limits[i] among the limits given
	global int            // how many of the limits are global
	wire   []any          // the plan's ARGV, see lua/decide.lua

	capacities []int64 // of limits: the ceilings where no other region has a part in it
}

// plannedKey is one Redis key: a log that any number of limits question, or the
// counters of a single limit.
type plannedKey struct {
	kind   byte // 'l' log, 'w' window, 'g' level
	limits []*quota.Limit
	trim   int64 // the log keeps this many admissions: the largest L
	ttl    time.Duration

	longest int64 // the longest W, µs
	step    int64 // of recent usage, for the limit that looks back furthest, µs
}

// ttlMargin is added to two windows so that no answer depends on a TTL: clocks
// of Redis and its replicas may differ, and a small step forward loses nothing.
const ttlMargin = time.Minute

// NewKeyPlan groups limits by key. They must be valid and apply together.
func NewKeyPlan(limits []*quota.Limit) *KeyPlan {
	s := &KeyPlan{}
	for _, l := range limits {
		k := slices.IndexFunc(s.keys, func(k plannedKey) bool {
			return k.kind == 'l' && l.Algorithm == quota.SlidingLog && quota.SamePartition(k.limits[0], l)
		})
		if k < 0 {
			s.keys = append(s.keys, plannedKey{kind: kindOf(l.Algorithm)})
			k = len(s.keys) - 1
		}
		key := &s.keys[k]
		key.limits = append(key.limits, l)
		key.trim = max(key.trim, l.Units)
		key.ttl = max(key.ttl, ttlOf(l))
		key.longest = max(key.longest, l.WindowUS())
		key.step = max(key.step, recentStep(l))
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

func (s *KeyPlan) flatten(limits []*quota.Limit) {
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

func (s *KeyPlan) encode() {
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

// AppendKeys appends the keys of a request to names, in the plan's order. They are injective:
// two partitions never share a key, whatever tenant and values contain.
//
//	rl:{acme}:l:standard:user:2.42:      the log of user 42 under policy standard
//	rl:{acme}:w.daily:standard:::        the window counters of limit daily
//
// The tenant "" stands for the partition that unlisted tenants share. All the strings
// are one allocation.
func (s *KeyPlan) AppendKeys(names []string, tenant, policy string, dims quota.Dimensions) []string {
	var array [256]byte
	buf := array[:0]
	var ends [quota.MaxLimits]int
	for i := range s.keys {
		k := &s.keys[i]
		buf = append(appendPrefix(buf, tenant), k.kind)
		if k.kind != 'l' {
			buf = append(buf, '.')
			buf = append(buf, k.limits[0].Name...)
		}
		buf = append(buf, ':')
		buf = append(buf, policy...)
		buf = append(buf, ':')
		buf = quota.AppendPartition(buf, k.limits[0], dims)
		ends[i] = len(buf)
	}
	all, from := string(buf), 0
	for _, end := range ends[:len(s.keys)] {
		names = append(names, all[from:end])
		from = end
	}
	return names
}

// AppendCounters appends the keys of the usage counters of a request's global limits to
// counters, in the plan's order. keys are those of AppendKeys for the request.
func (s *KeyPlan) AppendCounters(counters []quota.CounterKey, keys []string, tenant, policy string) []quota.CounterKey {
	if s.global == 0 {
		return counters
	}
	for i := range s.keys {
		k := &s.keys[i]
		before := prefixLen(tenant) + len("l:") + len(policy) + len(":")
		if k.kind != 'l' {
			before += len(".") + len(k.limits[0].Name)
		}
		for _, l := range k.limits {
			if l.Scope == quota.ScopeGlobal {
				counters = append(counters, quota.CounterKey{
					Tenant: tenant, Policy: policy, Limit: l.Name, Partition: keys[i][before:], BucketUS: l.BucketUS(),
				})
			}
		}
	}
	return counters
}

// earlierBuckets is how many buckets of a counter still count beside the newest.
func earlierBuckets(l *quota.Limit) int { return max(l.GlobalBuckets, 2) - 1 }

const (
	// sharedPrefix begins the keys of the one partition per limit that unlisted
	// tenants beyond max_unknown share. After the brace of a tenant comes a colon.
	sharedPrefix = "rl:{*}*:"
	// counterMark begins the name of a usage counter below its tenant.
	counterMark = "t."
)

// appendPrefix appends the beginning of all keys of a tenant, "rl:{tenant}:". The
// braces make a Redis Cluster keep them in one slot; ids contain none.
func appendPrefix(dst []byte, tenant string) []byte {
	if tenant == "" {
		return append(dst, sharedPrefix...)
	}
	dst = append(dst, "rl:{"...)
	dst = append(dst, tenant...)
	return append(dst, "}:"...)
}

func prefixLen(tenant string) int {
	if tenant == "" {
		return len(sharedPrefix)
	}
	return len("rl:{}:") + len(tenant)
}

// appendCounterKey appends the Redis key of a usage counter:
//
//	rl:{acme}:t.sustained.60000000:standard:user:2.42:   limit sustained, buckets of a minute
func appendCounterKey(dst []byte, c *quota.CounterKey) []byte {
	dst = append(appendPrefix(dst, c.Tenant), counterMark...)
	dst = append(dst, c.Limit...)
	dst = append(dst, '.')
	dst = strconv.AppendInt(dst, c.BucketUS, 10)
	dst = append(dst, ':')
	dst = append(dst, c.Policy...)
	dst = append(dst, ':')
	return append(dst, c.Partition...)
}

// parseCounterKey reads what appendCounterKey has written. It is false for any other key.
func parseCounterKey(key string) (c quota.CounterKey, ok bool) {
	rest, shared := strings.CutPrefix(key, sharedPrefix)
	if !shared {
		if rest, ok = strings.CutPrefix(key, "rl:{"); !ok {
			return c, false
		}
		c.Tenant, rest, _ = strings.Cut(rest, "}:")
	}
	name, rest, _ := strings.Cut(rest, ":")
	c.Policy, c.Partition, ok = strings.Cut(rest, ":")
	dot := strings.LastIndexByte(name, '.')
	if !ok || !strings.HasPrefix(name, counterMark) || dot < len(counterMark) {
		return c, false
	}
	bucketUS, err := strconv.ParseInt(name[dot+1:], 10, 64)
	c.Limit, c.BucketUS = name[len(counterMark):dot], bucketUS
	return c, err == nil && bucketUS > 0
}

// recordKey is where the admission of a tenant's Idempotency-Key is kept, in the slot
// of the partition's tenant, which differs for those that share one.
func recordKey(partition, tenant, key string) string {
	return string(appendPrefix(nil, partition)) + "i:" + strconv.Itoa(len(tenant)) + "." + tenant + ":" + key
}

// keyOf returns the place of the key that the i-th limit is counted under.
func (s *KeyPlan) keyOf(i int) int {
	for k := range s.keys {
		if i -= len(s.keys[k].limits); i < 0 {
			return k
		}
	}
	return len(s.keys) - 1
}
