package quota_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

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
