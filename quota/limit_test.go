package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// pointers are the places of errors, joined.
func pointers(ms []quota.FieldError) string {
	var ps []string
	for _, m := range ms {
		ps = append(ps, m.Pointer)
	}
	return strings.Join(ps, " ")
}

func TestLimitValidate(t *testing.T) {
	const month = 31 * 24 * time.Hour
	calendar := func(unit quota.CalendarUnit, anchor quota.Anchor, zone *time.Location) quota.Limit {
		return quota.Limit{Units: 1, Algorithm: quota.CalendarPeriods, Window: month, Calendar: &quota.Calendar{Unit: unit, Anchor: anchor, Zone: zone}}
	}
	for _, row := range []struct {
		name  string
		limit quota.Limit
		want  string // pointers of the errors
	}{
		{"good", quota.Limit{Units: 1, Window: time.Minute}, ""},
		{"no name", quota.Limit{Name: "-", Units: 1, Window: time.Minute}, "/name"},
		{"no units", quota.Limit{Units: 0, Window: time.Minute}, "/units"},
		{"negative units", quota.Limit{Units: -1, Window: time.Minute}, "/units"},
		{"the largest log", quota.Limit{Units: quota.MaxLogUnits, Window: time.Minute}, ""},
		{"too large a log", quota.Limit{Units: quota.MaxLogUnits + 1, Window: time.Minute}, "/units"},
		{"the largest window", quota.Limit{Algorithm: quota.SlidingWindow, Units: quota.MaxUnits, Window: month}, ""},
		{"too many units", quota.Limit{Algorithm: quota.SlidingWindow, Units: quota.MaxUnits + 1, Window: month}, "/units"},
		{"too many units for any log, reported once", quota.Limit{Units: quota.MaxUnits + 1, Window: month}, "/units"},
		{"the shortest", quota.Limit{Units: 1, Window: time.Millisecond}, ""},
		{"too short", quota.Limit{Units: 1, Window: time.Millisecond - time.Microsecond}, "/per"},
		{"no time at all", quota.Limit{Units: 1}, "/per"},
		{"the longest", quota.Limit{Units: 1, Window: month}, ""},
		{"too long", quota.Limit{Units: 1, Window: month + time.Microsecond}, "/per"},
		{"not in whole microseconds", quota.Limit{Units: 1, Window: time.Second + 1}, "/per"},
		{"a burst of its own", quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: 100}, ""},
		{"a burst without gcra", quota.Limit{Units: 1, Window: time.Second, Burst: 1}, "/burst"},
		{"a burst below", quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: -1}, "/burst"},
		{"a burst above", quota.Limit{Units: quota.MaxUnits, Window: time.Second, Algorithm: quota.GCRA, Burst: quota.MaxUnits + 1}, "/burst"},
		{"a burst that drains in 31 days", quota.Limit{Units: 1, Window: 24 * time.Hour, Algorithm: quota.GCRA, Burst: 31}, ""},
		{"a burst that drains in 32 days", quota.Limit{Units: 1, Window: 24 * time.Hour, Algorithm: quota.GCRA, Burst: 32}, "/burst"},
		{"a burst whose product overflows", quota.Limit{Units: 1, Window: month, Algorithm: quota.GCRA, Burst: quota.MaxUnits}, "/burst"},
		{"global gcra", quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, Scope: quota.ScopeGlobal}, "/scope"},
		{"a bound", quota.Limit{Units: 1, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}, ""},
		{"the widest bound", quota.Limit{Units: 1, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.MaxOvershoot}, ""},
		{"a wider bound", quota.Limit{Units: 1, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.MaxOvershoot + 1}, "/max_overshoot"},
		{"a bound of a region", quota.Limit{Units: 1, Window: time.Second, MaxOvershoot: quota.Strict}, "/max_overshoot"},
		{"a bound of two counters", quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.SlidingWindow, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}, "/max_overshoot"},
		{"a bound of a rate", quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, MaxOvershoot: quota.Strict}, "/max_overshoot"},
		{"by two", quota.Limit{Units: 1, Window: time.Second, By: []string{"ip", "user"}}, ""},
		{"by one twice", quota.Limit{Units: 1, Window: time.Second, By: []string{"ip", "ip"}}, "/by/1"},
		{"by a name that is none", quota.Limit{Units: 1, Window: time.Second, By: []string{"a b"}}, "/by/0"},
		{"when", quota.Limit{Units: 1, Window: time.Second, When: []quota.Match{{"route", "login"}}}, ""},
		{"when nothing", quota.Limit{Units: 1, Window: time.Second, When: []quota.Match{{"route", ""}}}, "/when/route"},
		{"when a name that is none", quota.Limit{Units: 1, Window: time.Second, When: []quota.Match{{"A", "x"}}}, "/when/A"},
		{"a month", calendar(quota.CalendarMonth, 31, time.UTC), ""},
		{"a month from no day", calendar(quota.CalendarMonth, 0, time.UTC), "/anchor"},
		{"a month from a day after its last", calendar(quota.CalendarMonth, 32, time.UTC), "/anchor"},
		{"a month nowhere", calendar(quota.CalendarMonth, 1, nil), "/timezone"},
		{"a week from an eighth day", calendar(quota.CalendarWeek, 8, time.UTC), "/anchor"},
		{"a day from a second", calendar(quota.CalendarDay, 2, time.UTC), "/anchor"},
		{"a calendar of no unit", calendar(quota.CalendarMonth+1, 1, time.UTC), "/calendar"},
		{"no calendar", quota.Limit{Units: 1, Algorithm: quota.CalendarPeriods, Window: month}, "/calendar"},
		{"all wrong at once", quota.Limit{Name: "A", Units: 0, Window: 0, Burst: 1}, "/name /units /per /burst"},
	} {
		if row.limit.Name == "" {
			row.limit.Name = "l"
		}
		ms := row.limit.Validate()
		if got := pointers(ms); got != row.want {
			t.Errorf("%s: errors at %q, want %q: %v", row.name, got, row.want, ms)
		}
	}
}

