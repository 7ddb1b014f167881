package ledger_test

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkMemory prints the memory of a partition that two peers use in two buckets each, and of
// one that we use too. The index grows in steps, hence the sizes.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{600_000, 800_000, 1_000_000, 1_200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				clock := &fakeClock{}
				before := heap()
				l := crowd(b, n, clock, "us-east", "ap-south")
				remote := heap() - before
				for i := range n {
					use(l, hash(i), 1, startUS-minute)
					use(l, hash(i), 1, startUS)
				}
				own := heap() - before
				b.ReportMetric(float64(remote)/float64(n), "B/remote-partition")
				b.ReportMetric(float64(own)/float64(n), "B/own-partition")
				runtime.KeepAlive(l)
			}
		})
	}
}
