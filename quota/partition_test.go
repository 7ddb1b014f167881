package quota_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

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