func TestCapacity(t *testing.T) {
	for _, row := range []struct {
		limit quota.Limit
		want  int64
	}{
		{quota.Limit{Units: 5}, 5},
		{quota.Limit{Units: 5, Algorithm: quota.GCRA}, 5},
		{quota.Limit{Units: 5, Algorithm: quota.GCRA, Burst: 2}, 2},
		{quota.Limit{Units: 5, Algorithm: quota.SlidingWindow, Burst: 2}, 5},
	} {
		if got := row.limit.Capacity(); got != row.want {
			t.Errorf("%+v holds %d, want %d", row.limit, got, row.want)
		}
	}
}

func TestApplies(t *testing.T) {
	l := quota.Limit{When: []quota.Match{{"method", "POST"}, {"route", "login"}}}
	for _, row := range []struct {
		dims quota.Dimensions
		want bool
	}{
		{quota.Dimensions{{"method", "POST"}, {"route", "login"}}, true},
		{quota.Dimensions{{"ip", "::1"}, {"method", "POST"}, {"route", "login"}}, true},
		{quota.Dimensions{{"method", "GET"}, {"route", "login"}}, false},
		{quota.Dimensions{{"route", "login"}}, false},
		{nil, false},
	} {
		if got := l.Applies(row.dims); got != row.want {
			t.Errorf("%v: %v", row.dims, got)
		}
	}
	if !(&quota.Limit{}).Applies(nil) {
		t.Error("a limit without a condition does not apply")
	}
}

func TestOvershootText(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"none", "none"},
		{"0%", "0%"},
		{"0.0%", "0%"},
		{"00.50%", "0.5%"},
		{"0.01%", "0.01%"},
		{"10%", "10%"},
		{"12.25%", "12.25%"},
		{"1000%", "1000%"},
		{"1000.01%", ""},
		{"0.001%", ""},
		{"10", ""},
		{"%", ""},
		{".5%", ""},
		{"5.%", ""},
		{"-1%", ""},
		{"+1%", ""},
		{"1e1%", ""},
		{"5.-1%", ""},
		{"99999999999999999999%", ""},
		{"None", ""},
		{"", ""},
	} {
		var o quota.Overshoot
		err := o.UnmarshalText([]byte(row.text))
		if got := o.String(); (err == nil) != (row.want != "") || err == nil && got != row.want {
			t.Errorf("%q is %s, %v; want %q", row.text, got, err, row.want)
		}
		if err != nil && o != 0 {
			t.Errorf("%q leaves %s behind", row.text, o)
		}
	}
}

func TestOvershootTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, read := quota.Overshoot(rapid.Uint32Range(0, uint32(quota.MaxOvershoot)).Draw(t, "overshoot")), quota.Overshoot(7)
		if err := read.UnmarshalText([]byte(o.String())); err != nil || read != o {
			t.Fatalf("%d is written %s and read %d: %v", o, o, read, err)
		}
	})
}

