package load

import (
	"math"
	"math/rand/v2"
	"testing"
)

// weights is what zipf should be, by its definition.
func weights(count int, s float64) []float64 {
	all, sum := make([]float64, count), 0.0
	for k := range all {
		all[k] = 1 / math.Pow(float64(k+1), s)
		sum += all[k]
	}
	for k := range all {
		all[k] /= sum
	}
	return all
}

// TestZipfWeights: the chances are those of the definition, for one tenant too, and
// for exponents that the standard library does not have.
func TestZipfWeights(t *testing.T) {
	for _, count := range []int{1, 2, 3, 1000} {
		for _, s := range []float64{0, 0.5, 0.99, 1, 1.5, 10} {
			z, want := newZipf(count, s), weights(count, s)
			before := 0.0
			for k := range want {
				if got := z.upTo[k] - before; math.Abs(got-want[k]) > 1e-12 {
					t.Fatalf("%d tenants, s=%v: the chance of %d is %v, want %v", count, s, k, got, want[k])
				}
				before = z.upTo[k]
			}
			if before != 1 {
				t.Errorf("%d tenants, s=%v: the chances add up to %v", count, s, before)
			}
		}
	}
}

// TestZipfDraws: a million draws are as the chances say, by chi-square. The bound is
// that of one in a million for 99 degrees of freedom; the seed is fixed.
func TestZipfDraws(t *testing.T) {
	const tenants, draws, most = 100, 1_000_000, 175
	for _, s := range []float64{0, 1, 1.3} {
		z, r := newZipf(tenants, s), rand.New(rand.NewPCG(7, 7))
		seen := make([]float64, tenants)
		for range draws {
			seen[z.draw(r)]++
		}
		chi := func(s float64) (sum float64) {
			for k, w := range weights(tenants, s) {
				sum += (seen[k] - w*draws) * (seen[k] - w*draws) / (w * draws)
			}
			return sum
		}
		if got := chi(s); got > most {
			t.Errorf("s=%v: chi-square is %v", s, got)
		}
		if got := chi(s + 0.02); got < most { // so the bound tells neighbours apart
			t.Errorf("s=%v passes for %v: chi-square is %v", s, s+0.02, got)
		}
	}
}

func TestCosts(t *testing.T) {
	for _, row := range []struct {
		text string
		want Costs
	}{
		{"1", Costs{1, 1}},
		{"700", Costs{700, 700}},
		{"1-5", Costs{1, 5}},
		{"1099511627776", Costs{1 << 40, 1 << 40}},
	} {
		got, err := ParseCosts(row.text)
		if err != nil || got != row.want || got.String() != row.text {
			t.Errorf("%q is %v, %v", row.text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "5-1", "1-", "-", "1-5-9", "1.5", "1e3", "five", "0-3", "1099511627777", "99999999999999999999"} {
		if got, err := ParseCosts(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	seen := map[int64]int{}
	for range 3000 {
		seen[Costs{3, 5}.draw(r)]++
	}
	for units := int64(3); units <= 5; units++ {
		if n := seen[units]; n < 900 || n > 1100 {
			t.Errorf("cost %d is drawn %d times of 3000", units, n)
		}
	}
	if len(seen) != 3 {
		t.Errorf("costs of 3-5 are %v", seen)
	}
}
