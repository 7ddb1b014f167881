package overrides_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/test/redisserver"
)

// million are as many overrides as one process is made for.
const million = 1_000_000

// BenchmarkMillion has one process read a million overrides, each with units of its own, from a Redis on this machine: the goals are
// 5 s and 120 MB.
func BenchmarkMillion(b *testing.B) {
	s := redisserver.Start(b, redisserver.Options{})
	pipe := s.Client().Pipeline()
	for i := range million {
		e := units(fmt.Sprintf("customer-%09d", i), "sustained", 600+i)
		e.Override.Version = quota.OverrideVersion{Counter: 1, WallUS: 1_700_000_000_000_000 + int64(i), Region: "eu"}
		pipe.HSet(b.Context(), overrides.KeyOf(e.Override.Tenant), e.Override.Tenant, e.Override.AppendText(nil))
		if pipe.Len() == 10_000 {
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		p := newProcess(b, eval(s.Client()))
		overrides.Load(b.Context(), p.Overlay)
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if p.Size() != million {
			b.Fatalf("%d are known", p.Size())
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB")
		b.StartTimer()
	}
}

// BenchmarkOf is what each decision pays, of a tenant with an override and of one without.
func BenchmarkOf(b *testing.B) {
	p := newProcess(b, nil)
	if _, err := p.Edit(b.Context(), units("acme", "burst", 40, "sustained", 700)); err != nil {
		b.Fatal(err)
	}
	for _, tenant := range []string{"acme", "other"} {
		b.Run(tenant, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Of(b.Context(), tenant); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
