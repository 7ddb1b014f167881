package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/internal/base/zones"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// recordTTL is IDEMPOTENCY_TTL of lua/general.lua.
const recordTTL = 2 * time.Minute

// Remember implements store.Rememberer: it writes records as lua/general.lua does, and drops one that is too
// old to be replayed. A server that is away keeps back its own alone, as does a slot on its way.
func (s *Store) Remember(ctx context.Context, all []*store.Admission, ago func(*store.Admission) int64, known func(i int, kept bool)) {
	by := map[*node][]int{}
	for i, a := range all {
		if n, err := s.nodeSet.of(ctx, a.Record); err == nil && !n.breaker.open() {
			by[n] = append(by[n], i)
		}
	}
	for n, places := range by {
		now, err := n.client.Time(ctx).Result()
		if err != nil {
			continue
		}
		pipe := n.client.Pipeline()
		replies := make([]*redis.BoolCmd, len(places))
		for at, i := range places {
			age := ago(all[i])
			if left := recordTTL - time.Duration(age)*time.Microsecond; left > recordTTL/2 {
				replies[at] = pipe.SetNX(ctx, all[i].Record, recordText(all[i], now.UnixMicro()-age), left)
			}
		}
		_, _ = pipe.Exec(ctx) // each reply has its own error
		for at, i := range places {
			if r := replies[at]; r == nil || r.Err() == nil {
				known(i, r != nil && r.Val())
			}
		}
	}
}

// recordText is an admission at us as decide in lua/general.lua writes it. Usage counters are 0: those in
// a replay are not read.
func recordText(a *store.Admission, us int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", us, a.Print)
	for i, l := range a.Limits {
		fmt.Fprintf(&b, " %d 0 %d", l.Remaining, l.ResetUS)
		if limit := a.Plan.Limits[i]; limit.Scope == quota.ScopeGlobal {
			b.WriteString(" 0 0 0 0")
			if limit.Calendar != nil {
				fmt.Fprintf(&b, " %d", l.Counter.EndsUS)
			}
			if limit.MaxOvershoot > 0 {
				fmt.Fprintf(&b, " %d", a.Ceilings[i])
			}
		}
		if a.Plan.Limits[i].Holds() {
			fmt.Fprintf(&b, " %d", l.Held)
		}
	}
	if h := a.Hold; h.ID != 0 {
		fmt.Fprintf(&b, " %d %d", h.ID, h.ExpiresUS)
	}
	return string(appendLimits([]byte(b.String()), a.Policy, a.Plan, a.Ceilings, true))
}

// A record ends with the limits that its numbers are about, since a reload may have changed them when it is replayed:
//
//	" |=standard 0:burst:20:1000000:20:r 1:sustained:600:60000000:540:g"
//
// their policy, which a record of before this release lacks, and of each the place in the answer, name, units, window (µs), ceiling, and
// 'r' region | 'g' global | 'b' bounded | 'p' global and 'q' bounded with periods, in capitals where it counts tokens | 'C' concurrent.
// Behind it a limit with a calendar has that, as ":month-15-Europe/Berlin".
const limitsMark, policyMark = " |", "="

func appendLimits(dst []byte, policy string, plan *store.KeyPlan, ceilings []int64, bounds bool) []byte {
	before := limitsMark
	if policy != "" {
		dst = append(append(dst, before+policyMark...), policy...)
		before = " "
	}
	for i, l := range plan.Limits {
		dst = strconv.AppendInt(append(dst, before...), int64(plan.Order[i]), 10)
		dst = append(append(dst, ':'), l.Name...)
		for _, n := range [...]int64{l.Units, l.WindowUS(), ceilings[i]} {
			dst = strconv.AppendInt(append(dst, ':'), n, 10)
		}
		if dst = append(dst, ':', kindOf(l, bounds)); l.Calendar != nil {
			dst = l.Calendar.AppendID(append(dst, ':'))
		}
		before = " "
	}
	return dst
}

// kindOf says which numbers a record has of a limit.
func kindOf(l *quota.Limit, bounds bool) byte {
	kind := byte('b')
	switch {
	case l.Algorithm == quota.Concurrent:
		return concurrent
	case l.Scope != quota.ScopeGlobal:
		kind = 'r'
	case l.MaxOvershoot == 0 || !bounds:
		kind = 'g'
	}
	if l.Calendar != nil && kind != 'r' {
		kind = map[byte]byte{'g': 'p', 'b': 'q'}[kind]
	}
	if l.Holds() {
		kind -= 'a' - 'A'
	}
	return kind
}

func lowerKind(kind byte) byte { return kind | ('a' - 'A') }

// concurrent is the kind of a limit of requests at once.
const concurrent = 'C'

// isGlobal, hasPeriods and hasBound are what a kind says of a limit.
func isGlobal(kind byte) bool   { return lowerKind(kind) != 'r' && kind != concurrent }
func hasPeriods(kind byte) bool { return lowerKind(kind) == 'p' || lowerKind(kind) == 'q' }
func hasBound(kind byte) bool   { return lowerKind(kind) == 'b' || lowerKind(kind) == 'q' }

