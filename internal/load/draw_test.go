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
	for _, count := range []int{1, 2, 1000} {
		for _, s := range []float64{0, 0.5, 1, 1.5, 10} {
			z, before := newZipf(count, s), 0.0
			for k, want := range weights(count, s) {
				if got := (z[k] - before) / z[count-1]; math.Abs(got-want) > 1e-12 {
					t.Fatalf("%d tenants, s=%v: the chance of %d is %v, want %v", count, s, k, got, want)
				}
				before = z[k]
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
	for _, text := range []string{"", "-1", "1-", "-", "1-5-9", "1.5", "1e3", "five", "99999999999999999999"} {
		if got, err := ParseCosts(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
	r, seen := rand.New(rand.NewPCG(1, 1)), map[int64]bool{}
	for range 300 {
		seen[Costs{3, 5}.draw(r)] = true
	}
	if len(seen) != 3 || !seen[3] || !seen[4] || !seen[5] {
		t.Errorf("costs of 3-5 are %v", seen)
	}
}
