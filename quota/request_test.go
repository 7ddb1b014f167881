package quota_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWithin: the earlier deadline counts, and only that of the context itself ends it.
func TestWithin(t *testing.T) {
	at := time.Unix(1, 0)
	for _, apart := range []time.Duration{-time.Minute, 0, time.Minute} {
		within, cancel := context.WithCancel(context.Background())
		own := quota.Within(within, at.Add(apart))
		both := quota.Within(&own, at)
		if got, ok := both.Deadline(); !ok || !got.Equal(at.Add(min(apart, 0))) {
			t.Errorf("%v after %v: the deadline is %v", apart, at, got)
		}
		if both.Err() != nil {
			t.Error("it has ended by itself")
		}
		if cancel(); both.Err() == nil {
			t.Error("it outlives its parent")
		}
	}
}

func TestValidIDsAndNames(t *testing.T) {
	for _, row := range []struct {
		kind      string
		valid     func(string) error
		most      int // bytes of a message
		good, bad []string
	}{
		{
			"id", quota.ValidID, 200,
			[]string{"a", "auth0|x", "a+b@c", "!", "~", `"\'<>&%:;,.*?[]`, strings.Repeat("x", 256)},
			[]string{
				strings.Repeat("x", 257), strings.Repeat("x", 1<<20), "", " ", "a b", "a\tb",
				"a\r\nb", "a\x00b", "a\x1fb", "a\x7fb", "a{b", "a}b",
				"müller", "\x80", "\u202e",
			},
		},
		{
			"name", quota.ValidName, 300,
			[]string{"a", "0", "per-user_2", "a-", strings.Repeat("a", 63)},
			[]string{
				strings.Repeat("a", 64), strings.Repeat("a", 1<<20), "", "-a", "_a", "A",
				"aB", "a b", "a.b", "a:b", "a,b", "ä",
				"a\n",
			},
		},
	} {
		for _, s := range row.good {
			if err := row.valid(s); err != nil {
				t.Errorf("%s %.20q: %v", row.kind, s, err)
			}
		}
		for _, s := range row.bad {
			if err := row.valid(s); err == nil || len(err.Error()) > row.most {
				t.Errorf("%s %.20q: refused with %.80v, want a short message", row.kind, s, err)
			}
		}
	}
}

func TestDimensions(t *testing.T) {
	ds := quota.Dimensions{{"user", "42"}, {"ip", "::1"}, {"route", "login"}}
	if twice, ok := ds.Sort(); !ok || twice != "" || ds[0].Name != "ip" || ds[1].Name != "route" || ds[2].Name != "user" {
		t.Errorf("%q %v %v", twice, ok, ds)
	}
	if v, ok := ds.Value("route"); !ok || v != "login" {
		t.Errorf("route is %q %v", v, ok)
	}
	if v, ok := ds.Value("rout"); ok || v != "" {
		t.Errorf("rout is %q", v)
	}
	if twice, ok := (quota.Dimensions{{"b", "1"}, {"a", "1"}, {"b", "2"}}).Sort(); ok || twice != "b" {
		t.Errorf("twice %q %v", twice, ok)
	}
	if _, ok := quota.Dimensions(nil).Sort(); !ok {
		t.Error("none is not twice")
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
