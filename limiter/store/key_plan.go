package store

import (
	"fmt"
	"math/big"
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
	Keys          []PlannedKey
	Limits        []*quota.Limit // flattened in the order of keys: the order of ceilings and verdicts
	Order         []int          // order[i] is the place of limits[i] among the limits given
	KeyOf         []int          // KeyOf[i] is the place of the key that limits[i] is counted under
	Global        int            // how many of the limits are global
	Bounded       int            // how many of those have a bound
	Holding       int            // how many of the keys take holds
	Periods       bool           // some key has periods
	GlobalPeriods int            // how many of the global limits have
	mostTTL       time.Duration  // TTL
	Wire          []any          // the plan's ARGV, see redisstore/lua/decide.lua

	Capacities []int64 // of limits: the ceilings where no other region has a part in it
}

// PlannedKey is one Redis key: a log that any number of limits question, or the
// counters of a single limit.
type PlannedKey struct {
	Kind   byte // 'l' log, 'w' window, 'g' level, 'p' periods, 'c' nothing but holds
	Holds  bool // reservations hold units under the key: it counts tokens, or is of kind 'c'
	Limits []*quota.Limit
	Trim   int64         // the log keeps this many admissions: the largest L or bound
	TTL    time.Duration // of a level what it has beyond its drain, of periods beyond the end of the newest
	Life   time.Duration // the longest that it can live after its last charge

	Longest int64 // the longest W, µs; that of a bounded limit as long as a Bound may make it

	calendar string // Calendar.ID of periods
}

// ttlMargin is at most added to what a key needs, so that no answer depends on a TTL.
const ttlMargin = time.Minute

// margin is how long a key lives beyond two windows, or a level beyond its drain: DESIGN.md.
func margin(l *quota.Limit) time.Duration {
	if l.MaxOvershoot > 0 {
		return ttlMargin
	}
	return max(2*time.Second, min(l.Window, ttlMargin))
}

// NewKeyPlan groups limits by key. They must be valid and apply together.
func NewKeyPlan(limits []*quota.Limit) *KeyPlan { return newKeyPlan(limits, quota.SamePartition) }

// NewChargesPlan gives each limit a key of its own, in the given order: each counts other values, and one may be given
// more than once.
func NewChargesPlan(limits []*quota.Limit) *KeyPlan {
	return newKeyPlan(limits, func(_, _ *quota.Limit) bool { return false })
}

func newKeyPlan(limits []*quota.Limit, together func(a, b *quota.Limit) bool) *KeyPlan {
	kinds := [...]byte{quota.SlidingLog: 'l', quota.SlidingWindow: 'w', quota.GCRA: 'g', quota.Concurrent: 'c', quota.CalendarPeriods: 'p'}
	s, places := &KeyPlan{}, [][]int{} // of the limits of each key
	for place, l := range limits {
		k := slices.IndexFunc(s.Keys, func(k PlannedKey) bool {
			return k.Kind == 'l' && l.Algorithm == quota.SlidingLog && together(k.Limits[0], l)
		})
		if k < 0 {
			s.Keys, places = append(s.Keys, PlannedKey{Kind: kinds[l.Algorithm], Holds: l.Holds()}), append(places, nil)
			k = len(s.Keys) - 1
		}
		key := &s.Keys[k]
		places[k] = append(places[k], place)
		key.Limits = append(key.Limits, l)
		bound, _ := l.Bound()
		key.Trim = max(key.Trim, l.Units, bound)
		key.TTL = max(key.TTL, ttlOf(l))
		key.Longest = max(key.Longest, l.LongestWindowUS())
		key.Life = max(key.Life, key.TTL)
		switch l.Algorithm {
		case quota.SlidingLog: // its life is set once a window
			key.Life = key.TTL + time.Duration(key.Longest)*time.Microsecond
		case quota.GCRA:
			// Reports can hold four times the capacity; validation bounds the drain of one.
			full := (quota.Level{Units: 4 * l.Capacity()}).Falls(0, l.Units, l.WindowUS())
			key.Life = max(key.Life, key.TTL+time.Duration(full)*time.Microsecond)
		}
		if l.Calendar != nil { // a clock that is set back makes a period longer by no more than that
			key.Life = key.TTL + 2*l.Window
			key.calendar = l.Calendar.ID()
		}
		if key.Holds {
			key.Life = max(key.Life, quota.MaxTTL+HoldsMargin)
		}
		s.mostTTL = max(s.mostTTL, key.Life)
	}
	s.Order = slices.Concat(places...)
	s.flatten()
	return s
}

