package view_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
)

func set(of ...int) view.Set {
	var s view.Set
	for _, i := range of {
		s = s.With(i)
	}
	return s
}

// The table above Ceiling, in numbers: L = 100, shares 50, 30, 20, and we are the
// first.
func TestCeiling(t *testing.T) {
	const (
		share = quota.FailShare
		open  = quota.FailOpen
		shut  = quota.FailClosed
	)
	all, us, pair := set(0, 1, 2), set(0), set(0, 1)
	for _, row := range []struct {
		why     string
		fail    quota.FailMode
		members view.Set
		current view.Set
		used    []int64
		lost    int64
		joining bool
		want    int64
		closed  bool
	}{
		{"all counted on: L − used", share, all, all, []int64{0, 12, 3}, 0, false, 85, false},
		{"whatever the fail mode", open, all, all, []int64{0, 12, 3}, 0, false, 85, false},
		{"whatever the fail mode", shut, all, all, []int64{0, 12, 3}, 0, false, 85, false},
		{"our own estimate is ignored", share, all, all, []int64{99, 12, 3}, 0, false, 85, false},
		{"what our store lost is not", share, all, all, []int64{0, 12, 3}, 40, false, 45, false},
		{"never negative", share, all, all, []int64{0, 90, 90}, 0, false, 0, false},

		{"alone: our share", share, us, us, []int64{0, 30, 20}, 0, false, 50, false},
		{"less what others used beyond theirs", share, us, us, []int64{0, 37, 24}, 0, false, 39, false},
		{"less what was lost", share, us, us, []int64{0, 30, 20}, 8, false, 42, false},
		{"a pair: its shares, less the other's use", share, pair, pair, []int64{0, 25, 20}, 0, false, 55, false},
		{"and the excess of the rest", share, pair, pair, []int64{0, 25, 26}, 0, false, 49, false},

		{"open: the silent are idle", open, us, us, []int64{0, 25, 26}, 0, false, 100, false},
		{"but those that are heard are not", open, us, pair, []int64{0, 25, 26}, 0, false, 75, false},
		{"lost is lost", open, us, us, []int64{0, 25, 26}, 10, false, 90, false},
		{"closed: nothing, and for another reason", shut, pair, all, []int64{0, 0, 0}, 0, false, 0, true},

		{"joining: our share", share, us, us, []int64{0, 0, 24}, 0, true, 46, false},
		{"whatever the fail mode", open, us, us, []int64{0, 0, 24}, 0, true, 46, false},
		{"whatever the fail mode", shut, us, us, []int64{0, 0, 24}, 0, true, 46, false},

		{"paused: our share", share, us, us, []int64{0, 0, 24}, 0, false, 46, false},
		{"open stays open", open, us, us, []int64{0, 0, 24}, 0, false, 100, false},
		{"closed stays closed", shut, us, us, []int64{0, 0, 24}, 0, false, 0, true},
	} {
		got, closed := view.Ceiling(view.Terms{
			Shares: []int64{50, 30, 20}, Estimates: row.used, Members: row.members, Current: row.current,
			Lost: row.lost, Fail: row.fail, Joining: row.joining,
		})
		if got != row.want || closed != row.closed {
			t.Errorf("%s (%v): %d, closed %v; want %d, closed %v", row.why, row.fail, got, closed, row.want, row.closed)
		}
	}
}

// divided returns the shares of regions a, b, c and so on.
func divided(weights []int64, units int64) []int64 {
	var named []quota.Weight
	for i, w := range weights {
		named = append(named, quota.Weight{Region: string(rune('a' + i)), Weight: w})
	}
	return region.Shares(named, units)
}

