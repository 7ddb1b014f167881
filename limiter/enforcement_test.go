package limiter

import (
	"fmt"
	"math"
	"testing"

	"github.com/regiond/regiond/quota"
)

// A share of tenants is about that share.
func TestEnforceShareOfMany(t *testing.T) {
	t.Parallel()
	const tenants = 40_000
	for _, share := range []float64{0, 1, 10, 33.3, 50, 90, 100} {
		p := &quota.Policy{Name: "standard", EnforcePercent: share}
		n := 0
		for k := range tenants {
			if enforcement(p, nil, fmt.Sprint("tenant-", k)) == quota.Enforce {
				n++
			}
		}
		if want := share / 100 * tenants; math.Abs(float64(n)-want) > 400 { // four deviations
			t.Errorf("%v%% of %d tenants are %d", share, tenants, n)
		}
	}
}
