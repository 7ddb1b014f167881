package quota_test

import (
	"strings"
	"testing"
	"time"

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

func TestPolicyValidate(t *testing.T) {
	good := func(names ...string) quota.Policy {
		p := quota.Policy{Name: "p", EnforcePercent: -1}
		for _, n := range names {
			p.Limits = append(p.Limits, quota.Limit{Name: n, Units: 1, Window: time.Second})
		}
		return p
	}
	letters := strings.Split("abcdefghijklmnopq", "")
	for _, row := range []struct {
		name   string
		change func(p *quota.Policy)
		want   string
	}{
		{"good", func(*quota.Policy) {}, ""},
		{"no name", func(p *quota.Policy) { p.Name = "" }, "/name"},
		{"no limits", func(p *quota.Policy) { p.Limits = nil }, "/limits"},
		{"16 limits", func(p *quota.Policy) { *p = good(letters[:16]...) }, ""},
		{"17 limits", func(p *quota.Policy) { *p = good(letters[:17]...) }, "/limits"},
		{"all tenants", func(p *quota.Policy) { p.EnforcePercent = 100 }, ""},
		{"more than all", func(p *quota.Policy) { p.EnforcePercent = 100.5 }, "/enforce_share"},
		{"the same name twice", func(p *quota.Policy) { *p = good("a", "b", "a") }, "/limits/2/name"},
		{"an error in a limit", func(p *quota.Policy) { p.Limits[1].Window = 0 }, "/limits/1/per"},
	} {
		p := good("a", "b")
		row.change(&p)
		if got := pointers(p.Validate()); got != row.want {
			t.Errorf("%s: errors at %q, want %q", row.name, got, row.want)
		}
	}
}

func TestPolicyDimensions(t *testing.T) {
	p := quota.Policy{Limits: []quota.Limit{
		{By: []string{"user"}}, {By: []string{"ip", "user"}, When: []quota.Match{{"route", "x"}, {"tier", "y"}}}, {},
	}}
	if got := strings.Join(p.Dimensions(), " "); got != "ip route tier user" {
		t.Errorf("dimensions %q", got)
	}
}

func TestRequestValidate(t *testing.T) {
	good := quota.Request{Tenant: "acme", Cost: 1}
	for _, row := range []struct {
		name   string
		change func(r *quota.Request)
		want   string
	}{
		{"good", func(*quota.Request) {}, ""},
		{"all of it", func(r *quota.Request) {
			r.Policy, r.IdempotencyKey = "p", strings.Repeat("k", 64)
			r.Dimensions = quota.Dimensions{{"ip", "::1"}, {"user", "a+b@c"}}
			r.Cost = quota.MaxUnits
		}, ""},
		{"no tenant", func(r *quota.Request) { r.Tenant = "" }, "/tenant"},
		{"a tenant that ends its hash tag", func(r *quota.Request) { r.Tenant = "a}b" }, "/tenant"},
		{"no policy name", func(r *quota.Request) { r.Policy = "No" }, "/policy"},
		{"cost 0", func(r *quota.Request) { r.Cost = 0 }, "/cost"},
		{"a negative cost", func(r *quota.Request) { r.Cost = -1 }, "/cost"},
		{"a huge cost", func(r *quota.Request) { r.Cost = quota.MaxUnits + 1 }, "/cost"},
		{"a dimension twice", func(r *quota.Request) { r.Dimensions = quota.Dimensions{{"ip", "1"}, {"ip", "2"}} }, "/dimensions/ip"},
		{"a dimension that is no name", func(r *quota.Request) { r.Dimensions = quota.Dimensions{{"I P", "1"}} }, "/dimensions"},
		{"a value that is no id", func(r *quota.Request) { r.Dimensions = quota.Dimensions{{"ip", "a b"}} }, "/dimensions/ip"},
		{"too long a key", func(r *quota.Request) { r.IdempotencyKey = strings.Repeat("k", 65) }, ""},
		{"a key with a space", func(r *quota.Request) { r.IdempotencyKey = "a b" }, ""},
		{"all wrong at once", func(r *quota.Request) { *r = quota.Request{Policy: "-"} }, "/tenant /policy /cost"},
	} {
		r := good
		row.change(&r)
		ms := r.Validate()
		if got := pointers(ms); got != row.want {
			t.Errorf("%s: errors at %q, want %q", row.name, got, row.want)
		}
		if key := strings.Contains(row.name, "key"); key != (len(ms) == 1 && strings.HasPrefix(ms[0].Detail, "Idempotency-Key ")) {
			t.Errorf("%s: %v", row.name, ms)
		}
	}
}

func TestInvalidIsOneLine(t *testing.T) {
	err := &quota.Invalid{Fields: []quota.FieldError{{"/tenant", "is empty"}, {"/dimensions/ip", "is long"}}}
	if got := err.Error(); got != "tenant: is empty; dimensions/ip: is long" {
		t.Errorf("%q", got)
	}
}