// ttlOf is two windows and a margin, or for a level the margin alone: an expired level is
// an empty one. Periods have a window after their end, into which the clock may be set back.
func ttlOf(l *quota.Limit) time.Duration {
	switch l.Algorithm {
	case quota.GCRA:
		return margin(l)
	case quota.CalendarPeriods:
		return l.Window + margin(l)
	}
	return 2*l.Window + margin(l)
}

// Settling is the same plan for a settle, whose logs of reservations keep as many units as any limit has: what was held under more than
// is in force now, by an override or a reload, counts under as many again.
func (s *KeyPlan) Settling() *KeyPlan {
	p := &KeyPlan{Keys: slices.Clone(s.Keys), Order: s.Order, mostTTL: s.mostTTL}
	for i := range p.Keys {
		k := &p.Keys[i]
		for _, l := range k.Limits {
			if k.Kind == 'l' && k.Holds {
				most := quota.Limit{Units: quota.MaxLogUnits, MaxOvershoot: l.MaxOvershoot}
				bound, _ := most.Bound()
				k.Trim = max(k.Trim, most.Units, bound)
			}
		}
	}
	p.flatten()
	return p
}

// TTL is the longest that a key of a request can live after its last charge.
func (s *KeyPlan) TTL() time.Duration { return s.mostTTL }

// flatten lists the limits in the order of keys, and encodes the plan.
func (s *KeyPlan) flatten() {
	add := func(v int64) { s.Wire = append(s.Wire, strconv.FormatInt(v, 10)) }
	add(int64(len(s.Keys)))
	for n, k := range s.Keys {
		kind := string(k.Kind)
		s.Periods = s.Periods || k.Kind == 'p'
		if k.Holds {
			s.Holding++
			kind = strings.ToUpper(kind)
		}
		s.Wire = append(s.Wire, kind)
		s.Wire = append(s.Wire, k.mark())
		add(k.TTL.Milliseconds())
		add(k.Longest)
		add(int64(len(k.Limits)))
		for _, l := range k.Limits {
			s.Limits = append(s.Limits, l)
			s.Capacities = append(s.Capacities, l.Capacity())
			s.KeyOf = append(s.KeyOf, n)
			add(l.WindowUS())
			if l.Scope != quota.ScopeGlobal {
				add(l.Capacity())
				add(l.Units)
				continue
			}
			s.Global++
			if l.Calendar != nil {
				s.GlobalPeriods++
			}
			mark := "-"
			if l.MaxOvershoot > 0 {
				s.Bounded++
				mark = "="
			}
			s.Wire = append(s.Wire, mark)
			add(l.Units)
		}
	}
}

// AppendKeys appends the keys of a request to names, in the plan's order. They are injective:
// two partitions never share a key, whatever tenant and values contain. dims are those of
// all keys, or of each.
//
//	rl:{acme}:l:standard:user:2.42:      the log of user 42 under policy standard
//	rl:{acme}:w.daily:standard:::        the window counters of limit daily
//	rl:{acme}:p.monthly.month-1-UTC:standard:::   the periods of limit monthly
//
// The tenant "" stands for the partition that unlisted tenants share. All the strings
// are one allocation.
func (s *KeyPlan) AppendKeys(names []string, tenant, policy string, dims ...quota.Dimensions) []string {
	var array [256]byte
	buf := array[:0]
	var ends [quota.MaxTogether]int
	for i := range s.Keys {
		buf = s.Keys[i].append(buf, tenant, policy, dims[min(i, len(dims)-1)])
		ends[i] = len(buf)
	}
	all, from := string(buf), 0
	for _, end := range ends[:len(s.Keys)] {
		names = append(names, all[from:end])
		from = end
	}
	return names
}

func (k *PlannedKey) append(buf []byte, tenant, policy string, dims quota.Dimensions) []byte {
	buf = append(AppendPrefix(buf, tenant), k.Kind)
	if k.Kind != 'l' {
		buf = append(buf, '.')
		buf = append(buf, k.Limits[0].Name...)
	}
	if k.calendar != "" {
		buf = append(append(buf, '.'), k.calendar...)
	}
	buf = append(buf, ':')
	buf = append(buf, policy...)
	buf = append(buf, ':')
	return quota.AppendPartition(buf, k.Limits[0], dims)
}

