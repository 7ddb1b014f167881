package demo_test

import (
	"testing"

	"github.com/regiond/regiond/internal/demo"
)

func TestDemand(t *testing.T) {
	d := demo.NewDemand()
	if d.Rate() != 12 {
		t.Errorf("the demand begins at %d", d.Rate())
	}
	for rate, want := range map[string]int64{"1": 1, "60": 60} {
		if err := d.Set(rate); err != nil || d.Rate() != want {
			t.Errorf("%s: %v, and the demand is %d", rate, err, d.Rate())
		}
	}
	before := d.Rate()
	for _, rate := range []string{"0", "-1", "61", "1e3", "", "twelve"} {
		if err := d.Set(rate); err == nil || d.Rate() != before {
			t.Errorf("%q: %v, and the demand is %d", rate, err, d.Rate())
		}
	}
}
