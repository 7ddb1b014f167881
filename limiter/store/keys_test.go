package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// place is all that decides where a limit of a request is counted.
type place struct {
	tenant, policy, limit string
	algorithm             uint8
	by, values            string // comma separated names and values
	when, is              string // one condition, "" for none
}

// key builds the key of a place; it is not ok where a name or an id is refused.
func (p place) key() (key string, ok bool) {
	l := quota.Limit{Name: p.limit, Units: 1, Window: time.Second, Algorithm: quota.Algorithm(p.algorithm % 3)}
	var dims quota.Dimensions
	if p.by != "" {
		l.By = strings.Split(p.by, ",")
		slices.Sort(l.By)
		values := strings.Split(p.values, ",")
		for i, name := range l.By {
			if i < len(values) && values[i] != "" {
				dims = append(dims, quota.Dimension{Name: name, Value: values[i]})
			}
		}
	}
	if p.when != "" {
		l.When = []quota.Match{{Dimension: p.when, Value: p.is}}
	}
	r := quota.Request{Tenant: p.tenant, Policy: p.policy, Dimensions: dims, Cost: 1}
	if len(l.Validate()) > 0 || len(r.Validate()) > 0 || p.policy == "" {
		return "", false
	}
	keys := store.NewKeyPlan([]*quota.Limit{&l}).AppendKeys(nil, p.tenant, p.policy, dims)
	return keys[0], true
}

// canonical is what a place means: two places are the same when this is.
func (p place) canonical() string {
	names := strings.Split(p.by, ",")
	slices.Sort(names)
	var values []string
	if p.by != "" {
		values = strings.Split(p.values, ",")
		for len(values) < len(names) {
			values = append(values, "")
		}
		values = values[:len(names)]
	}
	limit := p.limit
	if p.algorithm%3 == uint8(quota.SlidingLog) {
		limit = "" // logs are shared by limits
	}
	is := p.is
	if p.when == "" {
		is = ""
	}
	return fmt.Sprintf("%q %q %q %d %q %q %q %q", p.tenant, p.policy, limit, p.algorithm%3, names, values, p.when, is)
}

// FuzzKeys looks for two places that share a key, and for ids that leave their
// tenant's hash slot.
func FuzzKeys(f *testing.F) {
	add := func(a, b place) {
		f.Add(a.tenant, a.policy, a.limit, a.algorithm, a.by, a.values, a.when, a.is,
			b.tenant, b.policy, b.limit, b.algorithm, b.by, b.values, b.when, b.is)
	}
	base := place{"acme", "p", "l", 0, "user", "42", "", ""}
	add(base, base)
	add(base, place{"acme", "p", "l", 0, "ip,user", "42,-", "", ""})
	add(place{"a:b", "p", "l", 1, "user", "1,2", "", ""}, place{"a", "p", "l", 1, "ip,user", "1,2", "", ""})
	add(place{"a", "p", "l", 0, "user", "x:route=5.login", "", ""}, place{"a", "p", "l", 0, "user", "x", "route", "login"})
	add(place{"a", "p", "l", 2, "user", "-", "", ""}, place{"a", "p", "l", 2, "user", "", "", ""})
	add(place{"a", "p", "l", 2, "u,v", "1.x,1", "", ""}, place{"a", "p", "l", 2, "u,v", "1.x", "", ""})
	add(place{"a", "p", "l", 1, "", "", "", ""}, place{"a", "p", "m", 1, "", "", "", ""})
	add(place{"a", "p", "l", 1, "", "", "", ""}, place{"a", "p", "l", 2, "", "", "", ""})
	f.Fuzz(func(t *testing.T, t1, p1, l1 string, a1 uint8, b1, v1, w1, i1, t2, p2, l2 string, a2 uint8, b2, v2, w2, i2 string) {
		one, two := place{t1, p1, l1, a1, b1, v1, w1, i1}, place{t2, p2, l2, a2, b2, v2, w2, i2}
		k1, ok1 := one.key()
		k2, ok2 := two.key()
		if ok1 {
			if strings.Count(k1, "{") != 1 || strings.Count(k1, "}") != 1 || !strings.HasPrefix(k1, "rl:{"+t1+"}:") {
				t.Fatalf("%q is not in the slot of %q", k1, t1)
			}
		}
		if ok1 && ok2 && (k1 == k2) != (one.canonical() == two.canonical()) {
			t.Fatalf("%s and %s have the keys %q and %q", one.canonical(), two.canonical(), k1, k2)
		}
	})
}

// A counter of periods is named by the calendar, in Redis and between regions: another zone or anchor has nothing in common with
// it, and a window of the same length neither.
func TestCounterKeysOfCalendars(t *testing.T) {
	limit := func(unit quota.CalendarUnit, anchor quota.Anchor, zone string) *quota.Limit {
		c := &quota.Calendar{Unit: unit, Zone: time.FixedZone(zone, 0), Anchor: anchor}
		return &quota.Limit{Name: "monthly", Units: 1, Algorithm: quota.CalendarPeriods, Calendar: c, Window: unit.Window(), Scope: quota.ScopeGlobal, By: []string{"user"}}
	}
	dims := quota.Dimensions{{Name: "user", Value: "4.2"}}
	names, ids := map[string]bool{}, map[string]bool{}
	for _, l := range []*quota.Limit{
		limit(quota.CalendarMonth, 1, "UTC"), limit(quota.CalendarMonth, 15, "UTC"), limit(quota.CalendarMonth, 1, "Europe/Berlin"),
		limit(quota.CalendarMonth, 1, "Etc/GMT-1"), limit(quota.CalendarDay, 1, "UTC"),
		{Name: "monthly", Units: 1, Window: quota.CalendarMonth.Window(), Scope: quota.ScopeGlobal, Algorithm: quota.SlidingWindow, By: []string{"user"}},
	} {
		plan := store.NewKeyPlan([]*quota.Limit{l})
		keys := plan.AppendKeys(nil, "acme", "standard", dims)
		c := plan.AppendCounters(nil, keys, "acme", "standard")[0]
		name, id := string(store.AppendCounterKey(nil, &c)), string(c.AppendID(nil))
		if read, ok := store.ParseCounterKey(name); !ok || read != c {
			t.Errorf("%s is read as %+v, %v; it was %+v", name, read, ok, c)
		}
		if want := string(quota.AppendPartition(nil, l, dims)); c.Partition != want {
			t.Errorf("%s counts the partition %q, want %q", name, c.Partition, want)
		}
		if names[name] || ids[id] {
			t.Errorf("%s or %q names another counter too", name, id)
		}
		names[name], ids[id] = true, true
	}
	for _, name := range []string{"rl:{a}:t.monthly.fortnight-1-UTC:p:::", "rl:{a}:t.monthly.-1:p:::", "rl:{a}:t.monthly.month:p:::"} {
		if c, ok := store.ParseCounterKey(name); ok {
			t.Errorf("%s is read as %+v", name, c)
		}
	}
}