// mark is what the header of a log says of the plan: see redisstore/lua/log.lua.
func (k *PlannedKey) mark() string {
	if k.Kind != 'l' {
		return ""
	}
	units := strconv.FormatInt(k.Trim, 10)
	return fmt.Sprintf(".0%02d%s%d", len(units), units, k.Longest)
}

// Shared is the key that the values of a tenant beyond max_values share: that of empty
// values, which no request has.
func (k *PlannedKey) Shared(tenant, policy string) string {
	by := k.Limits[0].By
	dims := make(quota.Dimensions, len(by))
	for i := range by {
		dims[i].Name = by[i]
	}
	return string(k.append(nil, tenant, policy, dims))
}

// AppendCounters appends the keys of the usage counters of a request's global limits to
// counters, in the plan's order. keys are those of AppendKeys for the request.
func (s *KeyPlan) AppendCounters(counters []quota.CounterKey, keys []string, tenant, policy string) []quota.CounterKey {
	if s.Global == 0 {
		return counters
	}
	var array [256]byte
	prefix := len(AppendPrefix(array[:0], tenant))
	for i := range s.Keys {
		k := &s.Keys[i]
		before := prefix + len("l:") + len(policy) + len(":")
		if k.Kind != 'l' {
			before += len(".") + len(k.Limits[0].Name)
		}
		if k.calendar != "" {
			before += len(".") + len(k.calendar)
		}
		for _, l := range k.Limits {
			if l.Scope == quota.ScopeGlobal {
				counters = append(counters, quota.CounterKey{
					Tenant: tenant, Policy: policy, Limit: l.Name, Partition: keys[i][before:], WindowUS: l.WindowUS(), Calendar: k.calendar,
				})
			}
		}
	}
	return counters
}

const (
	// sharedPrefix begins the keys of the one partition per limit that unlisted
	// tenants beyond max_unknown share. After the brace of a tenant comes a colon.
	sharedPrefix = "rl:{*}*:"
	// CounterMark begins the name of a usage counter below its tenant.
	CounterMark = "t."
	// LoansMark begins the name of the loans under a bounded limit.
	LoansMark = "b."
)

// AppendPrefix appends the beginning of all keys of a tenant, "rl:{tenant}:". The
// braces make a Redis Cluster keep them in one slot; ids contain none.
func AppendPrefix(dst []byte, tenant string) []byte {
	if tenant == "" {
		return append(dst, sharedPrefix...)
	}
	dst = append(dst, "rl:{"...)
	dst = append(dst, tenant...)
	return append(dst, "}:"...)
}

// AppendLoansKey appends the Redis key of the loans of a partition under a bounded limit:
//
//	rl:{acme}:b.sustained:standard:user:2.42:   limit sustained
//	rl:{acme}:b.monthly.month-1-UTC:standard:::   limit monthly, periods of a calendar
func AppendLoansKey(dst []byte, c *quota.CounterKey) []byte {
	dst = append(AppendPrefix(dst, c.Tenant), LoansMark...)
	dst = appendLimit(dst, c)
	dst = append(dst, ':')
	dst = append(dst, c.Policy...)
	dst = append(dst, ':')
	return append(dst, c.Partition...)
}

func appendLimit(dst []byte, c *quota.CounterKey) []byte {
	if dst = append(dst, c.Limit...); c.Calendar != "" {
		dst = append(append(dst, '.'), c.Calendar...)
	}
	return dst
}

// UsageKey is the key that holds the usage of a counter's partition: a log, or periods of a calendar.
func UsageKey(c *quota.CounterKey) string {
	dst := AppendPrefix(nil, c.Tenant)
	if c.Calendar == "" {
		dst = append(dst, 'l')
	} else {
		dst = appendLimit(append(dst, "p."...), c)
	}
	return string(dst) + ":" + c.Policy + ":" + c.Partition
}