// drawTerms draws terms such as a View makes them: while joining or paused M is
// ourselves alone. Estimates are drawn around the shares, and sometimes absurd.
func drawTerms(t *rapid.T) (view.Terms, int64) {
	units := rapid.SampledFrom([]int64{1, 7, 100, 100_000, quota.MaxUnits}).Draw(t, "L")
	weights := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 5).Draw(t, "weights")
	n := len(weights)
	terms := view.Terms{
		Shares: divided(weights, units),
		Self:   rapid.IntRange(0, n-1).Draw(t, "self"),
		Lost:   rapid.SampledFrom([]int64{0, 0, 1, units / 2, 1 << 62}).Draw(t, "lost"),
		Fail:   rapid.SampledFrom([]quota.FailMode{quota.FailShare, quota.FailOpen, quota.FailClosed}).Draw(t, "fail"),
	}
	terms.Members = set(terms.Self)
	phase := rapid.IntRange(0, 3).Draw(t, "phase")
	terms.Joining = n > 1 && phase == 2 // 3: this process was paused
	for i := range n {
		terms.Estimates = append(terms.Estimates, rapid.OneOf(
			rapid.Int64Range(0, 2*terms.Shares[i]+2), rapid.SampledFrom([]int64{units, 1 << 62})).Draw(t, "estimate"))
		if rapid.Bool().Draw(t, "current") {
			terms.Current = terms.Current.With(i)
			if phase < 2 && rapid.Bool().Draw(t, "member") {
				terms.Members = terms.Members.With(i)
			}
		}
	}
	return terms, units
}

// referenceCeiling is the table above Ceiling with sets, and numbers that cannot
// overflow.
func referenceCeiling(t view.Terms) (*big.Int, bool) {
	m, est := map[int]bool{}, map[int]int64{}
	partial := false
	for i := range t.Shares {
		m[i], est[i] = t.Members.Has(i), t.Estimates[i]
		partial = partial || !m[i]
	}
	if partial && !t.Joining {
		switch t.Fail {
		case quota.FailClosed:
			return new(big.Int), true
		case quota.FailOpen:
			for i := range t.Shares {
				m[i] = true
				if !t.Current.Has(i) {
					est[i] = 0
				}
			}
		}
	}
	sum := big.NewInt(0)
	for i, share := range t.Shares {
		if m[i] {
			sum.Add(sum, big.NewInt(share))
			if i != t.Self {
				sum.Sub(sum, big.NewInt(est[i]))
			}
		} else if est[i] > share {
			sum.Sub(sum, big.NewInt(est[i]-share))
		}
	}
	if sum.Sub(sum, big.NewInt(t.Lost)); sum.Sign() < 0 {
		return new(big.Int), false
	}
	return sum, false
}

func TestCeilingEqualsReferenceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms, units := drawTerms(t)
		got, closed := view.Ceiling(terms)
		want, wantClosed := referenceCeiling(terms)
		if want.Cmp(big.NewInt(got)) != 0 || closed != wantClosed {
			t.Fatalf("%+v: %d, closed %v; the model says %v, %v", terms, got, closed, want, wantClosed)
		}
		if got < 0 || got > units {
			t.Fatalf("%+v: ceiling %d is not in 0…%d", terms, got, units)
		}
	})
}

// With exact estimates no admission, under any M that a region may have, takes
// the total beyond L: only what is not known yet can.
func TestCeilingsWithTrueEstimatesKeepTheTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 200).Draw(t, "L")
		weights := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 5).Draw(t, "weights")
		shares := divided(weights, units)
		used := make([]int64, len(shares))
		var total int64
		for range rapid.IntRange(1, 40).Draw(t, "admissions") {
			i := rapid.IntRange(0, len(shares)-1).Draw(t, "who")
			members := set(i)
			for k := range shares {
				if rapid.Bool().Draw(t, "member") {
					members = members.With(k)
				}
			}
			ceiling, _ := view.Ceiling(view.Terms{Shares: shares, Estimates: used, Self: i, Members: members})
			cost := rapid.Int64Range(1, units).Draw(t, "cost")
			if used[i]+cost <= ceiling {
				used[i] += cost
				total += cost
			}
			if total > units {
				t.Fatalf("L = %d, shares %v, used %v: %d in all", units, shares, used, total)
			}
		}
	})
}
