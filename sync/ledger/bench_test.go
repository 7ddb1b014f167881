//go:build unix

package ledger_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/wire"
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

// BenchmarkTick is one Take and one Sweep over a million known partitions of which
// 10,000 changed.
func BenchmarkTick(b *testing.B) {
	const known, changed = 1_000_000, 10_000
	clock := &fakeClock{}
	l := crowd(b, known, clock, "us-east", "ap-south")
	for i := range known {
		use(l, hash(i), 1, startUS)
	}
	for len(l.Take(1<<20, true, 1)) > 0 {
	}
	units := int64(1) // grows for ever
	for _, entries := range []int{32_768, 5_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			spent, ticks := time.Duration(0), 0
			for b.Loop() {
				units++
				for i := range changed {
					use(l, hash(i*97%known), units, startUS)
				}
				before := cpu()
				l.Take(entries, true, 1)
				l.Sweep()
				spent += cpu() - before
				ticks++
			}
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(ticks), "cpu-ms/tick")
		})
	}
}

// cpu is the processor time this process has used, whatever else the machine does.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFold is a message of 1,000 changes that are news.
func BenchmarkFold(b *testing.B) {
	clock := &fakeClock{}
	l := crowd(b, 1_000_000, clock, "us-east", "ap-south")
	g := wire.Group{Limit: "standard.sustained", WindowUS: minute, Bucket: startUS / minute}
	for i := range 1000 {
		g.IDs, g.Generations, g.Units = append(g.IDs, uint64(i)<<54|hash(i)>>10), append(g.Generations, startUS), append(g.Units, 0)
	}
	units, began := int64(0), cpu()
	for b.Loop() {
		units++
		for i := range g.Units {
			g.Units[i] = units
		}
		if err := l.Fold("us-east", startUS, 0, []wire.Group{g}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(b.N*len(g.IDs)), "cpu-ns/counter")
}
