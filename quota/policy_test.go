package quota_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

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

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "[::1]": false, "localhost.example": false, "127.0.0.1.example": false,
	} {
		if got := quota.IsLoopback(host); got != want {
			t.Errorf("%q is loopback: %t", host, got)
		}
	}
}
