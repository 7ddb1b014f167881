package oracle_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/test/oracle"
)

// TestGlobalTwoBuckets is the worst that two buckets can do: what was used at a
// bucket's end fades from its middle on as if it had been used all along.
func TestGlobalTwoBuckets(t *testing.T) {
	g := oracle.NewGlobal(2, 100)
	for _, row := range []struct {
		why  string
		at   oracle.Spend
		late int64
		want oracle.Judgement
	}{
		{"alone", oracle.Spend{Region: 0, US: 99, StoreUS: 99, Units: 60}, 10, oracle.Judgement{Used: 60, Bias: []int64{0, 0}}},
		{
			"the bucket counts whole, and came a moment ago",
			oracle.Spend{Region: 1, US: 100, StoreUS: 100, Units: 1},
			10,
			oracle.Judgement{Used: 61, Bias: []int64{0, 0}, Late: 60},
		},
		{
			"half of it has faded, though all is in the window",
			oracle.Spend{Region: 1, US: 150, StoreUS: 150, Units: 1},
			10,
			oracle.Judgement{Used: 62, Bias: []int64{30, 0}},
		},
		{
			"it has left the window and its last unit not the bucket",
			oracle.Spend{Region: 1, US: 199, StoreUS: 199, Units: 1},
			10,
			oracle.Judgement{Used: 3, Bias: []int64{-1, 0}},
		},
		{
			"another clock has another edge",
			oracle.Spend{Region: 0, US: 230, StoreUS: 270, Units: 5},
			10,
			oracle.Judgement{Used: 7, Bias: []int64{0, 2 - 3}},
		},
	} {
		got := g.Admit(row.at, row.late)
		if got.Used != row.want.Used || got.Late != row.want.Late || !slices.Equal(got.Bias, row.want.Bias) {
			t.Errorf("%s: %+v, want %+v", row.why, got, row.want)
		}
	}
}

// A clock that stepped back comes to its old bucket numbers again: what they held then
// is long over. Of the unit just before, two fifths of its bucket are in the window.
func TestGlobalNumbersComeAgain(t *testing.T) {
	g := oracle.NewGlobal(2, 100)
	g.Admit(oracle.Spend{Region: 0, US: 10_050, StoreUS: 10_050, Units: 60}, 0)
	g.Admit(oracle.Spend{Region: 0, US: 19_950, StoreUS: 9_950, Units: 1}, 0)
	g.Admit(oracle.Spend{Region: 0, US: 20_050, StoreUS: 10_050, Units: 2}, 0)
	got := g.Admit(oracle.Spend{Region: 1, US: 20_060, StoreUS: 20_060, Units: 1}, 0)
	if want := []int64{-1, 0}; got.Used != 3 || !slices.Equal(got.Bias, want) {
		t.Errorf("%d used and bias %v, want 3 and %v", got.Used, got.Bias, want)
	}
}

// TestGlobalTwin holds Used, Late and the bias against sums over units laid out on a line.
func TestGlobalTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const regions, end = 3, 200
		window := rapid.Int64Range(1, 60).Draw(t, "W")
		late := rapid.Int64Range(0, 60).Draw(t, "late")
		g := oracle.NewGlobal(regions, window)
		var line [regions][end]int64
		us := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "admissions") {
			us = min(us+rapid.Int64Range(0, 20).Draw(t, "after"), end-1)
			s := oracle.Spend{Region: rapid.IntRange(0, regions-1).Draw(t, "region"), US: us, StoreUS: us + 7, Units: rapid.Int64Range(1, 9).Draw(t, "units")}
			line[s.Region][us] += s.Units
			j := g.Admit(s, late)
			used, recent := int64(0), int64(0)
			for r := range line {
				for at := max(0, us-window+1); at <= us; at++ {
					used += line[r][at]
				}
				for at := max(0, us-late+1); at <= us && r != s.Region; at++ {
					recent += line[r][at]
				}
				if r == s.Region {
					continue
				}
				bias, ended := int64(0), int64(0) // of the bucket before the present one
				for at := range us + 1 {
					switch (us+7)/window - (at+7)/window {
					case 0:
						bias -= line[r][at]
					case 1:
						ended += line[r][at]
					}
					if at > us-window {
						bias += line[r][at]
					}
				}
				left := window - (us+7)%window
				if bias -= (ended*left + window - 1) / window; j.Bias[r] != bias {
					t.Fatalf("region %d: bias %d, want %d", r, j.Bias[r], bias)
				}
			}
			if j.Used != used || j.Late != recent {
				t.Fatalf("at %d: %+v, want %d used and %d late", us, j, used, recent)
			}
		}
	})
}