// AppendCounterKey appends the Redis key of a usage counter:
//
//	rl:{acme}:t.sustained.60000000:standard:user:2.42:   limit sustained, a window of a minute
//	rl:{acme}:t.monthly.month-1-UTC:standard:::   limit monthly, periods of a calendar
func AppendCounterKey(dst []byte, c *quota.CounterKey) []byte {
	dst = append(AppendPrefix(dst, c.Tenant), CounterMark...)
	dst = append(dst, c.Limit...)
	if dst = append(dst, '.'); c.Calendar != "" {
		dst = append(dst, c.Calendar...)
	} else {
		dst = strconv.AppendInt(dst, c.WindowUS, 10)
	}
	dst = append(dst, ':')
	dst = append(dst, c.Policy...)
	dst = append(dst, ':')
	return append(dst, c.Partition...)
}

// ParseCounterKey reads what AppendCounterKey has written. It is false for any other key.
func ParseCounterKey(key string) (c quota.CounterKey, ok bool) {
	var name string
	c.Tenant, name, c.Policy, c.Partition, ok = parseKey(key)
	dot := strings.LastIndexByte(name, '.')
	if !ok || !strings.HasPrefix(name, CounterMark) || dot < len(CounterMark) {
		return c, false
	}
	c.Limit = name[len(CounterMark):dot]
	if window, ok := quota.CalendarWindow(name[dot+1:]); ok {
		c.Calendar, c.WindowUS = name[dot+1:], window.Microseconds()
		return c, true
	}
	windowUS, err := strconv.ParseInt(name[dot+1:], 10, 64)
	c.WindowUS = windowUS
	return c, err == nil && windowUS > 0
}

// HoldsMargin is how much longer than its last hold a set of holds lives, so that no answer depends on that.
const HoldsMargin = time.Minute

// HoldsKey is the Redis key of the holds under one of AppendKeys, below the same tenant:
//
//	rl:{acme}:hl:standard:#user:2.42:   those beside the log of user 42
//	rl:{acme}:hc.inflight:standard:::   those under the concurrent limit inflight
func HoldsKey(key string) string {
	tenant := tenantOf(key)
	return tenant + "h" + key[len(tenant):]
}

// PartitionKey is the one of AppendKeys whose HoldsKey a key is, or the key itself.
func PartitionKey(key string) string {
	tenant := tenantOf(key)
	return tenant + strings.TrimPrefix(key[len(tenant):], "h")
}

// ReservationKey is the Redis key of the record of a reservation that was charged under one of AppendKeys.
func ReservationKey(key string, id int64) string { return tenantOf(key) + "r." + HoldName(id) }

// HoldName is the ID of a reservation as text: in base 62, nine characters instead of sixteen, since each hold has it.
func HoldName(id int64) string { return big.NewInt(id).Text(62) }

// tenantOf is what AppendPrefix began a key with.
func tenantOf(key string) string {
	brace := strings.IndexByte(key, '}')
	return key[:brace+1+strings.IndexByte(key[brace:], ':')]
}

// ParseUsageKey reads what AppendKeys has written, or the HoldsKey of it: kind is that of the planned key, and limit its only one,
// "" for a log. It is false for any other key of a tenant.
func ParseUsageKey(key string) (kind byte, limit, tenant, policy, partition string, ok bool) {
	tenant, name, policy, partition, ok := parseKey(key)
	name = strings.TrimPrefix(name, "h")
	mark, limit, named := strings.Cut(name, ".")
	if !ok || len(mark) != 1 || !strings.Contains("lwgcp", mark) || named == (mark == "l") {
		return 0, "", "", "", "", false
	}
	return mark[0], limit, tenant, policy, partition, true
}

// parseKey divides a key of any kind: name is what it has between tenant and policy.
func parseKey(key string) (tenant, name, policy, partition string, ok bool) {
	rest, shared := strings.CutPrefix(key, sharedPrefix)
	if !shared {
		if rest, ok = strings.CutPrefix(key, "rl:{"); !ok {
			return "", "", "", "", false
		}
		tenant, rest, _ = strings.Cut(rest, "}:")
	}
	name, rest, _ = strings.Cut(rest, ":")
	policy, partition, ok = strings.Cut(rest, ":")
	return tenant, name, policy, partition, ok
}

// RecordKey is where the admission of a tenant's Idempotency-Key is kept, whichever
// partition was charged: another process may count an unlisted tenant as itself.
func RecordKey(tenant, key string) string {
	return string(AppendPrefix(nil, tenant)) + "i:" + key
}
