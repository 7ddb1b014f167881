package judge

import (
	"maps"
	"slices"

	"github.com/regiond/regiond/test/chaos/traffic"
)

// Charged insists that a region's Redis holds, for each tenant of a class, exactly what
// was admitted there: not less, and nothing twice. If it is unknown whether Redis did
// what it was asked (the answer came too late, or none did, or another call's when
// shifted), it may hold the cost once. stored is what it holds, by tenant.
func Charged(records []traffic.Record, class, region string, stored map[string]int64, shifted bool) []string {
	o := objections{what: "charged"}
	least, more := map[string]int64{}, map[string]int64{}
	for i := range records {
		r := &records[i]
		if r.Class != class || r.Region != region || r.Bare {
			continue
		}
		least[r.Tenant] += 0
		switch {
		case r.Err != "", r.Answer.Reason == "redis_timeout", r.Answer.Reason == "redis_down",
			shifted && r.Answer.Reason == "redis_refused":
			more[r.Tenant] += r.Cost
		case r.Answer.Allowed && r.Answer.Basis != "local":
			least[r.Tenant] += r.Cost
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(least)) {
		if got := stored[tenant]; got < least[tenant] || got > least[tenant]+more[tenant] {
			o.add("the Redis of %s holds %d units of %s: %d were admitted, %d are unknown", region, got, tenant, least[tenant], more[tenant])
		}
	}
	return o.all()
}
