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

func TestSet(t *testing.T) {
	s, in := set(0, 1, 63, 64, 99, 127, 64), map[int]bool{0: true, 1: true, 63: true, 64: true, 99: true, 127: true}
	for i := range 128 {
		if s.Has(i) != in[i] || s.Len() != len(in) {
			t.Errorf("of %v Has(%d) = %v, Len() = %d", in, i, s.Has(i), s.Len())
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
// ourselves alone. Estimates are drawn around the shares, and sometimes absurd. The last may be of former regions.
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
	terms.Estimates = append(terms.Estimates, rapid.SliceOfN(rapid.Int64Range(0, units), 0, 2).Draw(t, "former")...)
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
	for _, former := range t.Estimates[len(t.Shares):] {
		sum.Sub(sum, big.NewInt(former))
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