// fingerprint is what decides whether a call repeats another, and what its record is to say of its limits.
func fingerprint(c *store.Call) string {
	if c.Print == "" {
		return ""
	}
	var array [256]byte
	return string(appendLimits(append(array[:0], c.Print...), c.Policy, c.Plan, c.Ceilings, c.Bounds != nil))
}

// parseReplay reads the reply to a call that repeats another. What a record says that is none is about its
// partition alone.
func parseReplay(text string, c *store.Call, v *store.Verdict) {
	numbers, limits, _ := strings.Cut(text, limitsMark)
	if err := parseEarlier(numbers, limits, c, v); err != nil {
		*v = store.Verdict{Limits: v.Limits[:0], Err: fmt.Errorf("%w: GARBAGE in %s", store.ErrPartition, c.Record)}
	}
}

// parseEarlier reads an admission with its limits. As of the plan in force, limits that it lacks are zero.
func parseEarlier(numbers, limits string, c *store.Call, v *store.Verdict) error {
	words := strings.Fields(limits)
	policy, named := "", false
	if len(words) > 0 {
		if policy, named = strings.CutPrefix(words[0], policyMark); named {
			words = words[1:]
		}
	}
	if len(words) == 0 || named && quota.ValidName(policy) != nil && quota.ValidID(policy) != nil {
		return errReply
	}
	a := &store.Admission{Record: c.Record, Print: c.Print, Policy: policy, Plan: &store.KeyPlan{}, Ceilings: make([]int64, len(words))}
	kinds := make([]byte, len(words))
	for i, word := range words {
		var place int
		var limit *quota.Limit
		var ok bool
		if place, limit, a.Ceilings[i], kinds[i], ok = parseLimit(word, c); !ok || place >= len(words) || slices.Contains(a.Plan.Order, place) {
			return errReply
		}
		a.Plan.Limits, a.Plan.Order = append(a.Plan.Limits, limit), append(a.Plan.Order, place)
	}
	was := store.Verdict{Outcome: store.Replayed}
	r := readText(numbers)
	a.US = r.number()
	parseLimits(r, len(kinds), func(i int) byte { return kinds[i] }, &was)
	if len(r.parts) > 0 { // then it held something, whether the limits of now do or not
		a.Hold = parseHeld(r, c.Cost)
	}
	if !r.done() {
		return errReply
	}
	for i := range kinds {
		if hasBound(kinds[i]) {
			a.Ceilings[i] = min(a.Ceilings[i], was.Limits[i].Bounded)
		}
	}
	a.Limits, v.Earlier, v.Hold = was.Limits, a, a.Hold
	v.Limits = slices.Grow(v.Limits[:0], len(c.Plan.Limits))[:len(c.Plan.Limits)]
	clear(v.Limits)
	copy(v.Limits, was.Limits)
	return nil
}

// parseLimit reads a word of appendLimits. A limit that is in force still is that one.
func parseLimit(word string, c *store.Call) (place int, l *quota.Limit, ceiling int64, kind byte, ok bool) {
	parts, calendar := strings.Split(word, ":"), ""
	if len(parts) == 7 {
		calendar, parts = parts[6], parts[:6]
	}
	if len(parts) != 6 || calendar == "" && strings.HasSuffix(word, ":") || len(parts[5]) != 1 || !strings.Contains("rgbpqRGBPQC", parts[5]) {
		return 0, nil, 0, 0, false
	}
	var n [4]int64
	for i, part := range [...]string{parts[0], parts[2], parts[3], parts[4]} {
		var err error
		if n[i], err = strconv.ParseInt(part, 10, 64); err != nil || n[i] < 0 {
			return 0, nil, 0, 0, false
		}
	}
	kind = parts[5][0]
	for _, l := range c.Plan.Limits {
		if l.Name == parts[1] && l.Units == n[1] && l.WindowUS() == n[2] && kindOf(l, c.Bounds != nil) == kind && calendarID(l) == calendar {
			return int(n[0]), l, n[3], kind, true
		}
	}
	l = &quota.Limit{Name: parts[1], Units: n[1], Window: time.Duration(n[2]) * time.Microsecond}
	if isGlobal(kind) {
		l.Scope = quota.ScopeGlobal
	}
	switch {
	case kind == concurrent:
		l.Algorithm = quota.Concurrent
	case kind < 'a':
		l.Counts = quota.CountsTokens
	}
	if calendar != "" {
		var err error
		if l.Calendar, err = quota.ParseCalendarID(calendar, zoneOf); err != nil {
			return 0, nil, 0, 0, false
		}
		l.Algorithm = quota.CalendarPeriods
	}
	return int(n[0]), l, n[3], kind, n[2] > 0 && n[2] <= quota.MaxWindow.Microseconds()
}

func calendarID(l *quota.Limit) string {
	if l.Calendar == nil {
		return ""
	}
	return string(l.Calendar.AppendID(nil))
}

// zoneOf is the zone of a record. One that this program lacks, as of a process with newer zone data, keeps its name.
func zoneOf(name string) (*time.Location, error) {
	if zone, err := zones.Load(name); err == nil {
		return zone, nil
	}
	return time.FixedZone(name, 0), nil
}