func TestBound(t *testing.T) {
	for _, row := range []struct {
		units     int64
		overshoot string
		want      int64
	}{
		{600, "none", -1},
		{600, "0%", 600},
		{600, "10%", 660},
		{10, "5%", 10}, // 10.5
		{10, "10%", 11},
		{7, "14.28%", 7}, // 7.9996
		{7, "14.29%", 8}, // 8.0003
		{1, "99.99%", 1},
		{1, "1000%", 11},
		{quota.MaxLogUnits, "0.01%", quota.MaxLogUnits + 10},
		{quota.MaxLogUnits, "1000%", 11 * quota.MaxLogUnits},
	} {
		l := quota.Limit{Units: row.units, Window: time.Minute, Scope: quota.ScopeGlobal}
		if err := l.MaxOvershoot.UnmarshalText([]byte(row.overshoot)); err != nil {
			t.Fatal(err)
		}
		if got, ok := l.Bound(); ok != (row.want >= 0) || ok && got != row.want {
			t.Errorf("%d with %s: %d, %t; want %d", row.units, row.overshoot, got, ok, row.want)
		}
	}
}

func TestAppendPartition(t *testing.T) {
	user42 := quota.Dimensions{{"ip", "192.0.2.1"}, {"route", "login"}, {"user", "42"}}
	for _, row := range []struct {
		limit quota.Limit
		dims  quota.Dimensions
		want  string
	}{
		{quota.Limit{}, user42, "::"},
		{quota.Limit{By: []string{"ip", "user"}}, user42, "ip,user:9.192.0.2.1,2.42:"},
		{quota.Limit{By: []string{"user"}}, nil, "user:-:"},
		{quota.Limit{By: []string{"user"}}, quota.Dimensions{{"user", "-"}}, "user:1.-:"},
		{quota.Limit{By: []string{"ip"}, When: []quota.Match{{"route", "login"}}}, user42, "ip:9.192.0.2.1:route=5.login"},
	} {
		if got := string(quota.AppendPartition([]byte("x "), &row.limit, row.dims)); got != "x "+row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}

// spot is a partition that a test can compare in full.
type spot struct {
	policy string
	limit  quota.Limit
	values []string // of limit.By, "" for missing
}

func (s spot) text(tenant string) string {
	var dims quota.Dimensions
	for i, name := range s.limit.By {
		if s.values[i] != "" {
			dims = append(dims, quota.Dimension{Name: name, Value: s.values[i]})
		}
	}
	key := quota.CounterKey{Tenant: tenant, Policy: s.policy, Limit: "l", Partition: string(quota.AppendPartition(nil, &s.limit, dims))}
	return string(key.AppendID(nil))
}

func anySpot(t *rapid.T) spot {
	name := rapid.SampledFrom([]string{"a", "b", "ab", "a-b"})
	id := rapid.OneOf( // what separates, what counts, and what both look like together
		rapid.StringMatching(`[-=.,:12a]{1,6}`),
		rapid.SampledFrom([]string{"x", "x,1.y", "y,1.z", "z", "x,y", "y,z", "-", "x:b=1.y"}),
	)
	s := spot{policy: name.Draw(t, "policy")}
	s.limit.By = rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "by")
	slices.Sort(s.limit.By)
	for range s.limit.By {
		s.values = append(s.values, rapid.OneOf(id, rapid.Just("")).Draw(t, "value"))
	}
	for _, w := range rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(t, "when") {
		s.limit.When = append(s.limit.When, quota.Match{Dimension: w, Value: id.Draw(t, "is")})
	}
	return s
}

// TestPartitionsAreInjective draws pairs that are as alike as they can be: two
// texts are the same only when the partitions are.
func TestPartitionsAreInjective(t *testing.T) {
	tenant := rapid.StringMatching(`[-=.,:12a]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := anySpot(t), anySpot(t)
		if rapid.Bool().Draw(t, "alike") {
			b = a
			b.values = slices.Clone(a.values)
			if len(b.values) > 0 {
				b.values[0] = rapid.StringMatching(`[-.,12]{0,5}`).Draw(t, "another value")
			}
		}
		t1, t2 := tenant.Draw(t, "tenant"), tenant.Draw(t, "tenant")
		same := t1 == t2 && fmt.Sprintf("%q", []any{a.policy, a.limit.By, a.values, a.limit.When}) ==
			fmt.Sprintf("%q", []any{b.policy, b.limit.By, b.values, b.limit.When})
		x, y := a.text(t1), b.text(t2)
		if (x == y) != same {
			t.Fatalf("%+v and %+v are %q and %q", a, b, x, y)
		}
	})
}

func TestSamePartition(t *testing.T) {
	base := quota.Limit{By: []string{"ip", "user"}, When: []quota.Match{{"route", "login"}}}
	for _, row := range []struct {
		name  string
		other quota.Limit
		want  bool
	}{
		{"all else may differ", quota.Limit{Name: "x", Units: 9, By: base.By, When: base.When}, true},
		{"fewer dimensions", quota.Limit{By: base.By[:1], When: base.When}, false},
		{"no condition", quota.Limit{By: base.By}, false},
		{"another value", quota.Limit{By: base.By, When: []quota.Match{{"route", "logout"}}}, false},
	} {
		if got := quota.SamePartition(&base, &row.other); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
