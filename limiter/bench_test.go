package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// benchPolicy is what a policy typically looks like: three questions, two partitions.
func benchPolicy() quota.Policy {
	return quota.Policy{Limits: []quota.Limit{
		{Name: "burst", Units: 100_000, Window: time.Second},
		{Name: "sustained", Units: 100_000, Window: time.Minute},
		{Name: "per-user", Units: 100_000, Window: time.Minute, By: []string{"user"}},
	}}
}

// benchTenants spreads callers over partitions, as traffic does.
const benchTenants = 256

func benchRequests() []quota.Request {
	rs := make([]quota.Request, benchTenants)
	for i := range rs {
		rs[i] = quota.Request{Tenant: fmt.Sprint("tenant", i), Cost: 1, Dimensions: quota.Dimensions{{Name: "user", Value: "42"}}}
	}
	return rs
}

// decideAll runs b.N checks from so many callers per processor and fails when
// one of them does not rest on basis.
func decideAll(b *testing.B, r *rig, callers int, basis quota.Basis) {
	b.Helper()
	requests := benchRequests()
	b.ReportAllocs()
	b.SetParallelism(callers)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			d, err := r.Check(context.Background(), requests[n%benchTenants])
			if err != nil || d.Basis != basis {
				b.Errorf("%v by %v because of %q", err, d.Basis, d.Reason)
				return
			}
		}
	})
}

func BenchmarkDecideRedis(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			srv := redisserver.Start(b, redisserver.Options{})
			r := redisRig(b, srv.Addr(), onePolicy(benchPolicy()), 2*time.Second)
			requests := benchRequests()
			if callers > 1 {
				decideAll(b, r, callers/2, quota.BasisExact) // per processor
				return
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if d, err := r.Check(context.Background(), requests[n%benchTenants]); err != nil || d.Basis != quota.BasisExact {
					b.Fatalf("%v by %v", err, d.Basis)
				}
			}
		})
	}
}

func BenchmarkDecideMemory(b *testing.B) {
	r := memoryRig(b, onePolicy(benchPolicy()), nil)
	decideAll(b, r, 1, quota.BasisExact)
}

// BenchmarkDenied is a flood of a tenant that is over its limit.
func BenchmarkDenied(b *testing.B) {
	r := memoryRig(b, onePolicy(quota.Policy{Limits: perMinute(1)}), nil)
	r.check(b, "acme", 1)
	request := quota.Request{Tenant: "acme", Cost: 1}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := r.Check(context.Background(), request); err != nil || d.Allowed {
			b.Fatalf("%v, allowed %v", err, d.Allowed)
		}
	}
}
