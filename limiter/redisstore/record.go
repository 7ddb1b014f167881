package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	by, records := map[*node][]int{}, make([]string, len(all))
	_, one := s.nodeSet.(single)
	for i, a := range all {
		if records[i] = a.Record; !one {
			records[i] = recordBeside(a.Key, a.Record)
		}
		if n, err := s.nodeSet.of(ctx, records[i]); err == nil && !n.breaker.open() {
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
				replies[at] = pipe.SetNX(ctx, records[i], recordText(all[i], now.UnixMicro()-age), left)
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
	b := fmt.Appendf(nil, "%d %s", us, a.Print)
	for i, l := range a.Limits {
		b = fmt.Appendf(b, " %d 0 %d", l.Remaining, l.ResetUS)
		if limit := a.Plan.Limits[i]; limit.Scope == quota.ScopeGlobal {
			b = append(b, " 0 0 0 0"...)
			if limit.Calendar != nil {
				b = fmt.Appendf(b, " %d", l.Counter.EndsUS)
			}
			if limit.MaxOvershoot > 0 {
				b = fmt.Appendf(b, " %d", a.Ceilings[i])
			}
		}
		if a.Plan.Limits[i].Holds() {
			b = fmt.Appendf(b, " %d", l.Held)
		}
	}
	if h := a.Hold; h.ID != 0 {
		b = fmt.Appendf(b, " %d %d", h.ID, us+h.ExpiresUS-a.US)
	}
	return string(appendTerms(b, a.Policy, a.Plan, a.Ceilings, true))
}

// recordTerms is what the numbers of a record are about, since a reload may have changed that when it is replayed. The record
// ends with it, as JSON.
type recordTerms struct {
	Policy string
	Limits []placedTerms
}

type placedTerms struct {
	Place   int // in the answer
	Ceiling int64
	limitTerms
}

// limitTerms are those of a limit by which an answer to a check was made.
type limitTerms struct {
	Name            string
	Units, WindowUS int64
	Algorithm       uint8
	Scope           uint8
	Counts          uint8
	Bounded         bool   // a reply says what it has under its bound
	Calendar        string // Calendar.ID
}

func termsOf(l *quota.Limit, bounds bool) limitTerms {
	return limitTerms{l.Name, l.Units, l.WindowUS(), uint8(l.Algorithm), uint8(l.Scope), uint8(l.Counts), hasBound(l, bounds), l.Calendar.ID()}
}

// limitOf is the limit of a call with the terms, or else one that had them; nil if there can be none.
func (t *limitTerms) limitOf(c *store.Call) *quota.Limit {
	for _, l := range c.Plan.Limits {
		if termsOf(l, c.Bounds != nil) == *t {
			return l
		}
	}
	l := &quota.Limit{
		Name: t.Name, Units: t.Units, Window: time.Duration(t.WindowUS) * time.Microsecond,
		Algorithm: quota.Algorithm(t.Algorithm), Scope: quota.Scope(t.Scope), Counts: quota.Counts(t.Counts),
	}
	var err error
	if t.Calendar != "" {
		l.Calendar, err = quota.ParseCalendarID(t.Calendar, zoneOf)
	}
	if periods := l.Algorithm == quota.CalendarPeriods; err != nil || periods != (l.Calendar != nil) || l.Algorithm > quota.CalendarPeriods ||
		t.Units < 0 || l.Window <= 0 || l.Window > quota.MaxWindow {
		return nil
	}
	return l
}

// hasBound is whether a reply says what a limit has under its bound.
func hasBound(l *quota.Limit, bounds bool) bool { return bounds && l.MaxOvershoot > 0 }

func appendTerms(dst []byte, policy string, plan *store.KeyPlan, ceilings []int64, bounds bool) []byte {
	t := recordTerms{Policy: policy}
	for i, l := range plan.Limits {
		t.Limits = append(t.Limits, placedTerms{plan.Order[i], ceilings[i], termsOf(l, bounds)})
	}
	text, _ := json.Marshal(t) // of numbers and texts
	return append(append(dst, ' '), text...)
}

// fingerprint is what decides whether a call repeats another, and what its record is to say of its limits.
func fingerprint(c *store.Call) string {
	if c.Print == "" {
		return ""
	}
	return string(appendTerms([]byte(c.Print), c.Policy, c.Plan, c.Ceilings, c.Bounds != nil))
}

// parseReplay reads the reply to a call that repeats another. What a record says that is none is about its
// partition alone.
func parseReplay(text string, c *store.Call, v *store.Verdict) {
	if err := parseEarlier(text, c, v); err != nil {
		*v = store.Verdict{Limits: v.Limits[:0], Err: fmt.Errorf("%w: GARBAGE in %s", store.ErrPartition, c.Record)}
	}
}

// parseEarlier reads an admission with its terms. A limit that is in force still is that one. As of the plan in force, limits that
// the admission lacks are zero.
func parseEarlier(text string, c *store.Call, v *store.Verdict) error {
	numbers, limits, _ := strings.Cut(text, " {")
	var terms recordTerms
	if err := json.Unmarshal([]byte("{"+limits), &terms); err != nil {
		return err
	}
	if len(terms.Limits) == 0 || terms.Policy != "" && quota.ValidName(terms.Policy) != nil && quota.ValidID(terms.Policy) != nil {
		return errReply
	}
	a := &store.Admission{Record: c.Record, Print: c.Print, Policy: terms.Policy, Plan: &store.KeyPlan{}}
	for _, t := range terms.Limits {
		limit := t.limitOf(c)
		if limit == nil || t.Ceiling < 0 || t.Place < 0 || t.Place >= len(terms.Limits) || slices.Contains(a.Plan.Order, t.Place) {
			return errReply
		}
		a.Plan.Limits, a.Plan.Order, a.Ceilings = append(a.Plan.Limits, limit), append(a.Plan.Order, t.Place), append(a.Ceilings, t.Ceiling)
	}
	was := store.Verdict{Outcome: store.Replayed}
	r := readText(numbers)
	a.US = r.number()
	parseLimits(r, a.Plan.Limits, func(i int) bool { return terms.Limits[i].Bounded }, &was)
	if len(r.parts) > 0 { // then it held something, whether the limits of now do or not
		a.Hold = parseHeld(r, c.Cost)
	}
	if !r.done() {
		return errReply
	}
	for i, t := range terms.Limits {
		if t.Bounded {
			a.Ceilings[i] = min(a.Ceilings[i], was.Limits[i].Bounded)
		}
	}
	a.Limits, v.Earlier, v.Hold = was.Limits, a, a.Hold
	v.Limits = slices.Grow(v.Limits[:0], len(c.Plan.Limits))[:len(c.Plan.Limits)]
	clear(v.Limits)
	copy(v.Limits, was.Limits)
	return nil
}

// zoneOf is the zone of a record. One that this program lacks, as of a process with newer zone data, keeps its name.
func zoneOf(name string) *time.Location {
	zone, err := zones.Load(name)
	if err != nil {
		return time.FixedZone(name, 0)
	}
	return zone
}
