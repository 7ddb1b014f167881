package quota_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

func TestValidID(t *testing.T) {
	for _, row := range []struct {
		id string
		ok bool
	}{
		{"a", true},
		{"auth0|x", true},
		{"a+b@c", true},
		{"!", true},
		{"~", true},
		{`"\'<>&%:;,.*?[]`, true},
		{strings.Repeat("x", 256), true},
		{strings.Repeat("x", 257), false},
		{strings.Repeat("x", 1<<20), false},
		{"", false},
		{" ", false},
		{"a b", false},
		{"a\tb", false},
		{"a\r\nb", false},
		{"a\x00b", false},
		{"a\x1fb", false},
		{"a\x7fb", false},
		{"a{b", false},
		{"a}b", false},
		{"müller", false},
		{"\x80", false},
		{"\u202e", false},
	} {
		if err := quota.ValidID(row.id); (err == nil) != row.ok {
			t.Errorf("id %.20q: %v", row.id, err)
		} else if err != nil && len(err.Error()) > 200 {
			t.Errorf("id %.20q: a message of %d bytes", row.id, len(err.Error()))
		}
	}
}

func TestValidName(t *testing.T) {
	for _, row := range []struct {
		name string
		ok   bool
	}{
		{"a", true},
		{"0", true},
		{"per-user_2", true},
		{"a-", true},
		{strings.Repeat("a", 63), true},
		{strings.Repeat("a", 64), false},
		{strings.Repeat("a", 1<<20), false},
		{"", false},
		{"-a", false},
		{"_a", false},
		{"A", false},
		{"aB", false},
		{"a b", false},
		{"a.b", false},
		{"a:b", false},
		{"a,b", false},
		{"ä", false},
		{"a\n", false},
	} {
		if err := quota.ValidName(row.name); (err == nil) != row.ok {
			t.Errorf("name %.20q: %v", row.name, err)
		} else if err != nil && len(err.Error()) > 300 {
			t.Errorf("name %.20q: a message of %d bytes", row.name, len(err.Error()))
		}
	}
}

// TestEveryNameIsAnID: what names may look like is a part of what ids may.
func TestEveryNameIsAnID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}`).Draw(t, "name")
		if quota.ValidName(name) != nil || quota.ValidID(name) != nil {
			t.Fatalf("%q is refused", name)
		}
	})
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
