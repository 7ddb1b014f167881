package quota_test

import (
	"testing"

	"github.com/regiond/regiond/quota"
)

func TestSameKey(t *testing.T) {
	const generation = 1_795_198_405_260_197
	for _, row := range []struct {
		a, b int64
		want bool
	}{
		{generation, generation, true},
		{generation, generation + 999, true},
		{generation + 999, generation, true},
		{generation, generation + 1000, false},
		{generation + 1000, generation, false},
		{0, generation, false},
	} {
		if quota.SameKey(row.a, row.b) != row.want {
			t.Errorf("%d and %d: %v", row.a, row.b, !row.want)
		}
	}
}
