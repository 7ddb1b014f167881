package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

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
